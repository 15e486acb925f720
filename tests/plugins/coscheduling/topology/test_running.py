"""Gangs that ask to be gathered, on the whole scheduler: objects and labels that are wrong, and then right."""

import asyncio
import json

import pytest

from tests.packaging.test_manifests import MANIFESTS
from tests.plugins.coscheduling.placing import cache_of
from tests.plugins.coscheduling.running import LABEL, GangCluster, configuration, scheduling
from tests.plugins.coscheduling.topology.objects import BLOCK, SPINE, SPINES_AND_BLOCKS, entry, topology
from tests.plugins.dynamicresources.deviceworld import claim, claiming, device_class, slice_of
from tests.plugins.objects import container
from tests.virtualtime import run
from tests.yamlfiles import document

SPEC = json.dumps({"gatherStrategy": [{"layer": "BlockLayer", "strategy": "MustGather"}]})
PLACES = {"n1": "b1", "n2": "b1", "n3": "b2", "n4": "b2"}
API = "scheduling.koordinator.sh/v1alpha1"


class TopologyCluster(GangCluster):
    """With two blocks of two nodes of 2 CPUs. The definition accepts whatever there is in a spec."""

    def __init__(self):
        super().__init__(PLACES, cpu="2")
        crd = document(MANIFESTS / "crds" / "clusternetworktopologies.yaml")
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["properties"]["spec"] = {"x-kubernetes-preserve-unknown-fields": True}
        self.create(crd)

    async def label(self, name, **labels):
        headers = {"content-type": "application/merge-patch+json"}
        labels = {SPINE if key == "spine" else BLOCK: value for key, value in labels.items()}
        path = f"/api/v1/nodes/{name}"
        assert (await self.call("PATCH", path, {"metadata": {"labels": labels}}, headers=headers))[0] == 200

    async def label_all(self):
        for name, block in PLACES.items():
            await self.label(name, spine="s", block=block)

    async def topology(self, spec):
        path = f"/apis/{API}/clusternetworktopologies/default"
        headers = {"content-type": "application/merge-patch+json"}
        assert (await self.call("PATCH", path, {"spec": spec}, headers=headers))[0] == 200

    def job(self, name, count):
        self.group(count, name, network_topology_spec=SPEC)
        for number in range(count):
            self.member(f"{name}-{number}", gang=name)

    def nodes(self, name, count):
        """The nodes of the members."""
        return [self.get("Pod", f"{name}-{at}")["spec"].get("nodeName") for at in range(count)]

    def condition(self, name):
        conditions = self.get("Pod", name)["status"].get("conditions", ())
        return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")

    def said(self, reason):
        """The Events about the ClusterNetworkTopology."""
        return [each["note"] for each in self.events() if each["reason"] == reason]

    def detail(self):
        found = self.get("ClusterNetworkTopology", "default", None, api_version=API)
        return [each["topologyInfo"]["topologyName"] for each in found.get("status", {}).get("detailStatus", ())]


def running(cluster):
    return scheduling(cluster, configuration(awareNetworkTopology=True), gates=("NetworkTopologyManager=true",))


CYCLE = {"networkTopologySpec": [entry("NodeTopologyLayer", "A"), entry("A", "B", "a"), entry("B", "A", "b")]}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (CYCLE, 'topology layer "A" is a parent of itself'),
        ({"networkTopologySpec": "?"}, "spec.networkTopologySpec: Expected `array`, got `str`"),
        ({"networkTopologySpec": []}, 'topology layer "NodeTopologyLayer" not found in spec'),
        ({}, 'topology layer "NodeTopologyLayer" not found in spec'),
    ],
)
def test_a_wrong_object_harms_only_gangs_that_ask_to_be_gathered(spec, text):
    async def main():
        cluster = TopologyCluster()
        await cluster.label_all()
        cluster.create(topology() | {"spec": spec})
        async with running(cluster):
            cluster.job("g", 3)
            cluster.member("alone", labels={})
            await asyncio.sleep(15)
            assert cluster.get("Pod", "alone")["spec"]["nodeName"]
            assert cluster.nodes("g", 3) == [None] * 3
            assert any("no cluster network topology" in cluster.condition(f"g-{at}") for at in range(3))
            assert cluster.said("InvalidNetworkTopology") == [text]
            await cluster.delete("alone")
            await cluster.topology({"networkTopologySpec": list(SPINES_AND_BLOCKS)})
            await asyncio.sleep(15)
            assert sorted(cluster.nodes("g", 3)) in (["n1", "n1", "n2"], ["n3", "n3", "n4"])
            assert cluster.detail() == ["", "s", "b1", "b2"]

    run(main())


