"""The status of the ClusterNetworkTopology, and what is said in Events about it."""

import asyncio
import json
from types import SimpleNamespace

import msgspec
import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.config.feature_gates import NETWORK_TOPOLOGY_MANAGER
from koordsched.fakecluster.cluster import new_cluster
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.framework.handle import WriteFailed
from koordsched.plugins.coscheduling.topology import controller
from koordsched.plugins.coscheduling.topology.controller import TopologyController
from koordsched.plugins.coscheduling.topology.kinds import (
    CLUSTER_NETWORK_TOPOLOGIES,
    NODE_LAYER,
    ClusterNetworkTopology,
    ClusterNetworkTopologyStatus,
)
from koordsched.plugins.coscheduling.topology.service import network_topology
from koordsched.plugins.coscheduling.topology.status import detail_status
from koordsched.plugins.coscheduling.topology.tree import build
from tests.packaging.test_manifests import MANIFESTS
from tests.parity.koord import GOLDEN
from tests.plugins.coscheduling.topology.objects import (
    SPINE,
    SPINES_AND_BLOCKS,
    T8,
    cluster_of,
    entry,
    labelled,
    layers,
    topology,
    tree_of,
)
from tests.yamlfiles import document

RECORD = GOLDEN / "gang-net-status.json"


def test_coscheduling_case_27_the_status_of_the_tree():
    _, tree = tree_of(T8)
    details = detail_status(tree)
    assert [each["topologyInfo"]["topologyName"] for each in details] == ["", "s1", "b1", "b2", "s2", "b3", "b4"]
    assert details[0] == {
        "topologyInfo": {"topologyLayer": "ClusterTopologyLayer", "topologyName": ""},
        "childTopologyLayer": "SpineLayer",
        "childTopologyNames": ["s1", "s2"],
        "nodeNum": 8,
    }
    assert details[2] == {
        "topologyInfo": {"topologyLayer": "BlockLayer", "topologyName": "b1"},
        "parentTopologyInfo": {"topologyLayer": "SpineLayer", "topologyName": "s1"},
        "childTopologyLayer": NODE_LAYER,
        "nodeNum": 2,
    }


def test_coscheduling_case_27_the_recorded_status():
    record = json.loads(RECORD.read_text())
    (written,) = [each for each in record["objects"] if each["kind"] == "ClusterNetworkTopology"]
    state = cluster_of(each for each in record["objects"] if each["kind"] == "Node")
    tree = build(layers(*written["spec"]["networkTopologySpec"]), state.table)
    expected = record["expected"]["objects"]["ClusterNetworkTopology/default"]["status"]["detailStatus"]
    assert detail_status(tree) == expected


def test_a_tree_without_nodes():
    _, tree = tree_of({"n1": (None, "b")})
    root = {"topologyLayer": "ClusterTopologyLayer", "topologyName": ""}
    assert detail_status(tree) == [{"topologyInfo": root, "nodeNum": 0}]


def test_nodes_right_below_the_root():
    tree = build(layers(entry(NODE_LAYER)), cluster_of([labelled("n1", ("s", "b"))]).table)
    root = {"topologyLayer": "ClusterTopologyLayer", "topologyName": ""}
    assert detail_status(tree) == [{"topologyInfo": root, "childTopologyLayer": NODE_LAYER, "nodeNum": 1}]


# --- the controller -------------------------------------------------------------------------------------


class Written:
    """A cluster, its controller, and what that writes: the API server takes it over, unless it `refuses`."""

    def __init__(self, *entries, features=(NETWORK_TOPOLOGY_MANAGER,)):
        self.state = cluster_of([])
        self.topology = network_topology(self.state, features)
        self.patches, self.events, self.refuses, self.version = [], [], False, 0
        handle = SimpleNamespace(cluster=self.state, writes=self, reporter=self)
        self.controller = TopologyController(self.topology, handle)
        if entries:
            self.object(*entries)

    def object(self, *entries, status=None, uid="u"):
        self.version += 1
        thing = convert(topology(*entries), ClusterNetworkTopology)
        meta = msgspec.structs.replace(thing.metadata, uid=uid, resource_version=str(self.version))
        thing = msgspec.structs.replace(thing, metadata=meta, status=ClusterNetworkTopologyStatus(status))
        self.state.objects.of(CLUSTER_NETWORK_TOPOLOGIES).upsert(thing)

    def node(self, name, place):
        self.state.upsert_node(convert(labelled(name, place), core.Node))

    async def merge(self, kind, meta, changes, *, subresource=""):
        assert (kind, meta.name, subresource) == (CLUSTER_NETWORK_TOPOLOGIES, "default", "status")
        if self.refuses:
            raise WriteFailed("not now")
        assert changes.keys() == {"status"}
        self.patches.append(changes["status"]["detailStatus"])
        spec = self.topology.object.spec.network_topology_spec
        self.object(*spec, status=changes["status"]["detailStatus"], uid=meta.uid)

    def event(self, kind, meta, event_type, reason, message, *, action="", once=False):
        assert (kind, meta.name, event_type, once) == (CLUSTER_NETWORK_TOPOLOGIES, "default", "Warning", True)
        self.events.append((reason, message))

    def look(self):
        """(how many writes, the events) of one look."""
        before = len(self.patches), len(self.events)
        asyncio.run(self.controller.look())
        return len(self.patches) - before[0], self.events[before[1] :]


