"""The judge of who waits although there is a place, or could be one, goes by the rules for promised nodes."""

import pytest

from tests.plugins.objects import container, node, pod
from tests.reference.evaluation import evaluate
from tests.reference.profile import Profile
from tests.reference.world import World
from tests.simulation.claimreckoning import with_claims
from tests.simulation.configuration import CLAIMS
from tests.simulation.reckoning import Reckoning

MAY_PREEMPT = "default/p waits although it may preempt on alder"
NEVER = {"preemptionPolicy": "Never"}


class _Server:
    def __init__(self, things):
        self._things = things

    def objects(self, kind):
        return [thing for thing in self._things if thing["kind"] == kind]


def _holder(priority, **spec):
    """A pod that was promised the node before a taint came that it does not tolerate."""
    thing = pod("holder", container(cpu="2"), priority=priority, **spec)
    thing["status"]["nominatedNodeName"] = "alder"
    return thing


@pytest.mark.parametrize(
    ("cpu", "holder", "expected"),
    [
        (4, [], [MAY_PREEMPT]),
        (4, [_holder(100, **NEVER)], []),
        (4, [_holder(10, **NEVER)], []),
        (4, [_holder(9, **NEVER)], [MAY_PREEMPT]),
        (4, [_holder(100)], [MAY_PREEMPT]),
        (6, [_holder(100, **NEVER)], [MAY_PREEMPT]),
    ],
    ids=[
        "nothing promised",
        "promised to a pod of higher priority that never preempts",
        "of equal priority",
        "of lower priority",
        "promised to a pod whose next attempt ends the promise",
        "room for both",
    ],
)
def test_preemption_leaves_the_room_of_lasting_nominations(cpu, holder, expected):
    """`cpu` of the node, on which one pod may have to go and another one may not."""
    things = [
        node("alder", cpu=str(cpu), taints=[("spot",)]),
        pod("low", container(cpu="2"), on="alder"),
        pod("high", container(cpu="1"), on="alder", priority=1000),
        pod("p", container(cpu="3"), priority=10, tolerations=[{"key": "spot", "operator": "Exists"}]),
        *holder,
    ]
    assert Reckoning(_Server(things), broken=set()).unplaced() == expected


GONE = {"deletionTimestamp": "2030-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("holder", "meta", "expected"),
    [
        (_holder(100), {}, ["default/holder still waits for alder, which no pod leaves"]),
        (_holder(100), GONE, []),
        (_holder(100, **NEVER), {}, []),
        (_holder(100, nodeName="alder"), {}, []),
    ],
    ids=["nothing leaves", "a pod leaves", "never preempts", "bound"],
)
def test_a_pod_that_may_preempt_waits_for_a_node_only_while_somebody_leaves_it(holder, meta, expected):
    """`meta` of the pod on the node."""
    other = pod("other", on="alder")
    other["metadata"] |= meta
    assert Reckoning(_Server([node("alder"), other, holder]), broken=set()).unredeemed() == expected


class _Claims:
    """Stands for the users of claims."""

    def __init__(self, *claims):
        self._claims = claims

    def objects(self):
        return self._claims


def test_a_pod_keeps_a_node_while_a_claim_of_it_is_not_there():
    """No attempt takes the promise back."""
    holder = _holder(100, resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    reckoning = Reckoning(_Server([node("alder"), holder]), broken=set())
    reckoning.claims = _Claims()
    assert reckoning.unredeemed() == []
    there = {"kind": "ResourceClaim", "metadata": {"namespace": "default", "name": "gpu", "uid": "1"}}
    reckoning.claims = _Claims(there)
    assert reckoning.unredeemed() == ["default/holder still waits for alder, which no pod leaves"]


class _Gangs:
    """Stands for the reckoning of gangs, in which these pods are placed together."""

    def __init__(self, *together):
        self._together = together

    def is_kept_out(self, pod, waiting):
        return False

    def companions(self, pod):
        return self._together if pod in self._together else [pod]


@pytest.mark.parametrize(
    ("together", "leaves", "expected"),
    [
        (True, "birch", []),
        (True, "cedar", ["alder", "birch"]),
        (False, "birch", ["alder"]),
    ],
    ids=["a pod leaves for another member", "a pod leaves for none", "pods that go alone"],
)
def test_members_of_a_gang_wait_together_for_what_leaves(together, leaves, expected):
    """As the scheduler, which takes back the promises of all members or of none."""
    members = [pod(name, container(cpu="2"), priority=10) for name in ("a", "b")]
    for member, name in zip(members, ("alder", "birch"), strict=True):
        member["status"]["nominatedNodeName"] = name
    other = pod("other", on=leaves)
    other["metadata"] |= GONE
    reckoning = Reckoning(_Server([*map(node, ("alder", "birch", "cedar")), other, *members]), broken=set())
    reckoning.gangs = _Gangs(*members) if together else None
    texts = {"alder": "default/a still waits for alder", "birch": "default/b still waits for birch"}
    assert reckoning.unredeemed() == [f"{texts[name]}, which no pod leaves" for name in expected]


def test_where_a_pod_with_claims_fits_is_said_for_several_nodes():
    """In place of the plugin of the reference, which also scores."""
    world = World([node("alder", cpu="4"), node("birch", cpu="4")])
    profile = with_claims(Profile({}))
    assert [chain.count(CLAIMS) for chain in profile.points.values()] == [
        int(point in ("preFilter", "filter")) for point in profile.points
    ]
    assert evaluate(pod("p", container(cpu="1")), world, profile).feasible == ["alder", "birch"]
