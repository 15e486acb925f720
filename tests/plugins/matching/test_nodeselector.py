"""Node selector terms that no API server has checked."""

import numpy as np
import pytest

from koordsched.api.core import NodeSelectorRequirement
from koordsched.plugins.shared.matching.nodeselector import NameTest, NodeSelectors
from tests.plugins.harness import Bench
from tests.plugins.objects import node, node_affinity, pod, term


@pytest.mark.parametrize(("operator", "found"), [("In", [False, True, False]), ("NotIn", [True, False, True])])
def test_a_name_is_looked_for_among_the_rows_that_are_asked_about(operator, found):
    bench = Bench(*(node(f"n{number}") for number in range(6)))
    test = NameTest(NodeSelectorRequirement(key="metadata.name", operator=operator, values=("n3",)))
    table = bench.cluster.table
    row = table.row_of["n3"]
    for rows in (slice(row - 1, row + 2), np.arange(row - 1, row + 2)):
        assert test.mask(table, rows).tolist() == found
    assert test.mask(table, slice(0, row)).tolist() == [operator == "NotIn"] * row


@pytest.mark.parametrize("operator", ["Exists", "DoesNotExist"])
@pytest.mark.parametrize(("values", "understood"), [((), True), (("v",), False)])
def test_the_operators_that_take_no_values(operator, values, understood):
    bench = Bench(node("n1", labels={"key": "v"}), node("n2"))
    wanted = bench.pod(pod("p", affinity=node_affinity([term(("key", operator, *values))])))
    found = NodeSelectors().required_by(wanted.shape.spec).mask(bench.cluster.table, bench.cluster.table.all_rows)
    assert found.tolist() == ([operator == "Exists", operator != "Exists"] if understood else [False, False])


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [("key", "value", True), ("not a key", "value", False), ("key", "not a value", False)],
)
def test_what_cannot_be_a_label_is_on_no_node(key, value, found):
    bench = Bench(node("n1", labels={key: value}))
    wanted = bench.pod(pod("p", affinity=node_affinity([term((key, "In", value))])))
    table = bench.cluster.table
    assert NodeSelectors().required_by(wanted.shape.spec).mask(table, table.all_rows).tolist() == [found]
