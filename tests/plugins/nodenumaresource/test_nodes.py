"""What is known of a node follows its reports."""

from koordsched.api.decoding import convert
from koordsched.plugins.nodenumaresource.kinds import NodeResourceTopology
from koordsched.plugins.nodenumaresource.topologyoptions import read
from tests.plugins.nodenumaresource.cluster import Cluster
from tests.plugins.nodenumaresource.machines import node, topology


def test_a_report_that_says_nothing_is_no_missing_report():
    """Where more CPU is offered than there is, a report without CPUs keeps pods away; no report does not."""
    amplified, empty = node(ratio=1.5), topology(None, policies=())
    cluster = Cluster(amplified)
    missing = cluster.states()
    cluster.put(empty)
    assert cluster.states() == Cluster(empty, amplified).states() != missing
    cluster.remove(empty)
    assert cluster.states() == missing


def test_a_numa_node_has_nothing_of_what_it_reports_none_of():
    report = convert(topology(None, [("0", "-1"), ("2", "1Gi")]), NodeResourceTopology)
    assert read(report).zones == ({"cpu": 0, "memory": 0}, {"cpu": 2000, "memory": 1 << 30})
