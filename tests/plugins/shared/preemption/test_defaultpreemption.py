"""DefaultPreemption at its extension points: who waits outside of the queue, and for whose end."""

from types import SimpleNamespace

import numpy as np
import pytest

from koordsched.cluster.events import POD, ActionType
from koordsched.framework.interface import CycleState, PodFilter, PreFilter
from koordsched.framework.status import PASS, SUCCESS, Code
from koordsched.plugins.defaultpreemption.plugin import GROUP_GATES, WAITING
from koordsched.plugins.shared.preemption.budgets import Budgets
from koordsched.plugins.shared.preemption.dryrun import DryRun
from koordsched.queue.hints import QueueingHint
from tests.plugins.harness import Bench, scheduler
from tests.plugins.objects import container, node, pod, pod_affinity, pod_term

NOT_ALL = frozenset(("GenericWorkload", "GangScheduling"))


def plugin_of(bench, features=frozenset(), evicting=()):
    """The plugin, while pods are told to go for preemptors with these uids."""
    bench.handle.features = features
    bench.handle.evictions = SimpleNamespace(running_for=lambda uid: uid in evicting)
    return bench.plugin("DefaultPreemption")


@pytest.mark.parametrize(
    ("features", "is_member", "waits"),
    [(NOT_ALL, False, True), (NOT_ALL, True, True), (GROUP_GATES, False, True), (GROUP_GATES, True, False)],
)
def test_a_preemptor_is_not_queued_until_its_victims_have_been_told_to_go(features, is_member, waits):
    """Where room is made for whole groups, that of a group keeps its members out."""
    bench = Bench(node("n"))
    spec = {"schedulingGroup": {"podGroupName": "g"}} if is_member else {}
    preemptor = bench.pod(pod("p", **spec))
    status = plugin_of(bench, features, {preemptor.uid}).pre_enqueue(preemptor)
    assert (status.code, status.message) == ((Code.UNRESOLVABLE, WAITING) if waits else (Code.SUCCESS, ""))
    assert plugin_of(bench, features).pre_enqueue(preemptor).ok


def test_virtual_pods_preempt_through_their_own_plugins_alone():
    bench = Bench(node("n"))
    reserve = SimpleNamespace(virtual=True, name="reserve")
    outcome = plugin_of(bench).post_filter(CycleState(reserve), reserve, np.ones(1, dtype=np.int32))
    assert (outcome.status.code, outcome.status.message, outcome.victims) == (Code.UNSCHEDULABLE, "", ())


@pytest.mark.parametrize(
    ("priority", "expected"), [(4, QueueingHint.QUEUE), (5, QueueingHint.SKIP), (6, QueueingHint.SKIP)]
)
def test_the_end_of_a_less_important_pod_may_be_what_a_preemptor_waits_for(priority, expected):
    bench = Bench(node("n"))
    (registration,) = plugin_of(bench).events_to_register()
    assert (registration.event.resource, registration.event.action) == (POD, ActionType.DELETE)
    gone = bench.pod(pod("gone", on="n", priority=priority))
    assert registration.fn(bench.pod(pod("p", priority=5)), gone, None) is expected


def guarded(*names):
    """A budget that allows no disruption of pods with these names as labels."""
    selector = {"matchExpressions": [{"key": "name", "operator": "In", "values": list(names)}]}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": 0},
    }


@pytest.mark.parametrize(
    ("start", "unguarded", "chosen"),
    [
        # One candidate is enough: the first one, though others cost less.
        (0, "abcd", "a"),
        (2, "abcd", "c"),
        # Until there is one whose eviction breaks no budget.
        (0, "c", "c"),
        (3, "c", "c"),
        (1, "ad", "d"),
    ],
)
def test_nodes_are_tried_until_there_are_enough_candidates_and_one_breaks_no_budget(start, unguarded, chosen):
    args = {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 1}
    nodes = [node(name, cpu="1") for name in "abcd"]
    pods = [
        pod(f"on-{name}", container(cpu="1"), on=name, priority=9 - at, labels={"name": name})
        for at, name in enumerate("abcd")
    ]
    objects = [*nodes, *pods, guarded(*(set("abcd") - set(unguarded)))]
    offline = scheduler(objects, {"pluginConfig": [{"name": "DefaultPreemption", "args": args}]})
    offline.profiles["default-scheduler"].handle.rng = SimpleNamespace(randrange=lambda count: start)
    offline.add(pod("p", container(cpu="1"), priority=100))
    assert offline.explain("default/p").nominated_node == chosen


