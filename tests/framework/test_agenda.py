"""Keys that are due at some time."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from koordsched.framework.agenda import Agenda

STEPS = st.lists(st.tuples(st.sampled_from(["set", "clear", "take"]), st.integers(0, 5), st.integers(0, 20)))


@given(STEPS)
def test_as_a_dictionary_of_times(steps):
    agenda, times = Agenda(), {}
    for what, key, when in steps:
        if what == "set":
            agenda.set(key, when)
            times[key] = when
        elif what == "clear":
            agenda.clear(key)
            times.pop(key, None)
        else:
            due = agenda.take_due(when)
            expected = {key: at for key, at in times.items() if at <= when}
            assert sorted(due) == sorted(expected)
            assert [expected[key] for key in due] == sorted(expected.values())
            for key in due:
                del times[key]
        assert len(agenda) == len(times)
        assert agenda.earliest == min(times.values(), default=None)


def test_entries_that_were_replaced_do_not_pile_up():
    agenda, rng = Agenda(), Random(1)
    for _ in range(10_000):
        agenda.set(rng.randrange(10), rng.random())
    assert len(agenda) == 10
    assert len(agenda._heap) < 100


def test_what_is_left_when_old_entries_are_dropped_is_in_order():
    agenda, rng, times = Agenda(), Random(2), {}
    for _ in range(5_000):
        key, when = rng.randrange(300), rng.random()
        agenda.set(key, when)
        times[key] = when
    assert [times[key] for key in agenda.take_due(1.0)] == sorted(times.values())
