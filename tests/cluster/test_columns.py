"""Numbers of values: one value at a time, given back, and never mistaken for what they stood for before."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from koordsched.cluster.columns import ABSENT, Column, ValueColumn
from koordsched.cluster.nodetable import NodeTable
from tests.cluster.objects import wire_node
from tests.depth import examples

ROWS = 6


class Histories(RuleBasedStateMachine):
    """Rows that take values at random, against a model; readers that look when they like."""

    def __init__(self):
        super().__init__()
        self.column = ValueColumn(ROWS, None)
        self.model = [None] * ROWS
        self.most = 0
        self.readers = [(0, [None])]

    @rule(row=st.integers(0, ROWS - 1), value=st.one_of(st.none(), st.sampled_from("abcdefghijkl")))
    def set(self, row, value):
        self.column.set(row, value)
        self.model[row] = value
        self.most = max(self.most, len({value for value in self.model if value is not None}))

    @rule(row=st.integers(0, ROWS - 1))
    def clear(self, row):
        self.column.clear(row)
        self.model[row] = None

    @rule()
    def somebody_looks(self):
        self.readers.append((self.column.serial, list(self.column.values)))

    @invariant()
    def rows_have_their_values(self):
        assert [self.column.values[number] for number in self.column.ids.data.tolist()] == self.model

    @invariant()
    def numbers_in_use_have_a_value_and_others_none(self):
        live = {value: number for number, value in enumerate(self.column.values) if value is not None}
        assert set(live) == set(self.model) - {None}
        assert self.column.index == {None: ABSENT, **live}
        assert self.column.unused == (not live)

    @invariant()
    def there_are_no_more_numbers_than_were_needed_at_once(self):
        # A row that changes its value takes the new number before it gives the old one back.
        assert len(self.column.values) <= 1 + self.most + 1

    @invariant()
    def every_reader_is_told_of_every_number_that_changed(self):
        values = self.column.values
        for serial, seen in self.readers:
            told = self.column.changed_since(serial)
            differing = {n for n, value in enumerate(values) if n >= len(seen) or seen[n] != value}
            assert told is None or differing <= set(told)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


@given(missed=st.integers(0, 9000))
@settings(max_examples=25, deadline=None)
def test_who_missed_too_much_is_told_to_look_at_everything(missed):
    column = ValueColumn(1, None)
    for i in range(3000):
        column.set(0, f"before {i}")
    serial = column.serial
    for i in range(missed):
        column.set(0, f"after {i}")
    told = column.changed_since(serial)
    assert told is None or len(told) == column.serial - serial
    assert told is not None or missed * 2 > 1024, "what happened lately is remembered"
    assert len(column.values) == 3


def test_a_label_key_that_no_node_has_takes_nothing():
    table = NodeTable()
    table.add(wire_node("alder", labels={"zone": "a"}))
    absent = table.label_column("rack")
    table.add(wire_node("birch", labels={"rack": "r1"}))
    rack = table.label_column("rack")
    assert rack is not absent
    assert [rack.values[n] for n in rack.ids.data[: table.size].tolist()] == [None, "r1"]
    table.remove("birch")
    assert table.label_column("rack") is absent
    table.add(wire_node("cedar", labels={"rack": "r2"}))
    assert table.label_column("rack") is not rack
    assert table.label_column("rack").values == [None, "r2"]


def test_a_node_that_changes_its_labels_leaves_nothing_behind():
    table = NodeTable()
    row = table.add(wire_node("alder", labels={"zone": "a", "rack": "r1"}))
    table.update(wire_node("alder", labels={"zone": "b", "shelf": "s1"}))
    zone = table.label_column("zone")
    assert zone.values[zone.ids.data[row]] == "b"
    assert set(zone.index) == {None, "b"}
    assert table.label_column("rack").unused
    assert table.label_column("shelf").index.keys() == {None, "s1"}


@pytest.mark.parametrize("fill", [0, -1])
def test_a_column_becomes_wider_and_longer_and_keeps_what_it_has(fill):
    column = Column(2, np.int16, fill, width=2)
    column.data[:] = [[1, 2], [3, 4]]
    before = column.data
    for narrower in (0, 1, 2):
        column.widen(narrower)
        assert column.data is before
    column.widen(4)
    assert column.data.dtype == np.int16
    assert column.data.tolist() == [[1, 2, fill, fill], [3, 4, fill, fill]]
    column.grow(3)
    assert column.data.tolist() == [[1, 2, fill, fill], [3, 4, fill, fill], [fill] * 4]
    column.clear(0)
    assert column.data[0].tolist() == [fill] * 4


@pytest.mark.parametrize("width", [0, 2])
@pytest.mark.parametrize("stored", [1, 7, 8, 64])
def test_a_column_that_grows_keeps_few_numbers_and_many(width, stored):
    column = Column(64, np.int64, width=width)
    column.data[-stored:] = 7
    column.grow(90)
    assert column.data.shape == ((90, width) if width else (90,))
    assert np.flatnonzero(column.data.any(axis=1) if width else column.data).tolist() == list(range(64 - stored, 64))


def test_a_column_of_one_number_per_row_does_not_become_wider():
    with pytest.raises(ValueError, match="one number per row"):
        Column(2, np.int64).widen(3)
