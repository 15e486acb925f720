import pytest

from koordsched.cluster import events as ev
from koordsched.cluster.events import ActionType as A
from koordsched.cluster.events import ClusterEvent, EventResource

QUOTA = EventResource("elasticquotas.v1alpha1.scheduling.sigs.k8s.io")


def test_bits_are_in_the_order_of_the_spec() -> None:
    assert [(int(bit), bit.text) for bit in A] == [
        (1, "Add"),
        (2, "Delete"),
        (4, "UpdateNodeAllocatable"),
        (8, "UpdateNodeLabel"),
        (16, "UpdateNodeTaint"),
        (32, "UpdateNodeCondition"),
        (64, "UpdateNodeAnnotation"),
        (128, "UpdateNodeDeclaredFeature"),
        (256, "UpdatePodLabel"),
        (512, "UpdatePodScaleDown"),
        (1024, "UpdatePodToleration"),
        (2048, "UpdatePodSchedulingGatesEliminated"),
        (4096, "UpdatePodGeneratedResourceClaim"),
    ]
    assert int(A.UPDATE) == 8188
    assert int(A.ALL) == 8191


@pytest.mark.parametrize(
    ("event", "label"),
    [
        (ClusterEvent(ev.NODE, A.UPDATE_NODE_TAINT), "NodeUpdateNodeTaint"),
        (ClusterEvent(ev.NODE, A.UPDATE_NODE_CONDITION), "NodeUpdateNodeCondition"),
        (ev.ASSIGNED_POD_DELETE, "AssignedPodDelete"),
        (ev.ASSIGNED_POD_ADD, "AssignedPodAdd"),
        (ev.UNSCHEDULABLE_POD_ADD, "UnschedulablePodAdd"),
        (ev.UNSCHEDULABLE_POD_UPDATE, "UnschedulablePodUpdate"),
        (ClusterEvent(ev.CSI_NODE, A.ADD), "storage.k8s.io/CSINodeAdd"),
        (ClusterEvent(QUOTA, A.UPDATE), "elasticquotas.v1alpha1.scheduling.sigs.k8s.ioUpdate"),
        (ClusterEvent(ev.POD, A.ALL), "PodAll"),
        (ClusterEvent(ev.NODE, A.ADD | A.UPDATE_NODE_LABEL), "NodeAdd|UpdateNodeLabel"),
        (ev.FORCE_ACTIVATE, "ForceActivate"),
        (ev.UNSCHEDULABLE_TIMEOUT, "UnschedulableTimeout"),
    ],
)
def test_label(event: ClusterEvent, label: str) -> None:
    assert event.label == label


def test_equal_events_are_one_dictionary_key() -> None:
    assert {ClusterEvent(ev.NODE, A.ADD): 1}[ev.NODE_ADD] == 1
    assert ev.FORCE_ACTIVATE != ev.UNSCHEDULABLE_TIMEOUT


@pytest.mark.parametrize(
    ("registered", "incoming", "matches"),
    [
        # Resources: the same one; Pod covers both kinds of pod; nothing else covers anything else.
        ((ev.NODE, A.ADD), (ev.NODE, A.ADD), True),
        ((ev.NODE, A.ADD), (ev.POD, A.ADD), False),
        ((ev.POD, A.DELETE), (ev.ASSIGNED_POD, A.DELETE), True),
        ((ev.POD, A.DELETE), (ev.UNSCHEDULABLE_POD, A.DELETE), True),
        ((ev.ASSIGNED_POD, A.DELETE), (ev.POD, A.DELETE), False),
        ((QUOTA, A.ALL), (QUOTA, A.UPDATE), True),
        ((QUOTA, A.ALL), (ev.NODE, A.ADD), False),
        # Actions intersect.
        ((ev.NODE, A.ADD | A.UPDATE_NODE_TAINT), (ev.NODE, A.UPDATE_NODE_TAINT), True),
        ((ev.NODE, A.ADD | A.UPDATE_NODE_TAINT), (ev.NODE, A.DELETE), False),
        ((ev.NODE, A.UPDATE), (ev.NODE, A.UPDATE_NODE_LABEL), True),
        ((ev.NODE, A.UPDATE), (ev.NODE, A.ADD), False),
        # A generic update is not greater than the registration, as an integer: only one with every update bit.
        ((ev.POD, A.UPDATE), (ev.ASSIGNED_POD, A.UPDATE), True),
        ((ev.POD, A.ALL), (ev.ASSIGNED_POD, A.UPDATE), True),
        ((ev.POD, A.ADD | A.UPDATE), (ev.ASSIGNED_POD, A.UPDATE), True),
        ((ev.POD, A.UPDATE_POD_LABEL), (ev.ASSIGNED_POD, A.UPDATE), False),
        ((ev.POD, A.UPDATE_POD_GENERATED_RESOURCE_CLAIM), (ev.ASSIGNED_POD, A.UPDATE), False),
        ((ev.POD, A.ALL & ~A.UPDATE_NODE_ALLOCATABLE), (ev.ASSIGNED_POD, A.UPDATE), False),
        # A wildcard registration takes all; an incoming wildcard is a forced move that no registration asked for.
        ((ev.WILDCARD, A.ALL), (ev.NODE, A.ADD), True),
        ((ev.NODE, A.ALL), (ev.WILDCARD, A.ALL), False),
        ((ev.POD, A.ALL), (ev.WILDCARD, A.ALL), False),
    ],
)
def test_matching(registered: tuple[EventResource, A], incoming: tuple[EventResource, A], matches: bool) -> None:
    assert ClusterEvent(*registered).matches(ClusterEvent(*incoming)) is matches
