"""Amounts that few rows have, against arrays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from koordsched.cluster import nodetable
from koordsched.cluster.columns import Column
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.rarecolumns import RareColumn
from koordsched.cluster.resources import FIRST_SCALAR
from tests.cluster.objects import wire_node

ROWS = 200
rows = st.integers(0, ROWS - 1)
amounts = st.integers(-(1 << 62), 1 << 62)


class BothKinds(RuleBasedStateMachine):
    """Everything is done to a rare column and to an array."""

    def __init__(self):
        super().__init__()
        self.rare = RareColumn(ROWS)
        self.array = Column(ROWS, np.int64)

    @rule(row=rows, amount=amounts)
    def set(self, row, amount):
        for column in (self.rare, self.array):
            column.data[row] = amount

    @rule(row=rows, amount=amounts)
    def add(self, row, amount):
        with np.errstate(over="ignore"):
            for column in (self.rare, self.array):
                column.data[row] += amount

    @rule(chosen=st.lists(rows, unique=True), amount=amounts)
    def set_many(self, chosen, amount):
        for column in (self.rare, self.array):
            column.data[np.array(chosen, dtype=np.intp)] = np.arange(len(chosen)) + amount

    @rule(row=rows)
    def clear(self, row):
        for column in (self.rare, self.array):
            column.clear(row)

    @rule(chosen=st.lists(rows))
    def read_some(self, chosen):
        chosen = np.array(chosen, dtype=np.intp)
        assert self.rare.data[chosen].tolist() == self.array.data[chosen].tolist()

    @rule(row=rows)
    def read_one(self, row):
        assert self.rare.data[row] == self.rare.data.item(row) == self.array.data.item(row)

    @invariant()
    def all_rows_agree(self):
        assert self.rare.data[slice(0, ROWS)].tolist() == self.array.data.tolist()
        assert self.rare.data[slice(0, ROWS)].dtype == self.array.data.dtype
        assert (len(self.rare) > 0) == bool(self.rare.data.any()) == bool(self.array.data.any())
        assert len(self.rare) == np.count_nonzero(self.array.data)


TestBothKinds = BothKinds.TestCase
TestBothKinds.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


@given(st.dictionaries(rows, amounts, max_size=150))
@settings(deadline=None)
def test_one_kind_becomes_the_other(stored):
    array = Column(ROWS, np.int64)
    for row, amount in stored.items():
        array.data[row] = amount
    rare, again = RareColumn(ROWS), Column(ROWS, np.int64)
    rare.copy_from(array)
    rare.copy_to(again)
    assert again.data.tolist() == array.data.tolist()
    mask = array.data != 0
    assert rare.data[mask].tolist() == array.data[mask].tolist()
    many = np.arange(ROWS - 1, -1, -1)
    assert rare.data[many].tolist() == array.data[many].tolist()


@pytest.mark.parametrize("step", [1 << 62, -(1 << 62)])
def test_an_amount_beyond_64_bits_wraps_around(step):
    rare, array = RareColumn(1), Column(1, np.int64)
    with np.errstate(over="ignore"):
        for _ in range(5):
            for column in (rare, array):
                column.data[0] += step
            assert rare.data[0] == array.data[0]


def test_a_mask_is_not_taken_for_rows():
    rare = RareColumn(2)
    rare.data[1] = 5
    assert rare.data[np.array([False, True])].tolist() == [5]


def table(nodes, resources_of):
    """A table with so many nodes and their resources."""
    made = NodeTable()
    for i in range(nodes):
        made.add(wire_node(f"n{i}", **resources_of(i)))
    return made


def column_of(made, resource):
    return made.allocatable[made.resource_names.intern(resource)]


@pytest.mark.parametrize("nodes", [100, 3000])
def test_a_resource_per_node_takes_memory_where_it_is(nodes):
    made = table(nodes, lambda i: {f"ex.com/r{i}": 7})
    kinds = {type(made.allocatable[i]) for i in range(FIRST_SCALAR, len(made.allocatable))}
    assert kinds == {Column if nodes == 100 else RareColumn}
    for i in (0, 63, nodes - 1):
        assert column_of(made, f"ex.com/r{i}").data[made.all_rows].tolist() == [7 * (i == j) for j in range(nodes)]


@pytest.mark.parametrize(("beyond", "kind"), [(0, Column), (1, RareColumn)])
def test_a_new_resource_is_rare_only_in_a_table_that_is_not_small(monkeypatch, beyond, kind):
    made = table(100, lambda i: {})
    monkeypatch.setattr(nodetable, "SMALL_TABLE", len(made.alive.data) - beyond)
    made.update(wire_node("n7", **{"ex.com/gpu": 8}))
    assert type(column_of(made, "ex.com/gpu")) is kind


def test_a_resource_that_many_nodes_have_is_an_array_again():
    made = table(1500, lambda i: {"ex.com/gpu": 8} if i in (3, 1499) else {})
    assert isinstance(column_of(made, "ex.com/gpu"), RareColumn)
    for i in range(0, 1000, 5):
        made.update(wire_node(f"n{i}", **{"ex.com/gpu": 4}))
    assert not isinstance(column_of(made, "ex.com/gpu"), RareColumn)
    amounts = column_of(made, "ex.com/gpu").data[made.all_rows]
    assert (amounts[3], amounts[1499], amounts[5], int(amounts.sum())) == (8, 8, 4, 816)


def test_resources_that_no_node_has_can_be_read_in_a_table_that_grew():
    made = table(1500, lambda i: {"ex.com/gpu": 8} if i == 1400 else {})
    unknown = made.resource_names.intern("ex.com/unknown")
    made.ensure_resource(unknown)
    for i in range(1500, 2500):
        made.add(wire_node(f"n{i}"))
    assert made.allocatable[unknown].data[made.all_rows].tolist() == [0] * 2500
    made.remove("n1400")
    assert not column_of(made, "ex.com/gpu").data.any()


def test_resources_of_nodes_that_are_gone_take_nothing():
    made = table(2, lambda i: {f"ex.com/r{j}": 7 for j in range(200)} if i == 1 else {})
    peak = len(made._columns)
    made.remove("n1")
    made.add(wire_node("late"))
    assert len(made._columns) <= peak - 2 * 200
