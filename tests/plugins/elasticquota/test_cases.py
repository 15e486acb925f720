"""The acceptance cases of the elastic quota spec (section 7) that concern what quotas compute, admit and preempt.

Amounts of `x` are whole units; the spec's "cores" are units of it where shares are rounded to whole ones.
"""

import re
from pathlib import Path

import pytest

from koordsched.api.decoding import convert
from koordsched.api.policy import PodDisruptionBudget
from koordsched.cluster.builtinkinds import POD_DISRUPTION_BUDGETS
from koordsched.cluster.events import POD
from koordsched.plugins.elasticquota.arithmetic.runtime import Stake, redistribute, scale
from koordsched.plugins.elasticquota.room import ROOM, Room
from koordsched.plugins.shared.preemption.budgets import Budgets
from koordsched.queue.hints import QueueingHint, Scope
from tests.plugins.elasticquota.objects import node, pod, quota
from tests.plugins.elasticquota.world import World, amounts
from tests.plugins.states import carry_over

DEFAULT = "koordinator-default-quota"
GUARANTEES = ("ElasticQuotaGuaranteeUsage",)


def demand(world, **requests):
    """Pending pods that make quotas request so much of `x` in all; `_` stands for `-` in names."""
    for name, amount in requests.items():
        ask(world, name.replace("_", "-"), x=amount)


def ask(world, name, **request):
    """One pending pod makes the quota request this."""
    world.put(pod(f"demand-{name}", request, name))


def runtimes(world, *names, resource="x"):
    """The runtimes in one resource, as texts; "0" where there is none."""
    return " ".join(text or "0" for text in world.runtime(*names, resource=resource))


# --- runtimes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("weight", "expected"), [(80, "5 20 35 40"), (0, "5 20 40 15")])
def test_elasticquota_case_01_worked_example_1(weight, expected):
    world = World(node("n", x=100))
    for name, w, least in (("a", 40, 10), ("b", 60, 15), ("c", 50, 20), ("d", weight, 15)):
        world.put(quota(name, {"x": 1000}, {"x": least}, weight={"x": w, "other": 1}))
    demand(world, a=5, b=20, c=40, d=70)
    assert runtimes(world, "a", "b", "c", "d") == expected


def test_elasticquota_case_02_one_unit_for_two():
    world = World(node("n", x=1))
    for name in ("a", "b"):
        world.put(quota(name, {"x": 100}, {"x": 0}, weight={"x": 1}))
    demand(world, a=10, b=10)
    assert runtimes(world, "a", "b") == "1 0"


def test_elasticquota_case_03_borrowers_in_the_order_of_their_names():
    world = World(node("n", gpu=81))
    world.put(quota("donor", {"nvidia.com/gpu": 100}, {"nvidia.com/gpu": 3}, weight={"nvidia.com/gpu": 1}))
    borrowers = [f"borrower-{i:02}" for i in range(10)]
    for i, name in enumerate(borrowers):
        least = 8 if i < 8 else 7
        world.put(quota(name, {"nvidia.com/gpu": 100}, {"nvidia.com/gpu": least}, weight={"nvidia.com/gpu": 1}))
        world.put(pod(f"p-{name}", {"nvidia.com/gpu": 100}, name))
    assert runtimes(world, "donor", *borrowers, resource="nvidia.com/gpu") == "0 9 9 9 8 8 8 8 8 7 7"


def test_elasticquota_case_04_products_beyond_64_bits():
    stakes = [Stake(weight, 1 << 60, 0, True) for weight in (171798691840, 107374182400, 3)]
    assert redistribute(3221225473, stakes) == [1982292599, 1238932874, 0]


def test_elasticquota_case_05_worked_example_2():
    world = World(node("n", cpu=64, memory="256Gi", gpu=8))
    for name, most, least, request in (
        ("t1", (64, "256Gi", 8), (16, "64Gi", 2), (48, "64Gi", 6)),
        ("t2", (32, "128Gi", 8), (16, "64Gi", 2), (8, "200Gi", 5)),
        ("t3", (64, "256Gi", 8), (8, "32Gi", 1), (64, "16Gi", 4)),
    ):
        keys = ("cpu", "memory", "nvidia.com/gpu")
        world.put(quota(name, dict(zip(keys, most, strict=True)), dict(zip(keys, least, strict=True))))
        world.put(pod(f"p-{name}", dict(zip(keys, request, strict=True)), name))
    names = ("t1", "t2", "t3")
    assert runtimes(world, *names, resource="cpu") == "32 8 24"
    assert runtimes(world, *names, resource="memory") == "64Gi 128Gi 16Gi"
    assert runtimes(world, *names, resource="nvidia.com/gpu") == "3 3 2"


