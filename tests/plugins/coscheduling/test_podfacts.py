"""The gang of a pod, and the options that it declares, are the same before and after it has a node."""

import pytest

from koordsched.api.core import Pod, PodSpec, PodStatus
from koordsched.api.meta import ObjectMeta, OwnerReference
from koordsched.cluster.state import ClusterState
from koordsched.plugins.coscheduling import options
from koordsched.plugins.coscheduling.args import CoschedulingArgs
from koordsched.plugins.coscheduling.kinds import NETWORK_TOPOLOGY_INDEX, WRITTEN
from koordsched.plugins.coscheduling.options import Membership
from koordsched.plugins.coscheduling.podfacts import KEPT, GangFacts

GANG = "gang.scheduling.koordinator.sh/"
LABEL = "pod-group.scheduling.sigs.k8s.io"
DECLARED = {
    GANG + "name": "g",
    GANG + "min-available": "2",
    GANG + "total-number": "4",
    GANG + "mode": "NonStrict",
    GANG + "waiting-time": "30s",
    GANG + "groups": '["b/y","a/z"]',
    GANG + "match-policy": "only-waiting",
    LABEL + "/match-policy": "waiting-and-running",
    GANG + "network-topology-spec": '{"gatherStrategy":[]}',
}


def wire(name: str, node: str = "", labels: dict[str, str] | None = None, **annotations: str) -> Pod:
    meta = ObjectMeta(name=name, namespace="ns", uid=name, labels=labels or {}, annotations=annotations)
    return Pod(metadata=meta, spec=PodSpec(node_name=node))


@pytest.fixture
def cluster() -> ClusterState:
    return ClusterState()


@pytest.fixture
def facts(cluster: ClusterState) -> GangFacts:
    return cluster.shared(GangFacts)


@pytest.mark.parametrize("node", ["", "node-1"])
@pytest.mark.parametrize(
    "labels, expected",
    [
        ({}, Membership("ns/g", False)),
        ({LABEL: "crd"}, Membership("ns/crd", True)),
        ({LABEL + "/name": "old"}, Membership("ns/old", False)),
    ],
)
def test_the_gang_of_a_pod(cluster, facts, node, labels, expected):
    assert facts.membership(cluster.pods.build(wire("p", node, labels, **DECLARED))) == expected


@pytest.mark.parametrize("node", ["", "node-1"])
def test_the_options_that_a_pod_declares(cluster, facts, node):
    assert set(KEPT) == set(DECLARED)
    pod = cluster.pods.build(wire("p", node, **DECLARED))
    assert facts.annotations(pod) == DECLARED
    found = options.from_pod("ns/g", pod.labels.labels, facts.annotations(pod), CoschedulingArgs())
    assert found is not None
    assert (found.min, found.total, found.waiting_time, found.groups) == (2, 4, 30.0, ("a/z", "b/y"))


def test_members_share_shape_and_facts_and_other_pods_cost_nothing(cluster, facts):
    first, second = (cluster.pods.build(wire(name, "node-1", **DECLARED)) for name in ("p", "q"))
    assert first.facts is second.facts
    other = cluster.pods.build(wire("other", "node-1"))
    assert other.facts == ()
    assert first.shape is other.shape
    assert facts.membership(other) is None
    assert facts.annotations(other) == {}


@pytest.mark.parametrize("node", ["", "node-1"])
@pytest.mark.parametrize("owners", [(), ("a",), ("b", "a")])
@pytest.mark.parametrize("controlled", [False, True])
def test_all_owners_of_a_member_are_known(cluster, facts, node, owners, controlled):
    references = tuple(OwnerReference(name=name, controller=controlled and at == 0) for at, name in enumerate(owners))
    meta = ObjectMeta(name="p", namespace="ns", uid="p", labels={LABEL: "g"}, owner_references=references)
    assert facts.owners(cluster.pods.build(Pod(metadata=meta, spec=PodSpec(node_name=node)))) == owners


@pytest.mark.parametrize("phase, runs", [("Running", True), ("Pending", False), ("", False), ("Succeeded", False)])
def test_whether_a_member_runs_is_known(cluster, facts, phase, runs):
    pod = wire("p", "node-1", {LABEL: "g"})
    pod = Pod(metadata=pod.metadata, spec=pod.spec, status=PodStatus(phase=phase))
    assert facts.runs(cluster.pods.build(pod)) is runs
    other = Pod(metadata=ObjectMeta(name="o", namespace="ns"), spec=pod.spec, status=pod.status)
    assert cluster.pods.build(other).facts == ()


def test_the_topology_selector_is_part_of_the_shape(cluster, facts):
    key = "scheduling.koordinator.sh/network-topology-selector"
    plain, selecting = (cluster.pods.build(wire("p", **annotations)) for annotations in ({}, {key: "a"}))
    assert plain.shape is not selecting.shape
    assert selecting.shape.meta.annotations == {key: "a"}


def test_journals_keep_what_is_read(cluster, facts):
    assert {*KEPT, NETWORK_TOPOLOGY_INDEX, *WRITTEN} <= cluster.read_annotations
