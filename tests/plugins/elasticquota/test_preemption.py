"""Preemption inside a quota beyond the spec's cases: who is spared, in what order, and at what cost."""

import time
from itertools import product

import pytest

from koordsched.api.decoding import convert
from koordsched.api.policy import PodDisruptionBudget
from koordsched.cluster.builtinkinds import POD_DISRUPTION_BUDGETS
from koordsched.framework.interface import CycleState
from koordsched.framework.replicas import OwnReplicas
from koordsched.framework.status import PASS
from koordsched.plugins.elasticquota.preemption import NODES_NAMED
from tests.plugins.elasticquota.objects import node, pod, quota
from tests.plugins.elasticquota.world import World

BY_MAX = {"enableRuntimeQuota": False}
BOTH_PREEMPT = {"disabled": [{"name": "*"}], "enabled": [{"name": "ElasticQuota"}, {"name": "DefaultPreemption"}]}


def victims(world, thing):
    """Node and victims that preemption would choose for a pod."""
    world.put(thing)
    explanation = world.explain(thing)
    return explanation.nominated_node, explanation.victims


def test_a_pod_that_fits_its_quota_but_no_node_evicts_its_own_only():
    world = World(node("n", cpu=10), quota("a", {"cpu": 100}), quota("b", {"cpu": 100}), args=BY_MAX)
    world.put(pod("theirs", {"cpu": 6}, "b", on="n"))
    world.put(pod("ours", {"cpu": 4}, "a", on="n"))
    assert victims(world, pod("small", {"cpu": 4}, "a", priority=9)) == ("n", ["default/ours"])
    node_name, evicted = victims(world, pod("large", {"cpu": 6}, "a", priority=9))
    assert (node_name, evicted) == ("", [])


def test_no_pod_is_evicted_in_vain():
    world = World(node("n", cpu=100), quota("q", {"cpu": 8}), args=BY_MAX)
    world.put(pod("low", {"cpu": 2}, "q", on="n"))
    world.put(pod("equal", {"cpu": 6}, "q", on="n", priority=9))
    new = pod("new", {"cpu": 4}, "q", priority=9)
    assert victims(world, new) == ("", [])
    assert world.explain(new).message.endswith(
        "preemption: 0/1 nodes are available: 1 quota q stays exceeded without its preemptible pods of lower priority "
        "on the node."
    )


def test_min_and_parents_are_looked_at_too():
    args = {**BY_MAX, "enableCheckParentQuota": True}
    world = World(node("n", cpu=100), quota("top", {"cpu": 10}, is_parent="true"), args=args)
    world.put(quota("q", {"cpu": 10}, {"cpu": 2}, parent="top"))
    world.put(quota("r", {"cpu": 10}, parent="top"))
    world.put(pod("low", {"cpu": 4}, "q", on="n"))
    world.put(pod("other", {"cpu": 6}, "r", on="n"))
    assert victims(world, pod("new", {"cpu": 4}, "q", priority=9)) == ("n", ["default/low"])
    assert victims(world, pod("larger", {"cpu": 5}, "q", priority=9)) == ("", [])
    keeper = pod("keeper", {"cpu": 3}, "q", priority=9, preemptible=False)
    assert victims(world, keeper) == ("", []), "min is no larger without the others"


def test_own_replicas_are_spared():
    world = World(node("n", cpu=100), quota("q", {"cpu": 4}), args=BY_MAX)
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs-uid", "controller": True}]
    for name in ("scheduler-1", "scheduler-2"):
        replica = pod(name, {"cpu": 2}, "q", on="n", namespace="kube-system")
        replica["metadata"]["ownerReferences"] = owner
        world.put(replica)
    new = pod("new", {"cpu": 2}, "q", priority=9)
    assert victims(world, new)[0] == "n"
    world.profile.handle.own_replicas = OwnReplicas(world.cluster, "kube-system", "scheduler-1")
    assert victims(world, new) == ("", [])


def test_budgets_are_broken_only_if_need_be():
    world = World(node("n1", cpu=100), node("n2", cpu=100), quota("q", {"cpu": 8}), args=BY_MAX)
    world.put(pod("guarded", {"cpu": 4}, "q", on="n1", labels={"app": "web"}, priority=1))
    world.put(pod("free", {"cpu": 4}, "q", on="n2", priority=5))
    budget = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0},
    }
    world.cluster.objects.of(POD_DISRUPTION_BUDGETS).upsert(convert(budget, PodDisruptionBudget))
    # The quota, not the node, needs the room: that counts as no violation (spec 3.11), and the least priority goes.
    assert victims(world, pod("new", {"cpu": 4}, "q", priority=9)) == ("n1", ["default/guarded"])
    # Both must go for it, so nobody does.
    assert victims(world, pod("large", {"cpu": 8}, "q", priority=9)) == ("", [])


