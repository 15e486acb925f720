"""What somebody who is behind may believe."""

from typing import Any, NamedTuple

import pytest

from tests.simulation.history import History

KEY = ("", "n")


class Record(NamedTuple):
    key: tuple[str, str]
    rv: int


class Change(NamedTuple):
    type: str
    new: Any
    record: Record


def history(*states):
    """Of versions 1, 2, ...; `?` is one that nobody can read, None the end of the object."""
    made = History(is_readable=lambda thing: thing != "?")
    for version, state in enumerate(states, start=1):
        made.note(Change("DELETED" if state is None else "MODIFIED", state, Record(KEY, version)))
    return made


@pytest.mark.parametrize(
    ("states", "version", "read", "believed"),
    [
        ("abc", 3, 0, "c"),
        ("abc", 2, 0, "bc"),
        ("abc", 3, 1, "c"),
        ("ab?", 3, None, "b"),
        # A list at version 3 does not show what version 2 was.
        ("ab?", 3, 1, "ba"),
        ("ab?", 3, 2, "bb"),
        ("ab??", 4, 1, "ba"),
        # Whoever has handled version 2 only has been shown it, and whatever can be read again is read.
        ("ab?", 2, 1, "b"),
        ("ab?c", 4, 1, "c"),
        # Nobody goes by an object that was gone, nor by one that never was.
        (("a", None, "?"), 3, 2, ""),
        ("a?", 2, 7, "a"),
    ],
)
def test_states_that_may_be_believed(states, version, read, believed):
    assert history(*states).since(KEY, version, read) == list(believed)


@pytest.mark.parametrize(
    ("states", "version", "read", "believed"),
    [
        ("abc", 2, {}, "b"),
        ("abc", 2, {KEY: 1}, "b"),
        # In what was read last, where a list shows nothing that could be read; in nothing, where nothing had been.
        ("ab?", 3, {KEY: 1}, "a"),
        ("ab?", 3, {KEY: 2}, "b"),
        ("ab?", 3, {}, ""),
        ("ab?", 3, None, "b"),
        ("ab?", 2, {KEY: 1}, "b"),
        ("ab?c", 4, {KEY: 1}, "c"),
        (("a", None, "?"), 3, {}, ""),
    ],
)
def test_states_that_were_believed(states, version, read, believed):
    assert history(*states).at(version, read) == list(believed)
