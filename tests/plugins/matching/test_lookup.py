"""A kept judgement per number is always the judgement of what the number stands for."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from koordsched.api.selectors import value_test
from koordsched.cluster.columns import ValueColumn
from koordsched.cluster.nodetable import NodeTable
from koordsched.plugins.shared.matching.lookup import ColumnLookup, LabelTest, MembershipTest
from tests.cluster.objects import wire_node

KEY = "kubernetes.io/hostname"
NAMES = [f"n{i}" for i in range(12)]
REQUIREMENTS = (
    ("In", ("n1",)),
    ("In", ("n1", "n4", "n7", "nowhere")),
    ("NotIn", ("n2", "n3")),
    ("NotIn", ("n2",)),
    ("NotIn", ("nowhere", "neither")),
    ("Exists", ()),
    ("DoesNotExist", ()),
    ("Gt", ("5",)),
)


def label_test(operator, values):
    if operator in ("In", "NotIn"):
        return MembershipTest(KEY, values, inverted=operator == "NotIn")
    return LabelTest(KEY, value_test(operator, values))


class Histories(RuleBasedStateMachine):
    """Nodes come, go and are renamed; each test is asked at its own times, and so sees many changes at once or few."""

    def __init__(self):
        super().__init__()
        self.table = NodeTable()
        self.labels = {}
        self.tests = [(label_test(*requirement), value_test(*requirement)) for requirement in REQUIREMENTS]

    @rule(name=st.sampled_from(NAMES), value=st.sampled_from([*NAMES, "3", "9", None]))
    def put(self, name, value):
        wire = wire_node(name, labels={KEY: value} if value is not None else {})
        if value is None:
            del wire.metadata.labels[KEY]
        (self.table.update if name in self.labels else self.table.add)(wire)
        self.labels[name] = value

    @rule(name=st.sampled_from(NAMES))
    def drop(self, name):
        if self.labels.pop(name, self) is not self:
            self.table.remove(name)

    @rule(which=st.integers(0, len(REQUIREMENTS) - 1))
    def ask(self, which):
        kept, judge = self.tests[which]
        table = self.table
        fresh = label_test(*REQUIREMENTS[which])
        expected = {name: judge(value) for name, value in self.labels.items()}
        mask, anew = kept.mask(table, table.all_rows), fresh.mask(table, table.all_rows)
        assert np.array_equal(mask, anew)
        assert {name: bool(mask[row]) for name, row in table.row_of.items()} == expected
        assert {name: kept.passes_row(table, row) for name, row in table.row_of.items()} == expected


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)


class Judged(RuleBasedStateMachine):
    """Judgements that are numbers, with their bounds."""

    def __init__(self):
        super().__init__()
        self.column = ValueColumn(4, ())
        self.lookup = ColumnLookup(self.column, len, np.int64)

    @rule(row=st.integers(0, 3), value=st.lists(st.sampled_from("abc"), max_size=5).map(tuple))
    def set(self, row, value):
        self.column.set(row, value)

    @rule()
    def ask(self):
        self.lookup.refresh()
        expected = [len(value) for value in self.column.values]
        assert self.lookup.verdicts.tolist() == expected
        assert (self.lookup.lowest, self.lookup.highest) == (min(expected), max(expected))


TestJudged = Judged.TestCase
TestJudged.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_only_numbers_that_changed_are_judged_again():
    column = ValueColumn(1000, None)
    for row in range(1000):
        column.set(row, f"n{row}")
    asked = []
    lookup = ColumnLookup(column, lambda value: asked.append(value) or 0, np.bool_)
    assert len(asked) == 1001
    asked.clear()
    column.set(7, "new")
    lookup.refresh()
    assert sorted(asked, key=str) == [None, "new"], "the number that was given back, and the one that was given out"
    asked.clear()
    column.set(8, "newer")
    lookup.refresh()
    lookup.refresh()
    assert sorted(asked, key=str) == [None, "newer"]
