"""Pods that are in the way of CPUs and NUMA nodes are preempted."""

from tests.plugins.nodenumaresource.cluster import Cluster
from tests.plugins.nodenumaresource.machines import detail, holder, node, pod, topology


def test_a_pod_that_shares_no_numa_node_preempts_the_one_that_uses_several():
    """Who uses which NUMA nodes is worked out anew without the victims."""
    cluster = Cluster(node("8", "16Gi", numa_topology_policy="SingleNUMANode"))
    cluster.put(topology(detail(1, 2, 2), zones=[("4", "8Gi"), ("4", "8Gi")]))
    low = holder("low", "0,4", {0: ("1", "1Gi"), 1: ("1", "1Gi")}, cpu="2", memory="2Gi")
    low["spec"]["priority"] = 0
    cluster.put(low | {"metadata": {**low["metadata"], "uid": "low"}})
    wanted = pod("p", "2", "1Gi", "LSR", numa={"numaTopologyPolicy": "SingleNUMANode"})
    cluster.put(wanted | {"metadata": {**wanted["metadata"], "uid": "p"}})
    explanation = cluster.explain(wanted)
    assert "Unaligned NUMA Hint" in explanation.message
    assert (explanation.nominated_node, explanation.victims) == ("m1", ["default/low"])


def test_cpus_of_victims_count_as_free_where_more_are_offered_than_there_are():
    """Upstream takes off the request of a victim, and goes on counting its CPUs as twice what they are."""
    cluster = Cluster(node("64", "64Gi", ratio=2))
    cluster.put(topology(detail(1, 2, 8), zones=[("16", "32Gi"), ("16", "32Gi")]))
    low = holder("low", "0-15", cpu="16", memory="1Gi")
    low["spec"]["priority"] = 0
    stays = pod("stays", "16", "1Gi", "LS")
    stays["spec"]["nodeName"] = "m1"
    wanted = pod("p", "40", "1Gi", "LS")
    for thing in (low, stays, wanted):
        thing["metadata"]["uid"] = thing["metadata"]["name"]
        cluster.put(thing)
    explanation = cluster.explain(wanted)
    assert (explanation.nominated_node, explanation.victims) == ("m1", ["default/low"])