def test_never_and_terminating():
    world = World(node("n", cpu=100), quota("q", {"cpu": 4}), quota("r", {"cpu": 4}), args=BY_MAX)
    old = pod("old", {"cpu": 4}, "q", on="n")
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.put(old)
    meek = pod("meek", {"cpu": 4}, "q", priority=9, preemptionPolicy="Never")
    victims(world, meek)
    assert world.explain(meek).message.endswith("preemption: not eligible due to preemptionPolicy=Never.")
    # The room of a less important pod of the same quota is waited for, and no other one's.
    for name, in_quota, priority, waits in (("a", "q", 9, True), ("b", "q", 0, False), ("c", "r", 9, False)):
        waiting = pod(name, {"cpu": 4 if in_quota == "q" else 5}, in_quota, priority=priority)
        waiting["status"]["nominatedNodeName"] = "n"
        world.put(waiting)
        end = "a terminating pod on the nominated node." if waits else f"on node n for preemptor pod {name}."
        assert world.explain(waiting).message.endswith(end)


@pytest.mark.parametrize("in_quota", ["q", None])
def test_a_pod_that_waits_for_a_terminating_one_is_woken_by_its_quota_too(in_quota):
    """If it has one."""
    world = World(node("n", cpu=4), quota("q", {"cpu": 8}), args=BY_MAX, gates=("DisableDefaultQuota",))
    old = pod("old", {"cpu": 4}, in_quota, on="n")
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.put(old)
    waiting = pod("new", {"cpu": 4}, in_quota, priority=9)
    waiting["status"]["nominatedNodeName"] = "n"
    world.put(waiting)
    attempt = world.offline.attempt("default/new")
    attempt.filter()
    outcome = attempt.post_filter()
    assert outcome.status.message.endswith("a terminating pod on the nominated node.")
    assert outcome.refused_by == ({"ElasticQuota"} if in_quota else set())


def test_a_nomination_that_the_status_does_not_show_yet_counts():
    world = World(node("n", cpu=100), quota("q", {"cpu": 4}), args=BY_MAX)
    old = pod("old", {"cpu": 4}, "q", on="n")
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.put(old)
    world.put(new := pod("new", {"cpu": 4}, "q", priority=9))
    world.offline.nominator.add(world.pod(new), "n")
    assert world.explain(new).message.endswith("a terminating pod on the nominated node.")


def test_a_pod_refused_by_its_quota_evicts_no_pod_for_the_nodes_sake():
    world = World(node("n", cpu=10), quota("q", {"cpu": 4}), args=BY_MAX, post_filter=BOTH_PREEMPT)
    world.put(pod("same", {"cpu": 4}, "q", on="n", priority=9))
    world.put(pod("stranger", {"cpu": 6}, on="n"))
    assert victims(world, pod("new", {"cpu": 4}, "q", priority=9))[1] == []
    fitting = World(node("n", cpu=10), quota("q", {"cpu": 4}), args=BY_MAX, post_filter=BOTH_PREEMPT)
    fitting.put(pod("stranger", {"cpu": 8}, on="n"))
    assert victims(fitting, pod("new", {"cpu": 4}, "q", priority=9)) == ("n", ["default/stranger"])


@pytest.mark.parametrize(("nodes", "named"), [(NODES_NAMED, True), (NODES_NAMED + 1, False)])
def test_many_nodes_without_victims_are_counted(nodes, named):
    world = World(*(node(f"n{i}", cpu=10) for i in range(nodes)), quota("q", {"cpu": 1}), args=BY_MAX)
    new = pod("new", {"cpu": 2}, "q")
    world.put(new)
    message = world.explain(new).message
    assert ("1 No victims found on node n0 for preemptor pod new" in message) == named
    assert (f"{nodes} No victims found for preemptor pod new" in message) != named


