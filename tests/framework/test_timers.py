"""Timers of plugins, and rows that are touched when their time has come."""

import pytest

from koordsched.framework.timers import Timers, due_of
from tests.plugins.harness import Bench
from tests.plugins.objects import node


class Clock:
    """Counts how often it is read."""

    def __init__(self):
        self.time, self.readings = 0.0, 0

    def __call__(self):
        self.readings += 1
        return self.time


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def timers(clock):
    return Timers(clock)


def at(clock, timers, time):
    clock.time = time
    timers.run()


def test_calls_come_once_in_the_order_of_their_time(clock, timers):
    called = []
    for when in (3.0, 1.0, 2.0):
        timers.at(when, lambda when=when: called.append(when))
    at(clock, timers, 0.5)
    assert called == []
    at(clock, timers, 2.0)
    assert called == [1.0, 2.0]
    at(clock, timers, 9.0)
    at(clock, timers, 10.0)
    assert called == [1.0, 2.0, 3.0]


def test_a_cancelled_call_does_not_come_even_if_another_cancels_it_when_both_are_due(clock, timers):
    called = []
    later = timers.at(2.0, lambda: called.append("later"))
    timers.at(1.0, later.cancel)
    timers.at(1.0, lambda: called.append("one")).cancel()
    at(clock, timers, 5.0)
    assert called == []


