"""Reads from outside of state that is brought up to date when it is read."""

from koordsched.framework.pluginstates import PluginStates


def test_state_is_brought_up_to_date_once_per_change_and_the_read_is_noted():
    noted, updates, version = [], [], 0
    states = PluginStates(noted.append)
    read = states.updated_by("books", lambda: version, lambda: updates.append(version))
    read()
    states.read_from_outside()
    assert (noted, updates) == (["books"], [0])
    version = 1
    states.read_from_outside()
    read()
    assert (noted, updates) == (["books"] * 2, [0, 1])
    # As a replay has it.
    states.repeat("books")
    states.repeat("unknown")
    assert (noted, updates) == (["books"] * 2, [0, 1, 1])