def naive(world, new, priority):
    """The candidates of all nodes, the plain way: node -> victims; nodes without a way are left out."""
    limit = world.quota("q").max["cpu"]
    used = world.quota("q").used.get("cpu", 0)
    found = {}
    for name in world.cluster.table.row_of:
        on_node = [m for m in world.books.members(world.quota("q")) if m.pod.node == name and m.assigned]
        lower = [m for m in on_node if m.pod.priority < priority and not m.non_preemptible]
        held = sum(m.counted["cpu"] for m in lower)
        if not lower or used - held + new > limit:
            continue
        chosen = []
        for member in sorted(lower, key=lambda m: (-m.pod.priority, m.pod.start_time)):
            if used - held + member.counted["cpu"] + new <= limit:
                held -= member.counted["cpu"]
            else:
                chosen.append(member.pod)
        found[name] = chosen
    return found


@pytest.mark.parametrize(("seed", "asked"), list(product(range(6), (1, 3, 7))))
def test_same_choice_as_the_plain_way(seed, asked):
    pods = [
        (f"p{i}", (i * 7 + seed) % 5 + 1, (i * 3 + seed) % 4, f"n{(i * 5 + seed) % 4}", (i + seed) % 6 != 0)
        for i in range(24)
    ]
    total = sum(size for _, size, *_ in pods)
    world = World(*(node(f"n{i}", cpu=1000) for i in range(4)), quota("q", {"cpu": total}), args=BY_MAX)
    for name, size, priority, on, preemptible in pods:
        started = f"2026-01-01T00:00:{int(name[1:]):02}Z"
        world.put(pod(name, {"cpu": size}, "q", on=on, priority=priority, preemptible=preemptible, started=started))
    new = pod("new", {"cpu": asked}, "q", priority=3)
    node_name, evicted = victims(world, new)
    candidates = naive(world, asked * 10**9, 3)
    ranks = {
        name: (chosen[0].priority, sum(p.priority + (1 << 31) for p in chosen), len(chosen))
        for name, chosen in candidates.items()
    }
    assert (node_name == "") == (not ranks)
    if ranks:
        assert ranks[node_name] == min(ranks.values())
        assert evicted == [p.key for p in candidates[node_name]]


HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
WEB = {"matchLabels": {"app": "web"}}
SPREAD = {
    "topologySpreadConstraints": [
        {"topologyKey": key, "maxSkew": 5, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
        for key in (HOSTNAME, ZONE)
    ]
}
REPELLED = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": HOSTNAME, "labelSelector": WEB}]
        }
    }
}


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "guarded"), [({}, False), ({}, True), (SPREAD, False), (REPELLED, True)])
def test_five_thousand_members_are_decided_on_quickly(spec, guarded):
    nodes = [node(f"n{i}", cpu=64) for i in range(1000)]
    for i, made in enumerate(nodes):
        made["metadata"]["labels"][ZONE] = f"z{i % 3}"
    world = World(*nodes, quota("q", {"cpu": 5000}), args=BY_MAX)
    for i in range(5000):
        labels = {"app": "web" if i % 2 else "db"}
        world.cluster.set_pod(
            world.pod(pod(f"m{i}", {"cpu": 1}, "q", on=f"n{i % 1000}", priority=i % 7, labels=labels))
        )
    if guarded:
        budget = {
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "db"}}},
            "status": {"disruptionsAllowed": 0},
        }
        world.cluster.objects.of(POD_DISRUPTION_BUDGETS).upsert(convert(budget, PodDisruptionBudget))
    new = world.pod(pod("new", {"cpu": 2}, "q", priority=100, labels={"app": "web"}, **spec))
    world.cluster.pod_seen(new)
    cycle = CycleState(new)
    verdicts = world.profile.filtering.filter(cycle)
    assert not (verdicts.codes == PASS).any()
    spent = []
    for _ in range(5):
        started = time.thread_time()
        outcome = world.profile.run_post_filter(cycle, verdicts.codes)
        spent.append(time.thread_time() - started)
    assert len(outcome.victims) == 2
    assert min(spent) < 0.05


def test_nodes_that_no_eviction_would_open_are_told_apart():
    """The quota admits the pod; one node has no pods of its quota, the other one is cordoned."""
    cordoned = node("m", cpu=10)
    cordoned["spec"]["unschedulable"] = True
    stranger = pod("stranger", {"cpu": 8}, on="n")
    world = World(node("n", cpu=10), cordoned, stranger, quota("q", {"cpu": 40}), args=BY_MAX)
    new = pod("new", {"cpu": 4}, "q", priority=9)
    world.put(new)
    assert world.explain(new).message.endswith(
        "preemption: 0/2 nodes are available: 1 No victims found on node n for preemptor pod new, "
        "1 Preemption is not helpful for scheduling."
    )
