"""Job preemption for gangs that ask to be gathered, through the whole scheduler (coscheduling spec 3.8, 7)."""

import asyncio
import json

from tests.packaging.test_manifests import MANIFESTS
from tests.plugins.coscheduling.placing import Gangs, configuration, scheduling, settle
from tests.plugins.coscheduling.topology.objects import BLOCK, SPINE, SPINES_AND_BLOCKS, T8, topology
from tests.virtualtime import run
from tests.yamlfiles import document

TOPOLOGY_API = "scheduling.koordinator.sh/v1alpha1"
CONFIG = configuration(enablePreemption=True, awareNetworkTopology=True)
GATES = ("NetworkTopologyManager=true",)
MUST_GATHER = json.dumps({"gatherStrategy": [{"layer": "SpineLayer", "strategy": "MustGather"}]})


class Spines(Gangs):
    """T8 of the specification: two spines of two blocks of two nodes of 16 CPUs."""

    def __init__(self):
        super().__init__(T8, cpu="16")
        self.create(document(MANIFESTS / "crds" / "clusternetworktopologies.yaml"))
        self.create(topology(*SPINES_AND_BLOCKS))
        for name, (spine, block) in T8.items():
            self.patch("Node", name, {"metadata": {"labels": {SPINE: spine, BLOCK: block}}})

    def low(self, **places):
        """Puts pods in that fill a node each: name -> (node, priority)."""
        for name, (node, priority) in places.items():
            self.pod(name.replace("_", "-"), by=None, node=node, cpu="16", priority=priority, finalizers=["x.io/keep"])

    def going(self):
        """The names of pods that are being deleted."""
        pods = self.registry.list(self.resource("Pod"))
        return sorted(pod["metadata"]["name"] for pod in pods if pod["metadata"].get("deletionTimestamp"))

    def gathered(self, *names):
        """Puts a gang in that has to be below one spine, each member of which fills a node."""
        self.group(len(names), network_topology_spec=MUST_GATHER)
        self.pods(*names, cpu="16", priority=100)

    def notes(self, reason):
        """What Events say."""
        return [event["note"] for event in self.events() if event["reason"] == reason]

    def nodes_of(self, *names):
        """Pod -> node."""
        return {name: self.node_of(name) for name in names}


def playing(scenario):
    """Runs `scenario(cluster, running)`; everything is in order afterwards."""

    async def work():
        cluster = Spines()
        async with scheduling(cluster, CONFIG, gates=GATES) as running:
            await asyncio.sleep(15)  # the tree is read
            await scenario(cluster, running)
            await settle(running)

    run(work())


def test_no_pod_is_evicted_while_the_network_is_not_known():
    async def scenario(cluster, running):
        cluster.remove("ClusterNetworkTopology", "default", api_version=TOPOLOGY_API)
        await asyncio.sleep(15)
        cluster.low(**{f"low_{number}": (name, 0) for number, name in enumerate(T8)})
        cluster.gathered("p1", "p2")
        await asyncio.sleep(15)
        assert any("no cluster network topology" in note for note in cluster.notes("FailedScheduling"))
        assert cluster.going() == []

    playing(scenario)


MEMBERS = ("p1", "p2", "p3", "p4")
AS_IN_CASE_15 = {"p1": "node-1", "p2": "node-8", "p3": "node-2", "p4": "node-7"}


def test_coscheduling_case_21_victims_are_those_below_one_spine():
    async def scenario(cluster, running):
        cluster.low(existing_pod_1=("node-1", 0), existing_pod_2=("node-4", 0))
        await settle(running, 1)
        cluster.gathered(*MEMBERS)
        await asyncio.sleep(5)
        assert cluster.going() == ["existing-pod-1"]
        assert {name: cluster.nominated(name) for name in MEMBERS} == AS_IN_CASE_15
        notes = cluster.notes("FailedScheduling")
        assert any("preempt success, alreadyWaitingForBound: 0/4" in note for note in notes), notes
        cluster.finish("existing-pod-1")
        await settle(running, 40)
        assert cluster.bound() == ["existing-pod-2", *MEMBERS]
        assert cluster.nodes_of(*MEMBERS) == AS_IN_CASE_15

    playing(scenario)


def test_without_victims_below_one_spine_that_are_enough_none_is_evicted():
    """Each spine has a pod that is as important as the gang: three nodes can be had, and four are asked for."""

    async def scenario(cluster, running):
        cluster.low(held_1=("node-1", 100), low_1=("node-2", 0), held_2=("node-4", 100), low_2=("node-3", 0))
        cluster.gathered(*MEMBERS)
        await settle(running, 20)
        assert cluster.bound() == ["held-1", "held-2", "low-1", "low-2"]
        assert cluster.going() == []

    playing(scenario)