def departments(total):
    """Worked example 3: two departments of two teams."""
    world = World(node("n", cpu=total))
    for name, least, most, parent in (
        ("dev", 30, 80, ""),
        ("dev-a", 10, 50, "dev"),
        ("dev-b", 20, 60, "dev"),
        ("prod", 60, 100, ""),
        ("prod-a", 40, 100, "prod"),
        ("prod-b", 20, 40, "prod"),
    ):
        marks = {} if parent else {"is_parent": "true"}
        world.put(quota(name, {"cpu": most}, {"cpu": least}, parent=parent, **marks))
    ask(world, "dev-a", cpu=70)
    ask(world, "dev-b", cpu=15)
    ask(world, "prod-a", cpu=20)
    return world


DEPARTMENTS = ("dev", "prod", "dev-a", "dev-b", "prod-a", "prod-b")


def test_elasticquota_case_05_worked_example_3():
    world = departments(100)
    assert world.shown("dev", "request") == {"cpu": "65"}
    assert runtimes(world, *DEPARTMENTS, resource="cpu") == "65 20 50 15 20 0"
    assert [world.shown(name, "scaled_min")["cpu"] for name in ("prod-a", "prod-b")] == ["13333m", "6666m"]
    ask(world, "prod-b", cpu=50)
    ask(world, "prod-a", cpu=55)
    assert world.shown("prod", "request") == {"cpu": "95"}
    assert runtimes(world, *DEPARTMENTS, resource="cpu") == "34444m 65556m 19444m 15 43969m 21587m"


def test_elasticquota_case_05_worked_example_4_shrink():
    world = departments(100)
    ask(world, "prod-b", cpu=50)
    ask(world, "prod-a", cpu=55)
    assert runtimes(world, "dev", resource="cpu") == "34444m"
    world.put(node("n", cpu=60))
    mins = [world.shown(name, "scaled_min")["cpu"] for name in DEPARTMENTS]
    assert mins == ["20", "40", "6666m", "13333m", "26666m", "13333m"]
    assert runtimes(world, *DEPARTMENTS, resource="cpu") == "20 40 6666m 13334m 26667m 13333m"


def test_elasticquota_case_05_worked_example_5_weights():
    world = World(node("n", cpu=100))
    for name, least, most, weight, request in (
        ("a", 10, 100, 3, 80),
        ("b", 20, 100, 1, 60),
        ("c", 5, 30, 6, 50),
    ):
        world.put(quota(name, {"cpu": most}, {"cpu": least}, weight={"cpu": weight}))
        ask(world, name, cpu=request)
    assert runtimes(world, "a", "b", "c", resource="cpu") == "40 30 30"


@pytest.mark.parametrize(
    ("lent", "expected"),
    [(True, ["40 20 20", "60 40 20", "80 60 20"]), (False, ["60 20 20", "60 40 20", "80 60 20"])],
)
def test_elasticquota_case_05_worked_example_6_not_lent(lent, expected):
    world = World(node("n", x=100))
    marks = {} if lent else {"allow_lent_resource": "false"}
    world.put(quota("p", {"x": 96}, {"x": 60}, is_parent="true", **marks))
    for name in ("c1", "c2"):
        world.put(quota(name, {"x": 96}, {"x": 20}, parent="p", allow_lent_resource="false"))
    found = [runtimes(world, "p", "c1", "c2")]
    for amount in (40, 60):
        demand(world, c1=amount)
        found.append(runtimes(world, "p", "c1", "c2"))
    assert found == expected


@pytest.mark.parametrize(("gates", "expected"), [(GUARANTEES, "50 50"), ((), "35 65")])
def test_elasticquota_case_05_worked_example_7_guarantee(gates, expected):
    world = World(node("n", x=100), quota("a", {"x": 100}, {"x": 20}), quota("b", {"x": 100}, {"x": 50}), gates=gates)
    world.put(pod("running", {"x": 50}, "a", on="n"))
    demand(world, a=40)
    demand(world, b=80)
    assert runtimes(world, "a", "b") == expected


@pytest.mark.parametrize(
    ("scale", "before", "mins", "after"),
    [
        (False, "300 100 100 100", ["100"] * 3, "600 200 200 200"),
        (True, "200 66667m 66667m 66666m", ["66666m"] * 3, "600 200 200 200"),
    ],
)
def test_elasticquota_case_06_min_scale(scale, before, mins, after):
    world = World(node("n", cpu=200), args={"enableMinQuotaScale": scale})
    world.put(quota("p", {"cpu": 600}, {"cpu": 300}, is_parent="true"))
    for name in ("a", "b", "c"):
        world.put(quota(name, {"cpu": 600}, {"cpu": 100}, parent="p"))
        ask(world, name, cpu=200)
    assert runtimes(world, "p", "a", "b", "c", resource="cpu") == before
    assert [world.shown(name, "scaled_min")["cpu"] for name in ("a", "b", "c")] == mins
    world.put(node("n", cpu=600))
    assert runtimes(world, "p", "a", "b", "c", resource="cpu") == after
    assert world.shown("a", "scaled_min") == {"cpu": "100"}


