"""Node selector terms that no API server has checked."""

import pytest

from koordsched.plugins.shared.matching.nodeselector import NodeSelectors
from tests.plugins.harness import Bench
from tests.plugins.objects import node, node_affinity, pod, term


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [("key", "value", True), ("not a key", "value", False), ("key", "not a value", False)],
)
def test_what_cannot_be_a_label_is_on_no_node(key, value, found):
    bench = Bench(node("n1", labels={key: value}))
    wanted = bench.pod(pod("p", affinity=node_affinity([term((key, "In", value))])))
    table = bench.cluster.table
    assert NodeSelectors().required_by(wanted.shape.spec).mask(table, table.all_rows).tolist() == [found]
