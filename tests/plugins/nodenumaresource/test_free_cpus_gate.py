"""With the gate NUMAResourceFilterByFreeCPUs no pod is sent to a node with too few CPUs, whatever its policy."""

import dataclasses

from koordsched.plugins.nodenumaresource.plugin import FILTER_BY_FREE_CPUS, NodeNUMAResource
from tests.plugins.harness import Bench
from tests.plugins.nodenumaresource.machines import detail, holder, node, pod, topology

FULL = ("Unschedulable", "not enough cpus available to satisfy request")


def verdict(wanted, *, gate, policy=""):
    labels = {"numa_topology_policy": policy} if policy else {}
    bench = Bench(node(**labels), topology(detail(2, 1, 4), zones=[("8", "64Gi"), ("8", "64Gi")]))
    bench.handle = dataclasses.replace(bench.handle, features=frozenset({FILTER_BY_FREE_CPUS} if gate else ()))
    plugin = bench.plugin(NodeNUMAResource.name)
    bench.add({**holder("h", "0-12"), "metadata": {**holder("h", "0-12")["metadata"], "uid": "h"}})
    return bench.filter(plugin, wanted)["m1"]


def test_without_the_gate_reserve_refuses_as_upstream_does():
    assert verdict(pod(qos="LSR", cpu="4"), gate=False) is None


def test_with_the_gate_filter_refuses():
    assert verdict(pod(qos="LSR", cpu="4"), gate=True) == FULL
    assert verdict(pod(qos="LSR", cpu="4"), gate=True, policy="BestEffort") == FULL


def test_enough_cpus_are_enough_even_if_no_core_is_whole():
    assert verdict(pod(qos="LSR", cpu="3"), gate=True) is None


def test_pods_without_cpus_of_their_own_are_not_counted():
    assert verdict(pod(qos="LS", cpu="4"), gate=True) is None
