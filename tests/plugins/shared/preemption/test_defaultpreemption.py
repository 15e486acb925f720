"""DefaultPreemption at its extension points: who waits outside of the queue, and for whose end."""

from types import SimpleNamespace

import numpy as np
import pytest

from koordsched.cluster.events import POD, ActionType
from koordsched.framework.interface import CycleState
from koordsched.framework.status import Code
from koordsched.plugins.defaultpreemption.plugin import GROUP_GATES, WAITING
from koordsched.queue.hints import QueueingHint
from tests.plugins.harness import Bench, scheduler
from tests.plugins.objects import container, node, pod

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
