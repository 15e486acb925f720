"""What is known of a node follows its reports."""

import numpy as np

from koordsched.api.decoding import convert
from koordsched.plugins.nodenumaresource import alignment
from koordsched.plugins.nodenumaresource.kinds import NodeResourceTopology
from koordsched.plugins.nodenumaresource.topologyoptions import read
from tests.plugins.nodenumaresource.cluster import Cluster
from tests.plugins.nodenumaresource.machines import node, pod, topology
from tests.plugins.nodenumaresource.world import World, named

U = "Unschedulable"


def test_a_report_that_says_nothing_is_no_missing_report():
    """Where more CPU is offered than there is, a report without CPUs keeps pods away; no report does not."""
    amplified, empty = node(ratio=1.5), topology(None, policies=())
    cluster = Cluster(amplified)
    missing = cluster.states()
    cluster.put(empty)
    assert cluster.states() == Cluster(empty, amplified).states() != missing
    cluster.remove(empty)
    assert cluster.states() == missing


def test_numa_nodes_are_chosen_where_cpus_are_not_known():
    """Of a pod that gets none of its own."""
    world = World(node(numa_topology_policy="Restricted"), topology(None, [("8", "64Gi")] * 2))
    masks = world.plugin.affinities(world.pod(pod()).shape, world.table, np.array([world.row()]))
    assert masks.tolist() == [0b1]


def test_texts_about_numa_nodes_beyond_those_that_are_kept_name_none(monkeypatch):
    monkeypatch.setattr(alignment, "_TEXTS_KEPT", 1)
    world = World(
        node(numa_topology_policy="SingleNUMANode"),
        topology(None, [("8", "64Gi")] * 2),
        named(node(numa_topology_policy="SingleNUMANode"), "m2"),
        named(topology(None, [("8", "64Gi")] * 3), "m2"),
    )
    first = "Unaligned NUMA Hint cause cpu prefer [11] among [11],memory prefer [11] among [11]"
    for _ in range(2):
        said = world.verdicts(pod(cpu="10"))
        assert said == {"m1": (U, first), "m2": (U, "Unaligned NUMA Hint")}


def test_a_numa_node_has_nothing_of_what_it_reports_none_of():
    report = convert(topology(None, [("0", "-1"), ("2", "1Gi")]), NodeResourceTopology)
    assert read(report).zones == ({"cpu": 0, "memory": 0}, {"cpu": 2000, "memory": 1 << 30})
