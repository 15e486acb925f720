"""Who may be evicted for a pod of the same quota, and what it costs to find out."""

import pytest

from koordsched.framework.replicas import OwnReplicas
from koordsched.plugins.elasticquota.victims import QuotaVictims
from tests.plugins.elasticquota.objects import node, pod, quota
from tests.plugins.elasticquota.world import World, amounts


class Unseen(dict):
    """Pods that nobody may look through."""

    def _fail(self):
        raise AssertionError("looked through pods that do not yield")

    __iter__ = keys = values = items = _fail


def of(world, *, spares_default_quota=False):
    return QuotaVictims(world.profile.handle, world.books, spares_default_quota=spares_default_quota)


def world_with(*pods):
    world = World(node("n1", cpu=100), node("n2", cpu=100), quota("q", {"cpu": 50}), quota("r", {"cpu": 50}))
    for each in pods:
        world.put(each)
    return world


NEW = pod("new", {"cpu": 1}, "q", priority=9)


@pytest.mark.parametrize(
    ("other", "yields"),
    [
        (pod("p", {"cpu": 2}, "q", on="n1", priority=8), True),
        (pod("p", {"cpu": 2}, "q", on="n1"), True),
        (pod("p", {"cpu": 2}, "q", on="n1", priority=9), False),
        (pod("p", {"cpu": 2}, "q", on="n1", priority=10), False),
        (pod("p", {"cpu": 2}, "q", on="n1", preemptible=False), False),
        (pod("p", {"cpu": 2}, "r", on="n1"), False),
        (pod("p", {"cpu": 2}, "q"), False),
        (pod("p", {"cpu": 2}, "q", on="n1", namespace="kube-system"), False),
    ],
    ids=["less important", "without priority", "as important", "more", "not preemptible", "another quota's", "without "
         "a node", "our own replica"],
)  # fmt: skip
def test_who_yields(other, yields):
    world = world_with(other)
    world.profile.handle.own_replicas = OwnReplicas(world.cluster, "kube-system", "p")
    new, q = world.pod(NEW), world.quota("q")
    row = world.cluster.table.row_of["n1"]
    member = world.books.member(world.pod(other).uid)
    assert of(world).include(member, new, q) is yields
    assert [each.name for each, _ in of(world).by_row(new, q).get(row, [])] == ["p"] * yields
    assert of(world).held_by_row(new, q) == ({row: amounts(cpu=2)} if yields else {})


def test_what_the_victims_of_each_node_hold():
    world = world_with(
        pod("a", {"cpu": 2}, "q", on="n1"), pod("b", {"cpu": 3}, "q", on="n1", priority=5), pod("c", {"cpu": 4}, "q",
        on="n2"), pod("d", {"cpu": 5}, "q", on="n2", priority=9),
    )  # fmt: skip
    rows = world.cluster.table.row_of
    found = of(world).by_row(world.pod(NEW), world.quota("q"))
    assert {row: sorted(each.name for each, _ in held) for row, held in found.items()} == {
        rows["n1"]: ["a", "b"],
        rows["n2"]: ["c"],
    }
    held = of(world).held_by_row(world.pod(NEW), world.quota("q"))
    assert held == {rows["n1"]: amounts(cpu=5), rows["n2"]: amounts(cpu=4)}


def test_no_victims_for_a_pod_that_never_preempts_or_in_the_default_quota_where_that_is_spared():
    world = world_with(pod("mine", {"cpu": 2}, "q", on="n1"), pod("anybody", {"cpu": 2}, on="n1"))
    meek = world.pod(pod("meek", {"cpu": 1}, "q", priority=9, preemptionPolicy="Never"))
    assert of(world).by_row(meek, world.quota("q")) == {}
    plain = world.pod(pod("plain", {"cpu": 1}, priority=9))
    default = world.books.quota_of(plain)
    assert len(of(world).by_row(plain, default)) == 1
    assert of(world, spares_default_quota=True).by_row(plain, default) == {}


@pytest.mark.parametrize("others", [{"priority": 9}, {"preemptible": False}, {"on": None}])
def test_pods_that_do_not_yield_cost_nothing_however_many_they_are(others):
    world = world_with(*(pod(f"p{i}", {"cpu": 2}, "q", **{"on": "n1", **others}) for i in range(4)))
    for group in world.books.groups(world.quota("q")):
        group.members = Unseen(group.members)
    assert of(world).held_by_row(world.pod(NEW), world.quota("q")) == {}