def test_a_call_that_fails_does_not_keep_the_others_from_theirs(clock, timers, caplog):
    called = []
    timers.at(1.0, lambda: 1 // 0)
    timers.at(2.0, lambda: called.append(2))
    at(clock, timers, 3.0)
    assert called == [2]
    assert "a timer of a plugin failed" in caplog.text


def test_a_call_may_ask_for_the_next_one(clock, timers):
    called = []

    def again():
        called.append(clock.time)
        timers.at(clock.time, again)

    timers.at(0.0, again)
    at(clock, timers, 1.0)
    at(clock, timers, 2.0)
    assert called == [1.0, 2.0]


def test_while_nothing_waits_the_clock_is_not_read(clock, timers):
    bench = Bench(node("alder"))
    deadlines = timers.deadlines(bench.cluster.table, bench.cluster.table.add_facet())
    deadlines.set(0, 1.0)
    deadlines.clear(0)
    timers.at(1.0, lambda: None).cancel()
    at(clock, timers, 5.0)
    assert clock.readings == 0


class Rows:
    """A table with rows 0 to 2, and deadlines in a facet of their own."""

    def __init__(self, timers):
        self.bench = Bench(node("alder"), node("birch"), node("cedar"))
        self.table = self.bench.cluster.table
        self.facet = self.table.add_facet()
        self.due = []
        self.deadlines = timers.deadlines(self.table, self.facet, self.due.append)
        self._serial = self.table.log.serial

    def touched(self):
        """Rows touched in the facet since the last call."""
        found = dict(self.table.log.since(self._serial, self.facet, self.table.size))
        self._serial = self.table.log.serial
        return sorted(found)


def test_rows_are_touched_once_when_their_time_has_come(clock, timers):
    rows = Rows(timers)
    rows.deadlines.set(0, 2.0)
    rows.deadlines.set(1, 1.0)
    rows.deadlines.set(2, 1.0)
    rows.deadlines.set(2, 7.0)
    at(clock, timers, 3.0)
    assert rows.touched() == [0, 1]
    assert rows.due == [[1, 0]]
    at(clock, timers, 4.0)
    assert rows.touched() == []
    at(clock, timers, 7.0)
    assert rows.touched() == [2]
    assert rows.due == [[1, 0], [2]]


def test_a_row_that_another_node_got_has_no_deadline(clock, timers):
    rows = Rows(timers)
    rows.deadlines.set(1, 2.0)
    rows.bench.cluster.remove_node("birch")
    rows.bench.add(node("dogwood"))
    assert rows.table.row_of["dogwood"] == 1
    rows.touched()
    at(clock, timers, 3.0)
    assert rows.touched() == []
    assert rows.due == []


def test_deadlines_that_are_moved_over_and_over_leave_nothing_behind(clock, timers):
    rows = Rows(timers)
    for second in range(10_000):
        rows.deadlines.set(second % 3, 1000.0 + second)
    assert len(rows.deadlines) == 3
    assert len(rows.deadlines._agenda._heap) < 100


def test_of_one_time_the_one_that_was_set_first_comes_first(clock, timers):
    called = []
    for name in "abc":
        timers.at(1.0, lambda name=name: called.append(name))
    at(clock, timers, 1.0)
    assert called == ["a", "b", "c"]


def test_many_that_are_set_and_cancelled_leave_nothing_behind(clock, timers):
    """Those that wait keep their time and their order, however much was set between them."""
    called = []
    for name in "abc":
        timers.at(5.0, lambda name=name: called.append(name))
        for _ in range(500):
            timers.at(9.0, lambda: called.append("cancelled")).cancel()
    assert len(timers._agenda._heap) <= 64 + 2 * 3 + 1
    at(clock, timers, 10.0)
    assert called == ["a", "b", "c"]


def test_a_row_that_is_set_again_and_again_has_one_deadline(clock, timers):
    touched, bench = [], Bench(node("a"), node("b"))
    deadlines = timers.deadlines(bench.cluster.table, 1, touched.extend)
    for when in range(400, 100, -1):
        deadlines.set(0, float(when))
        deadlines.set(1, 1000.0 - when)
    assert len(deadlines) == 2
    assert len(deadlines._agenda._heap) <= 64 + 2 * 2 + 1
    for time, expected in ((100.0, []), (101.0, [0]), (898.0, [0]), (899.0, [0, 1]), (2000.0, [0, 1])):
        at(clock, timers, time)
        assert touched == expected


def test_what_waits_goes_on_elsewhere_in_the_same_order(clock, timers):
    """A checkpoint has the times and turns of timers, and the deadlines of rows; a replay restores them."""
    called, again = [], Timers(clock)
    for _ in range(20):
        timers.at(9.0, lambda: None)
    made = {name: timers.at(when, lambda: None) for name, when in (("a", 2.0), ("b", 1.0), ("c", 2.0), ("gone", 1.5))}
    made["gone"].cancel()
    at(clock, timers, 1.0)
    assert [(name, timer.waits) for name, timer in made.items()] == [
        ("a", True),
        ("b", False),
        ("c", True),
        ("gone", False),
    ]
    assert due_of(None) is due_of(made["b"]) is due_of(made["gone"]) is None
    dues = {name: due_of(made[name]) for name in ("a", "c")}
    assert [due.when for due in dues.values()] == [2.0, 2.0]
    for name in ("c", "a"):
        assert again.restore(dues[name], lambda name=name: called.append(name)).due == dues[name]
    again.at(2.0, lambda: called.append("set afterwards"))
    at(clock, again, 1.5)
    assert called == []
    at(clock, again, 2.0)
    assert called == ["a", "c", "set afterwards"]


def test_deadlines_go_on_elsewhere(clock, timers):
    bench, touched = Bench(node("a"), node("b"), node("c")), []
    first = timers.deadlines(bench.cluster.table, 1)
    for row, when in ((0, 9.0), (2, 5.0), (1, 1.0), (0, 3.0)):
        first.set(row, when)
    first.clear(1)
    assert first.state() == [(2, 5.0), (0, 3.0)]
    again = Timers(clock)
    other = again.deadlines(bench.cluster.table, 1, touched.extend)
    other.set(1, 0.5)
    other.restore(first.state())
    for time, expected in ((2.0, []), (3.0, [0]), (5.0, [0, 2])):
        at(clock, again, time)
        assert touched == expected
    bench.cluster.remove_node("a")
    other.restore([(1, 7.0)])
    other.clear(1)
    at(clock, again, 9.0)
    assert touched == [0, 2]