@pytest.mark.parametrize(("likes", "chosen"), [("web", ""), ("db", "n")])
def test_a_node_must_suit_also_without_the_pods_that_are_nominated_to_it(likes, chosen):
    """They may never come."""
    affinity = pod_affinity(required=[pod_term("kubernetes.io/hostname", {"app": likes})])
    nominated = pod(
        "nominated", container(cpu="1"), priority=100, labels={"app": "web"}, schedulingGates=[{"name": "g"}]
    )
    nominated["status"]["nominatedNodeName"] = "n"
    objects = [
        node("n", cpu="3", labels={"kubernetes.io/hostname": "n"}),
        pod("stays", container(cpu="1"), on="n", priority=100, labels={"app": "db"}),
        pod("goes", container(cpu="1"), on="n"),
        nominated,
        pod("p", container(cpu="1"), priority=50, affinity=affinity),
    ]
    assert scheduler(objects).explain("default/p").nominated_node == chosen


class Counting(PreFilter, PodFilter):
    """Refuses a row with more than one pod, as it has counted them."""

    name = "Counting"

    def __init__(self, code):
        self.code = code

    def pre_filter(self, cycle, pod):
        return SUCCESS

    def filter(self, cycle, pod, table, rows):
        return np.where(self.pods[rows] > 1, self.code, PASS).astype(np.int32)

    def add_pod(self, cycle, pod, other, row):
        self.pods[row] += 1

    def remove_pod(self, cycle, pod, other, row):
        self.pods[row] -= 1


def test_filters_with_a_state_of_their_own_are_told_who_leaves_and_comes_back():
    bench = Bench(node("n"))
    victims = [bench.pod(pod(f"v{at}", on="n", priority=at)) for at in range(3)]
    for each in victims:
        bench.cluster.set_pod(each)
    counting = Counting(bench.handle.reasons.intern("Counting", Code.UNSCHEDULABLE, "crowded"))
    counting.pods = np.array([3])
    cycle = CycleState(bench.pod(pod("p", priority=9)))
    filtering = SimpleNamespace(
        pod_filters=lambda cycle: [counting],
        dry_run=lambda cycle, row: int(counting.filter(cycle, cycle.pod, bench.cluster.table, np.array([row]))[0]),
    )
    found = DryRun(bench.cluster, filtering, bench.cluster.shared(Budgets)).on(cycle, 0, victims, 0.0)
    assert [each.name for each in found.victims] == ["v1", "v0"]
    assert counting.pods.tolist() == [3]


@pytest.mark.parametrize(
    ("rooms", "code", "message", "chosen"),
    [
        ("a", Code.ERROR, 'preemption: expected at least one victim pod on node "a"', None),
        (
            "ab",
            Code.ERROR,
            'preemption: [expected at least one victim pod on node "a", expected at least one victim pod on node "b"]',
            None,
        ),
        ("", Code.SUCCESS, "", "a"),
    ],
)
def test_nodes_where_no_pod_is_in_the_way_are_an_error_unless_there_are_others(rooms, code, message, chosen):
    """Some filter has refused them for what it has forgotten now."""
    nodes = [node(name, cpu="2" if name in rooms else "1") for name in "ab"]
    pods = [pod(f"on-{name}", container(cpu="1"), on=name, priority=at) for at, name in enumerate("ab")]
    offline = scheduler([*nodes[: len(rooms) or 2], *pods[: len(rooms) or 2]])
    profile = offline.profiles["default-scheduler"]
    preemptor = offline.add(pod("p", container(cpu="1"), priority=9))
    cycle = CycleState(preemptor)
    refused = profile.handle.reasons.intern("Forgetful", Code.UNSCHEDULABLE, "not now")
    codes = np.full(offline.cluster.table.size, refused, dtype=np.int32)
    outcome = profile.plugins["DefaultPreemption"].post_filter(cycle, preemptor, codes)
    assert (outcome.status.code, outcome.status.message, outcome.nominated_node) == (code, message, chosen)
