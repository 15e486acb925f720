"""What is known of a node follows its reports."""

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