@pytest.mark.parametrize("huge", [10**300, 10**320, 10**400])
def test_a_min_beyond_what_a_double_can_be_is_scaled_exactly(huge):
    assert scale(huge, huge // 4, huge * 2) == huge // 8
    assert scale(1000, huge // 4, huge) == 250
    assert scale(huge, 3, huge) in (2, 3)


def test_elasticquota_case_07_child_above_what_there_is():
    world = World(node("n", x=300, y=8000))
    world.put(quota("t", {"x": 600, "y": 4096}, {"x": 100, "y": 100}, is_parent="true"))
    world.put(quota("s", {"x": 500, "y": 2048}, parent="t"))
    ask(world, "s", x=500, y=4096)
    assert world.shown("s", "runtime") == {"x": "300", "y": "2048"}
    assert world.shown("t", "request") == {"x": "500", "y": "2048"}


def test_elasticquota_case_08_resource_that_no_node_offers():
    world = World(node("n", cpu=10), quota("without", {"x": 100}), quota("with", {"x": 100}, {"x": 4}))
    demand(world, without=80)
    assert (runtimes(world, "without"), world.quota("without").runtime) == ("0", amounts(x=0))
    world.remove(quota("without", {"x": 100}))
    ask(world, "with", x=80)
    assert runtimes(world, "with") == "4"


def test_elasticquota_case_09_effective_total():
    world = World(node("n", cpu=100, memory=540))
    world.put(pod("s", {"cpu": 10, "memory": 30}, "koordinator-system-quota", on="n"))
    world.put(pod("d", {"cpu": 5, "memory": 10}, on="n"))
    tree = world.books.trees.default_tree
    assert {name: tree.available[name] for name in ("cpu", "memory")} == {"cpu": 85_000, "memory": 500}
    assert tree.root.used == amounts(cpu=15, memory=40)


# --- admission --------------------------------------------------------------------------------------


def test_elasticquota_case_10_default_quota():
    args = {"defaultQuotaGroupMax": {"cpu": 10}}
    huge = pod("huge", {"cpu": 11, "memory": "1Gi"})
    world = World(node("n", cpu=4), args=args)
    world.put(huge)
    assert world.refusal(huge) is None
    world = World(node("n", cpu=4), args={**args, "enableRuntimeQuota": False})
    world.put(huge)
    assert world.refusal(huge) == (
        "Insufficient quotas, quotaName: koordinator-default-quota, runtime: cpu:10, used: <empty>, "
        "pod's request: cpu:11, exceedDimensions: [cpu]"
    )


def test_elasticquota_case_11_leaf_message():
    world = World(node("n", cpu=7, memory=5), quota("test1", {"cpu": 10, "memory": 8}, {"cpu": 5, "memory": 5}))
    world.put(pod("b1", {"cpu": 2, "memory": 1}, "test1", on="n"))
    world.put(pod("b2", {"cpu": 2, "memory": 1}, "test1", on="n"))
    world.put(pod("b3", {"cpu": 2, "memory": 2}, "test1", on="n", preemptible=False))
    new = pod("new", {"cpu": 2, "memory": 1}, "test1", preemptible=False)
    world.put(new)
    assert world.shown("test1", "runtime") == {"cpu": "7", "memory": "5"}
    assert world.refusal(new) == (
        "Insufficient quotas, quotaName: test1, runtime: cpu:7,memory:5, used: cpu:6,memory:4, "
        "pod's request: cpu:2,memory:1, exceedDimensions: [cpu]"
    )


def test_elasticquota_case_12_non_preemptible_message():
    world = World(node("n", cpu=8, memory=5), quota("test1", {"cpu": 10, "memory": 8}, {"cpu": 5, "memory": 5}))
    world.put(pod("b1", {"cpu": 2, "memory": 1}, "test1", on="n"))
    for name in ("b2", "b3"):
        world.put(pod(name, {"cpu": 2, "memory": 1}, "test1", on="n", preemptible=False))
    new = pod("new", {"cpu": 2, "memory": 2}, "test1", preemptible=False)
    world.put(new)
    assert world.refusal(new) == (
        "Insufficient non-preemptible quotas, quotaName: test1, min: cpu:5,memory:5, "
        "nonPreemptibleUsed: cpu:4,memory:2, pod's request: cpu:2,memory:2, exceedDimensions: [cpu]"
    )


def test_elasticquota_case_13_other_dimensions_count_at_the_leaf_only():
    limit = {"cpu": 10, "memory": 10}
    args = {"enableRuntimeQuota": False, "enableCheckParentQuota": True}
    new = pod("new", {"cpu": 1}, "leaf")
    world = World(quota("leaf", limit), args=args)
    world.put(pod("old", {"cpu": 1, "memory": 12}, "leaf", on="n"))
    world.put(new)
    assert world.refusal(new).endswith("exceedDimensions: [memory]")
    world = World(quota("top", limit, is_parent="true"), quota("leaf", limit, parent="top"), args=args)
    world.put(quota("other", {"cpu": 100, "memory": 100}, parent="top"))
    world.put(pod("old", {"cpu": 1, "memory": 12}, "other", on="n"))
    world.put(new)
    assert world.quota("top").used == amounts(cpu=1, memory=12)
    assert world.refusal(new) is None


def test_elasticquota_case_14_ancestor_message():
    args = {"enableRuntimeQuota": False, "enableCheckParentQuota": True}
    world = World(quota("test", {"cpu": 1, "memory": 2, "nvidia.com/gpu": 1}, is_parent="true"), args=args)
    world.put(quota("test-child", {"cpu": 1, "memory": 3, "nvidia.com/gpu": 1}, parent="test"))
    new = pod("new", {"cpu": 1, "memory": 3, "nvidia.com/gpu": 1}, "test-child")
    world.put(new)
    assert world.refusal(new) == (
        "Insufficient quotas, quotaNameTopo: [test test-child], runtime: cpu:1,memory:2,nvidia.com/gpu:1, "
        "used: <empty>, pod's request: cpu:1,memory:3,nvidia.com/gpu:1, exceedDimensions: [memory]"
    )


def test_the_limit_shows_what_the_quotas_beside_it_share():
    world = World(node("n", cpu=10, memory="10Gi", gpu=4))
    world.put(quota("plain", {"cpu": 4, "memory": "4Gi"}, is_parent="true"))
    world.put(quota("below", {"cpu": 2, "memory": "2Gi"}, parent="plain"))
    world.put(quota("lends-not", {"memory": "1Gi"}, {"memory": "1Gi"}, allow_lent_resource="false"))
    world.put(quota("devices", {"cpu": 4, "nvidia.com/gpu": 4}))

    def limit(name):
        world.put(new := pod(f"new-{name}", {"cpu": 5, "memory": "5Gi", "nvidia.com/gpu": 5}, name))
        return world.refusal(new).partition(", runtime: ")[2].partition(", used: ")[0]

    assert {name: limit(name) for name in ("plain", "below", "lends-not", "devices")} == {
        "plain": "cpu:4,memory:4Gi,nvidia.com/gpu:0",
        "below": "cpu:2,memory:2Gi",
        "lends-not": "cpu:0,memory:1Gi,nvidia.com/gpu:0",
        "devices": "cpu:4,memory:0,nvidia.com/gpu:4",
    }
    world.remove(quota("devices", {}))
    assert limit("plain") == "cpu:4,memory:4Gi", "none names it any more"


def test_a_parent_has_nothing_to_give_of_what_only_others_name():
    world = World(node("n", cpu=10, gpu=4), args={"enableCheckParentQuota": True})
    world.put(quota("top", {"cpu": 10}, is_parent="true"))
    world.put(quota("leaf", {"cpu": 10, "nvidia.com/gpu": 4}, parent="top"))
    new = pod("new", {"cpu": 1, "nvidia.com/gpu": 1}, "leaf")
    world.put(new)
    assert world.refusal(new) == (
        "Insufficient quotas, quotaNameTopo: [top leaf], runtime: cpu:1,nvidia.com/gpu:0, used: <empty>, "
        "pod's request: cpu:1,nvidia.com/gpu:1, exceedDimensions: [nvidia.com/gpu]"
    )


def test_lists_are_in_the_order_of_their_texts():
    world = World(args={"enableRuntimeQuota": False})
    gpu = "koordinator.sh/gpu"
    world.put(quota("q", {gpu: 100, f"{gpu}-core": 100, f"{gpu}-memory": 1, f"{gpu}-memory-ratio": 100, "cpu": 1}))
    new = pod("new", {"cpu": 2}, "q")
    world.put(new)
    assert f"runtime: cpu:1,{gpu}-core:100,{gpu}-memory-ratio:100,{gpu}-memory:1,{gpu}:100, used" in world.refusal(new)


# --- preemption -------------------------------------------------------------------------------------

BY_MAX = {"enableRuntimeQuota": False}


def test_elasticquota_case_15_least_important_victim():
    world = World(node("n1", cpu=100), quota("q", {"cpu": 10}), args=BY_MAX)
    world.put(pod("v1", {"cpu": 4}, "q", on="n1", priority=5))
    world.put(pod("v2", {"cpu": 4}, "q", on="n1", priority=3))
    new = pod("new", {"cpu": 4}, "q", priority=10)
    world.put(new)
    explanation = world.explain(new)
    assert (explanation.nominated_node, explanation.victims) == ("n1", ["default/v2"])


@pytest.mark.parametrize(
    ("victim", "args", "evicted"),
    [
        ({"in_quota": "q1", "priority": 5}, {}, True),
        ({"in_quota": "q1", "priority": 10}, {}, False),
        ({"in_quota": "q1", "priority": 15}, {}, False),
        ({"in_quota": "q2", "priority": 5}, {}, False),
        ({"in_quota": "q1", "priority": 5, "preemptible": False}, {}, False),
    ],
)
def test_elasticquota_case_16_who_is_a_victim(victim, args, evicted):
    world = World(node("n", cpu=100), quota("q1", {"cpu": 4}, {"cpu": 4}), quota("q2", {"cpu": 4}), args=BY_MAX)
    world.put(pod("v", {"cpu": 4}, on="n", **victim))
    if victim["in_quota"] != "q1":
        world.put(pod("keeper", {"cpu": 4}, "q1", on="n", priority=10))
    new = pod("new", {"cpu": 4}, "q1", priority=10)
    world.put(new)
    assert world.explain(new).victims == (["default/v"] if evicted else [])


@pytest.mark.parametrize(("spared", "victims"), [(True, []), (False, ["default/v"])])
def test_elasticquota_case_16_default_quota(spared, victims):
    args = {**BY_MAX, "defaultQuotaGroupMax": {"cpu": 4}, "disableDefaultQuotaPreemption": spared}
    world = World(node("n", cpu=100), args=args)
    world.put(pod("v", {"cpu": 4}, on="n", priority=5))
    new = pod("new", {"cpu": 4}, priority=10)
    world.put(new)
    assert world.explain(new).victims == victims


def test_elasticquota_case_17_budgets():
    world = World()

    def budget(allowed, disrupted=()):
        thing = {
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {
                "disruptionsAllowed": allowed,
                "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z"),
            },
        }
        world.cluster.objects.of(POD_DISRUPTION_BUDGETS).upsert(convert(thing, PodDisruptionBudget))
        return world.cluster.shared(Budgets)

    web = {"app": "web"}
    three = [world.pod(pod(name, {"cpu": 1}, on="n", labels=web)) for name in ("p1", "p2", "p3")]
    violating, others = budget(1).violations(three)
    assert ([p.name for p in violating], [p.name for p in others]) == (["p2", "p3"], ["p1"])
    assert budget(0, ["p1"]).violations(three[:1]) == ([], three[:1])
    foreign = [world.pod(pod("f", {"cpu": 1}, namespace="other", labels=web)), world.pod(pod("u", {"cpu": 1}))]
    assert budget(0).violations(foreign) == ([], foreign)


# --- which quota ------------------------------------------------------------------------------------


def test_elasticquota_case_19_mapping():
    home = quota("test-ns", {"cpu": 1}, namespace="test-ns")
    world = World(
        quota("parent-quota", {"cpu": 1}, namespace="test-ns", is_parent="true"), home, quota("test", {"cpu": 1})
    )
    plain = world.pod(pod("p", {"cpu": 1}, namespace="test-ns"))
    assert world.books.quota_of(plain).name == "test-ns"
    world.remove(home)
    world.put(quota("test-ns1", {"cpu": 1}, namespaces=["test-ns"]))
    assert world.books.quota_of(plain).name == "test-ns1"
    assert world.books.quota_of(world.pod(pod("p", {"cpu": 1}, "test", namespace="test-ns"))).name == "test"


def test_elasticquota_case_20_pods_change_their_label():
    world = World(node("n", cpu=100, memory=100), *(quota(n, {"cpu": 96, "memory": 160}) for n in ("test1", "test2")))
    for i in range(4):
        world.put(pod(f"p{i}", {"cpu": 10, "memory": 10}, "test1", on="n" if i % 2 else None))
    moved = [pod(f"p{i}", {"cpu": 10, "memory": 10}, "test2", on="n" if i % 2 else None) for i in range(4)]
    for thing in moved:
        world.put(thing)
    assert (world.quota("test1").request, list(world.books.members(world.quota("test1")))) == ({}, [])
    assert world.quota("test2").request == amounts(cpu=40, memory=40)
    for thing in moved:
        world.remove(thing)
    assert (world.quota("test2").request, world.quota("test2").used) == ({}, {})


def test_elasticquota_case_21_quota_moves_to_another_parent():
    world = World(node("n", cpu=1000, memory=1000))
    most = {"cpu": 1000, "memory": 1000}
    for name, parent in (
        ("test1", ""),
        ("test1-a", "test1"),
        ("a-123", "test1-a"),
        ("test2", ""),
        ("test2-a", "test2"),
    ):
        world.put(quota(name, most, {"cpu": 0, "memory": 0}, parent=parent, is_parent="true"))
    world.put(pod("p", {"cpu": 60, "memory": 100}, "a-123", on="n"))
    world.put(pod("q", {"cpu": 20, "memory": 40}, "test2-a", on="n"))
    world.put(quota("a-123", most, {"cpu": 0, "memory": 0}, parent="test2", is_parent="true"))
    for name in ("test1", "test1-a"):
        assert [world.shown(name, number) for number in ("request", "used", "runtime")] == [{}, {}, {}]
    assert world.quota("test2").request == world.quota("test2").used == amounts(cpu=80, memory=140)
    world.remove(quota("test2-a", most))
    assert world.quota("test2").request == world.quota("test2").used == amounts(cpu=60, memory=100)


def test_elasticquota_case_22_pods_before_their_quota():
    world = World(node("n", cpu=100, memory=100))
    for i in range(4):
        world.put(pod(f"p{i}", {"cpu": 10, "memory": 10}, "test1"))
    assert world.quota(DEFAULT).request == amounts(cpu=40, memory=40)
    assert world.books.unknown_names() == {"test1": 4}
    world.put(quota("test1", {"cpu": 100, "memory": 100}))
    assert list(world.books.members(world.quota(DEFAULT))) == []
    assert len(list(world.books.members(world.quota("test1")))) == 4
    assert world.books.unknown_names() == {}


@pytest.mark.parametrize(
    ("gate", "counted"),
    [
        ("ElasticQuotaIgnoreTerminatingPod", [{"cpu": "10"}, {}]),
        ("ElasticQuotaImmediateIgnoreTerminatingPod", [{}, {}]),
        ("ElasticQuotaIgnorePodOverhead", [{"cpu": "10"}, {"cpu": "10"}]),
    ],
)
def test_elasticquota_case_23_terminating_pods(gate, counted):
    world = World(node("n", cpu=100), quota("q", {"cpu": 100}), gates=(gate,))
    world.clock.now = 1_767_225_600.0  # 2026-01-01T00:00:00Z
    found = []
    thing = pod("p", {"cpu": 10}, "q", on="n")
    world.put(thing)
    assert world.shown("q", "used") == {"cpu": "10"}
    for asked in ("2025-12-31T23:59:50Z", "2025-12-31T23:59:20Z"):
        metadata = {**thing["metadata"], "deletionTimestamp": asked, "deletionGracePeriodSeconds": 30}
        world.put({**thing, "metadata": metadata})
        assert world.shown("q", "used") == world.shown("q", "request")
        found.append(world.shown("q", "used"))
    assert found == counted


def test_a_replay_counts_the_pods_that_were_overdue_unseen():
    """They count until something changes them; a scheduler that starts does not count them at all."""
    gates = ("ElasticQuotaIgnoreTerminatingPod",)
    thing = pod("p", {"cpu": 10}, "q", on="n")
    meta = {"deletionTimestamp": "2025-12-31T23:59:50Z", "deletionGracePeriodSeconds": 30}
    state = [node("n", cpu=100), quota("q", {"cpu": 100}), {**thing, "metadata": {**thing["metadata"], **meta}}]
    world, again = World(gates=gates), World(gates=gates)
    world.clock.now = 1_767_225_600.0  # 2026-01-01T00:00:00Z
    again.clock.now = world.clock.now + 60
    for each in (world, again):
        for one in state:
            each.put(one)
    world.clock.now += 60
    assert (world.shown("q", "used"), again.shown("q", "used")) == ({"cpu": "10"}, {})
    carry_over(*(each.offline.profiles["default-scheduler"].handle for each in (world, again)))
    assert again.shown("q", "used") == again.shown("q", "request") == {"cpu": "10"}


@pytest.mark.parametrize("weight", [{"x": 1}, {"cpu": 0, "x": 1}], ids=["not named", "zero"])
def test_of_what_it_has_no_weight_for_a_quota_gets_its_min_alone(weight):
    world = World(node("n", cpu=10, x=10), quota("q", {"cpu": 8, "x": 8}, {"cpu": 2}, weight=weight))
    small, large = (pod(f"p{cpu}", {"cpu": cpu}, "q") for cpu in (2, 3))
    world.put(small)
    assert world.refusal(small) is None
    world.remove(small)
    own = world.put(large)
    assert not world.plugin.admission.admits_at_once(own)
    assert "runtime: cpu:2" in (world.refusal(large) or "")


def test_pods_of_the_default_quota_count_before_while_and_after_it_is_declared():
    world = World(node("n", cpu=100), pod("runs", {"cpu": 10, "x": 1}, on="n"), pod("waits", {"cpu": 5}))
    declared = quota(DEFAULT, {"x": 20})
    found = []
    for change in (lambda: None, lambda: world.put(declared), lambda: world.remove(declared)):
        change()
        found.append((world.shown(DEFAULT, "used"), world.shown(DEFAULT, "request")))
    built_in = {"cpu": "10"}, {"cpu": "15"}
    assert found == [built_in, ({"x": "1"}, {"x": "1"}), built_in]


# --- defects not repeated ---------------------------------------------------------------------------


def test_elasticquota_case_26_capped_requests_leave_as_they_came():
    world = World(
        node("n", cpu=1000), quota("p", {"cpu": 1000}, is_parent="true"), quota("r", {"cpu": 1000}, is_parent="true")
    )
    world.put(quota("a", {"cpu": 10}, parent="p"))
    world.put(quota("b", {"cpu": 50}, parent="p"))
    ask(world, "a", cpu=30)
    ask(world, "b", cpu=20)
    assert world.shown("p", "child_request") == {"cpu": "30"}
    world.put(quota("a", {"cpu": 10}, parent="r"))
    assert (world.shown("p", "child_request"), world.shown("r", "child_request")) == ({"cpu": "20"}, {"cpu": "10"})


@pytest.mark.parametrize("pods_first", [True, False])
@pytest.mark.parametrize("args", [{}, {"defaultQuotaGroupMax": {"cpu": 50, "memory": "50Gi"}}])
def test_elasticquota_case_26_default_usage_counts_once(pods_first, args):
    things = [
        pod("d", {"cpu": 10, "memory": "10Gi"}, on="n"),
        quota("a", {"cpu": 100, "memory": "100Gi"}, {"cpu": 0, "memory": 0}),
    ]
    world = World(node("n", cpu=100, memory="100Gi"), *(things if pods_first else reversed(things)), args=args)
    ask(world, "a", cpu=100, memory="100Gi")
    assert world.shown("a", "runtime") == {"cpu": "90", "memory": "90Gi"}


# --- trees ------------------------------------------------------------------------------------------


def test_elasticquota_case_29_trees():
    world = World(*(node(f"n{i}", cpu=100, memory=1000) for i in range(3)), gates=("MultiQuotaTree",))

    def total():
        return {name: world.books.trees.default_tree.total[name] for name in ("cpu", "memory")}

    def root(cpu, memory):
        marks = {"tree_id": "t", "is_root": "true", "is_parent": "true"}
        given = {"cpu": str(cpu), "memory": str(memory)}
        return quota("root", {"cpu": cpu, "memory": memory}, total_resource=given, **marks)

    assert total() == amounts(cpu=300, memory=3000)
    world.put(root(200, 2000))
    assert total() == amounts(cpu=100, memory=1000)
    world.put(root(250, 2500))
    assert total() == amounts(cpu=50, memory=500)
    assert world.books.trees.trees["t"].total == amounts(cpu=250, memory=2500)
    world.remove(root(250, 2500))
    assert total() == amounts(cpu=300, memory=3000)
    assert set(world.books.trees.trees) == {""}


def test_elasticquota_case_29_tree_without_its_root():
    marks = {"tree_id": "t", "is_root": "true", "is_parent": "true", "total_resource": {"cpu": "60"}}
    root = quota("root", {"cpu": 60}, {"cpu": 60}, **marks)
    leaf = quota("leaf", {"cpu": 60}, {"cpu": 1}, parent="root", tree_id="t")
    new = pod("new", {"cpu": 2}, "leaf")
    world = World(node("n", cpu=100), root, leaf, new, gates=("MultiQuotaTree",))
    assert world.refusal(new) is None
    world.remove(root)
    assert world.refusal(new) == (
        "Insufficient quotas, quotaName: leaf, runtime: cpu:1, used: <empty>, pod's request: cpu:2, "
        "exceedDimensions: [cpu]"
    )
    world.put(root)
    assert world.refusal(new) is None


def test_elasticquota_case_29_gate_off():
    world = World(
        node("n", cpu=100), quota("q", {"cpu": 10}, tree_id="t", is_root="true", total_resource={"cpu": "60"})
    )
    assert world.quota("q").tree.id == ""
    assert world.books.trees.default_tree.total == amounts(cpu=100, pods=1000)


# --- hints ------------------------------------------------------------------------------------------


def woken(world, thing):
    """Whether the news since the last look wake a refused pod."""
    hint = next(one.fn for one in world.plugin.events_to_register() if one.event == ROOM)
    waiting = world.pod(thing)
    news, world.announced[:] = list(world.announced), []
    return any(hint(waiting, None, room) is QueueingHint.QUEUE for _, room in news)


def test_a_pod_without_a_quota_is_kept_waiting_by_none():
    """Its quota is gone, and gate DisableDefaultQuota leaves it without another one."""
    world = World(node("n", cpu=100), gates=("DisableDefaultQuota",))
    waits, other = world.pod(pod("waits", {"cpu": 1}, "gone")), world.pod(pod("other", {"cpu": 1}, on="n"))
    news = {ROOM: (None, Room(frozenset(), frozenset())), POD: (other, None)}
    for each in world.plugin.events_to_register():
        old, new = (waits, waits) if each.scope is Scope.OWN_POD else news.get(each.event) or news[each.event.resource]
        assert each.fn(waits, old, new) is QueueingHint.QUEUE


@pytest.mark.parametrize("checks_parents", [False, True])
def test_elasticquota_case_32_hints(checks_parents):
    args = {"enableCheckParentQuota": checks_parents}
    world = World(node("n", cpu=100), quota("top", {"cpu": 20}, {"cpu": 20}, is_parent="true"), args=args)
    world.put(quota("mine", {"cpu": 10}, {"cpu": 10}, parent="top"))
    world.put(quota("sibling", {"cpu": 20}, {"cpu": 10}, parent="top"))
    fillers = {
        name: pod(f"in-{name}", {"cpu": amount}, name, on="n")
        for name, amount in (("mine", 4), ("sibling", 6), ("top", 10))
    }
    for thing in fillers.values():
        world.put(thing)
    new = pod("new", {"cpu": 6 if not checks_parents else 4}, "mine")
    if not checks_parents:
        world.put(pod("more", {"cpu": 2}, "mine", on="n"))  # now the quota itself is what is full
    world.put(new)
    assert world.refusal(new) is not None
    woken(world, new)

    world.put(quota("mine", {"cpu": 10}, {"cpu": 10}, parent="top", namespaces=["elsewhere"]))
    assert not woken(world, new), "only annotations other than the weight changed"
    if checks_parents:
        world.remove(fillers["top"])
        assert woken(world, new), "a pod of the parent's own is gone"
    else:
        world.remove(fillers["sibling"])
        assert not woken(world, new), "what a sibling leaves is of no use at one's own max"
        world.remove(fillers["top"])
        assert not woken(world, new)
        world.put(quota("mine", {"cpu": 20}, {"cpu": 10}, parent="top"))
        assert woken(world, new), "the quota grew"


def test_a_place_that_is_given_up_below_a_full_parent_wakes_its_other_children():
    args = {"enableRuntimeQuota": False, "enableCheckParentQuota": True}
    world = World(node("n", cpu=100), quota("top", {"cpu": 4}, is_parent="true"), args=args)
    for name in ("mine", "other"):
        world.put(quota(name, {"cpu": 4}, parent="top"))
    world.put(placed := pod("placed", {"cpu": 4}, "other"))
    world.cluster.assume(world.pod(placed), world.cluster.table.row_of["n"])
    world.put(new := pod("new", {"cpu": 4}, "mine"))
    assert world.refusal(new) is not None
    woken(world, new)
    world.cluster.forget(world.cluster.assumed[world.pod(placed).uid])
    assert world.refusal(new) is None
    assert woken(world, new)


def test_every_change_of_a_number_has_a_version_that_was_not_there_before():
    """Writers and monitors look again only when it is another one."""
    world = World(node("n", cpu=10), args={"enableRuntimeQuota": True})
    waits, placed = pod("waits", {"cpu": 1}, "q"), pod("placed", {"cpu": 1}, "q", on="n")
    steps = [
        lambda: world.put(quota("q", {"cpu": 4})),
        lambda: world.put(waits),
        lambda: world.put(placed),
        lambda: world.put(quota("q", {"cpu": 5})),
        lambda: world.remove(placed),
        lambda: world.remove(waits),
        lambda: world.remove(quota("q", {})),
    ]
    versions = [world.books.version]
    for step in steps:
        step()
        versions.append(world.books.version)
    assert sorted(set(versions)) == versions


def test_every_case_of_the_spec_is_a_test():
    """Those about controllers and webhooks are beside the tests of these."""
    tests = Path(__file__).parent.rglob("test_*.py")
    found = {
        int(number) for path in tests for number in re.findall(r"def test_elasticquota_case_(\d+)_", path.read_text())
    }
    assert found == set(range(1, 33))