def test_labels_that_come_late():
    async def main():
        cluster = TopologyCluster()
        cluster.create(topology(*SPINES_AND_BLOCKS))
        async with running(cluster):
            cluster.job("g", 3)
            await asyncio.sleep(15)
            assert cluster.nodes("g", 3) == [None] * 3
            (text,) = cluster.said("NodesOutsideNetworkTopology")
            assert text == "nodes that are left out, without a label of SpineLayer: n1, n2, n3 and 1 more"
            await cluster.label_all()
            await asyncio.sleep(15)
            assert sorted(cluster.nodes("g", 3)) == ["n1", "n1", "n2"]
            assert cluster.detail() == ["", "s", "b1", "b2"]

    run(main())


def test_the_object_comes_late():
    async def main():
        cluster = TopologyCluster()
        await cluster.label_all()
        async with running(cluster):
            cluster.job("g", 3)
            await asyncio.sleep(15)
            assert cluster.nodes("g", 3) == [None] * 3
            cluster.create(topology(*SPINES_AND_BLOCKS))
            await asyncio.sleep(15)
            assert sorted(cluster.nodes("g", 3)) == ["n1", "n1", "n2"]

    run(main())


def test_an_annotation_that_cannot_be_read_counts_as_none():
    async def main():
        cluster = TopologyCluster()
        async with running(cluster):
            cluster.group(2, "g", network_topology_spec="{")
            cluster.member("g-0", gang="g")
            cluster.member("g-1", gang="g")
            await asyncio.sleep(5)
            assert all(cluster.nodes("g", 2))
            annotation = "annotation gang.scheduling.koordinator.sh/network-topology-spec"
            text = f"gang default/g: {annotation}: unexpected end of JSON input; it is ignored"
            assert cluster.said("InvalidNetworkTopologySpec") == [text]

    run(main())


def test_layers_that_there_are_not_are_said():
    async def main():
        cluster = TopologyCluster()
        await cluster.label_all()
        cluster.create(topology(*SPINES_AND_BLOCKS))
        async with running(cluster):
            cluster.group(2, "g", network_topology_spec=SPEC.replace("BlockLayer", "RackLayer"))
            cluster.member("g-0", gang="g")
            cluster.member("g-1", gang="g")
            await asyncio.sleep(15)
            assert cluster.nodes("g", 2) == [None] * 2
            annotation = "annotation gang.scheduling.koordinator.sh/network-topology-spec"
            text = f'gang default/g: {annotation}: no layer of the ClusterNetworkTopology: "RackLayer"'
            assert cluster.said("InvalidNetworkTopologySpec") == [text]

    run(main())


def test_room_that_comes_late():
    async def main():
        cluster = TopologyCluster()
        await cluster.label_all()
        cluster.create(topology(*SPINES_AND_BLOCKS))
        for name in ("n1", "n3"):
            cluster.member(f"full-{name}", node=name, labels={})
        async with running(cluster):
            cluster.job("g", 4)
            await asyncio.sleep(15)
            assert cluster.nodes("g", 4) == [None] * 4
            assert any(
                "BlockLayer/b1: 3;topology topologyNode BlockLayer/b2: 3" in cluster.condition(f"g-{at}")
                for at in range(4)
            )
            await cluster.delete("full-n3")
            await asyncio.sleep(15)
            assert sorted(cluster.nodes("g", 4)) == ["n3", "n3", "n4", "n4"]

    run(main())


def test_members_are_planned_also_if_the_first_is_left_out():
    """Another plugin keeps it out by its turn: its claim is gone. All pending ones are planned, so they wait for it."""

    async def main():
        cluster = TopologyCluster()
        await cluster.label_all()
        cluster.create(topology(*SPINES_AND_BLOCKS))
        cluster.group(2, "g", network_topology_spec=SPEC)
        cluster.insert(device_class())
        for at in range(3):
            cluster.insert(claim(f"c{at}"))
            cluster.insert(claiming(f"g-{at}", f"c{at}", labels={LABEL: "g"}, containers=[container(cpu="1")]))
        async with running(cluster) as there:
            await asyncio.sleep(15)
            [group] = cache_of(there.scheduler).groups()
            lost = f"c{group.representative_key[-1]}"
            cluster.insert(slice_of(None, "d0", "d1", "d2", pool="p", allNodes=True))
            cluster.registry.delete(cluster.resource("ResourceClaim", "resource.k8s.io/v1"), "default", lost)
            await asyncio.sleep(15)
            assert cluster.nodes("g", 3) == [None] * 3
            cluster.insert(claim(lost))
            await asyncio.sleep(15)
            assert None not in cluster.nodes("g", 3)

    run(main())