def test_the_status_is_written_when_it_changes():
    made = Written(*SPINES_AND_BLOCKS)
    made.node("n1", ("s", "b"))
    assert made.look() == (1, [])
    assert made.patches[-1] == detail_status(made.topology.tree())
    assert made.look() == (0, [])
    made.node("n2", ("s", "b"))
    assert made.look() == (1, [])
    made.node("n2", ("s", "b"))
    assert made.look() == (0, [])


def test_the_tree_is_looked_at_after_changes_alone(monkeypatch):
    made = Written(*SPINES_AND_BLOCKS)
    made.look()
    made.look()
    monkeypatch.setattr(controller, "detail_status", lambda tree: pytest.fail("nothing has changed"))
    made.look()


def test_a_status_that_is_right_is_not_written():
    """After a change of the leader, or a restart."""
    made = Written(*SPINES_AND_BLOCKS)
    made.node("n1", ("s", "b"))
    made.object(*SPINES_AND_BLOCKS, status=detail_status(made.topology.tree()))
    assert made.look() == (0, [])


def test_a_status_that_others_wrote_is_put_right():
    made = Written(*SPINES_AND_BLOCKS)
    made.look()
    made.object(*SPINES_AND_BLOCKS, status="nonsense")
    assert made.look() == (1, [])


def test_what_could_not_be_written_is_written_later():
    made = Written(*SPINES_AND_BLOCKS)
    made.refuses = True
    assert made.look() == (0, [])
    made.refuses = False
    assert made.look() == (1, [])


def test_without_an_object_nothing_is_written():
    made = Written()
    made.node("n1", ("s", "b"))
    assert made.look() == (0, [])


def test_what_is_wrong_with_the_object_is_said_once():
    made = Written(*SPINES_AND_BLOCKS)
    made.look()
    made.object(entry("SpineLayer", "", SPINE), status=made.patches[-1])
    text = 'topology layer "NodeTopologyLayer" not found in spec'
    assert made.look() == (0, [("InvalidNetworkTopology", text)])
    assert made.look() == (0, [])
    made.object(*SPINES_AND_BLOCKS, status=made.patches[-1])
    assert made.look() == (0, [])
    made.object(entry("SpineLayer", "", SPINE))
    assert made.look() == (0, [("InvalidNetworkTopology", text)])


def test_what_is_hardly_meant_is_said():
    made = Written(entry("A"), entry(NODE_LAYER, "A"))
    assert made.look()[1] == [("SuspiciousNetworkTopology", 'topology layer "A" has no labelKey')]
    assert made.look()[1] == []


def test_nodes_that_are_left_out_are_said():
    made = Written(*SPINES_AND_BLOCKS)
    for number in range(3):
        made.node(f"n{number}", (None, "b"))
    text = "nodes that are left out, without a label of SpineLayer: n0, n1, n2"
    assert made.look()[1] == [("NodesOutsideNetworkTopology", text)]


def test_of_many_nodes_that_are_left_out_three_are_named():
    made = Written(*SPINES_AND_BLOCKS)
    for number in range(5):
        made.node(f"n{number}", (None, "b"))
    text = "nodes that are left out, without a label of SpineLayer: n0, n1, n2 and 2 more"
    assert made.look()[1] == [("NodesOutsideNetworkTopology", text)]
    made.node("n5", (None, "b"))
    assert made.look()[1] == []


def test_a_status_that_no_server_would_take_is_not_written(monkeypatch):
    monkeypatch.setattr(controller, "LARGEST_STATUS", 200)
    made = Written(*SPINES_AND_BLOCKS)
    made.node("n1", ("s", "b"))
    writes, ((reason, text),) = made.look()
    assert (writes, reason) == (0, "NetworkTopologyStatusTooLarge")
    assert text.startswith("3 domains take ")
    assert made.look() == (0, [])


def test_without_the_flag_the_controller_ends():
    made = Written(features=())
    asyncio.run(asyncio.wait_for(made.controller.run(), 1))
    assert (made.patches, made.events) == ([], [])


# --- the definition -------------------------------------------------------------------------------------


@pytest.fixture
def registry():
    made = new_cluster()
    crd = document(MANIFESTS / "crds" / "clusternetworktopologies.yaml")
    made.create(made.resource_for_kind(crd["apiVersion"], crd["kind"]), None, crd)
    return made


def created(registry, thing):
    resource = registry.resource_for_kind(thing["apiVersion"], thing["kind"])
    return registry.create(resource, None, json.loads(json.dumps(thing)))


def test_recorded_objects_are_kept(registry):
    record = json.loads(RECORD.read_text())
    (written,) = [each for each in record["objects"] if each["kind"] == "ClusterNetworkTopology"]
    assert created(registry, written)["spec"] == written["spec"]


def test_the_status_that_is_written_is_accepted(registry):
    made = created(registry, topology(*SPINES_AND_BLOCKS))
    resource = registry.resource_for_kind(made["apiVersion"], made["kind"])
    status = {"detailStatus": detail_status(tree_of(T8)[1])}
    stored = registry.update(resource, made | {"status": status}, "status")
    assert stored["status"] == status


@pytest.mark.parametrize(
    "spec", [{}, {"networkTopologySpec": [{}]}, {"networkTopologySpec": [{"topologyLayer": "A", "labelKey": "a"}]}]
)
def test_what_is_refused(registry, spec):
    with pytest.raises(ApiStatusError):
        created(registry, topology() | {"spec": spec})
