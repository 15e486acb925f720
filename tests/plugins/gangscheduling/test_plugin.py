"""The plugin by itself: Permit, hints, and what is written of conditions."""

import asyncio
from types import SimpleNamespace

import pytest

from koordsched.framework.jobs import Ending
from koordsched.framework.status import Code
from koordsched.plugins.gangscheduling.controller import PodGroupConditions, changed_conditions, outcome_of
from koordsched.plugins.gangscheduling.plugin import GATES, GangScheduling
from koordsched.plugins.shared.podgroups import Condition, PodGroup, PodGroupStatus
from tests.plugins.gangscheduling.test_offline import group, member
from tests.plugins.harness import Bench
from tests.plugins.objects import node, pod
from tests.waiting import until


class Waiting(dict):
    """Pods that wait on Permit, and those that were allowed."""

    def __init__(self):
        super().__init__()
        self.allowed = []

    def hold(self, uid):
        self[uid] = SimpleNamespace(allow=lambda plugin: self.allowed.append((uid, plugin)))


@pytest.fixture
def bench():
    made = Bench()
    made.handle.features = GATES
    made.handle.waiting = Waiting()
    made.handle.activate = lambda pods: None
    made.plugin = GangScheduling(None, made.handle)
    made.add(node("n1"))
    return made


def pending(bench, *names):
    found = [bench.pod(member(name)) for name in names]
    for each in found:
        bench.cluster.pod_seen(each)
    return found


def test_permit_waits_for_min_count_and_allows_those_that_waited(bench):
    bench.add(group(3))
    pods = pending(bench, "a", "b", "c")
    answers = []
    for each in pods:
        bench.cluster.assume(each, 0)
        status, seconds = bench.plugin.permit(None, each, 0)
        answers.append((status.code, status.message, seconds))
        if status.code is Code.WAIT:
            bench.handle.waiting.hold(each.uid)
    waits = (Code.WAIT, "waiting for minCount pods from a gang to be scheduled", 300.0)
    assert answers == [waits, waits, (Code.SUCCESS, "", 0.0)]
    allowed = sorted(bench.handle.waiting.allowed)
    assert allowed == sorted((each.uid, "GangScheduling") for each in pods[:2])


def test_a_pod_that_lost_its_place_counts_no_more(bench):
    bench.add(group(2))
    first, second = pending(bench, "a", "b")
    bench.cluster.assume(first, 0)
    assert bench.plugin.permit(None, first, 0)[0].code is Code.WAIT
    bench.cluster.forget(first)
    bench.cluster.assume(second, 0)
    assert bench.plugin.permit(None, second, 0)[0].code is Code.WAIT


def test_a_pod_whose_group_is_gone_is_not_let_go(bench):
    (alone,) = pending(bench, "a")
    status, seconds = bench.plugin.permit(None, alone, 0)
    assert (status.code, seconds) == (Code.UNRESOLVABLE, 0.0)


def test_without_its_gates_it_does_nothing():
    made = Bench()
    for features in (frozenset(), frozenset(("GangScheduling",)), frozenset(("GenericWorkload",))):
        made.handle.features = features
        plugin = GangScheduling(None, made.handle)
        alone = made.pod(member("a"))
        assert plugin.pre_enqueue(alone).ok
        assert plugin.begin_job(alone) is None
        assert list(plugin.events_to_register()) == []
        assert plugin.permit(None, alone, 0)[0].ok
    assert made.cluster.objects.wanted() == []


def test_hints_concern_the_pods_of_the_same_group(bench):
    by_event = {each.event.label: each.scope for each in bench.plugin.events_to_register()}
    assert set(by_event) == {"PodAdd", "scheduling.k8s.io/PodGroupAdd"}
    (waits,) = pending(bench, "a")
    (new,) = pending(bench, "b")
    other = bench.pod(pod("loner"))
    assert by_event["PodAdd"].concerns(waits, None, new)
    assert not by_event["PodAdd"].concerns(waits, None, other)
    for name, expected in (("g", True), ("h", False)):
        appeared = PodGroup(metadata=type(PodGroup().metadata)(namespace="default", name=name))
        assert by_event["scheduling.k8s.io/PodGroupAdd"].concerns(waits, None, appeared) is expected


def conditions(*given, generation=1):
    meta = type(PodGroup().metadata)(namespace="default", name="g", uid="u", generation=generation)
    return PodGroup(metadata=meta, status=PodGroupStatus(given))


SCHEDULED = Condition("PodGroupScheduled", "True", 1, "T0", "Scheduled", "")
FAILED = Condition("PodGroupScheduled", "False", 1, "T0", "Unschedulable", "m")
OTHER = Condition("DisruptionTarget", "False", 1, "T0", "x", "y")


@pytest.mark.parametrize(
    ("before", "ending", "message", "expected"),
    [
        ((), Ending.UNSCHEDULABLE, "m", (Condition("PodGroupScheduled", "False", 1, "T1", "Unschedulable", "m"),)),
        (
            (),
            Ending.WAITING_ON_PREEMPTION,
            "w",
            (Condition("PodGroupScheduled", "False", 1, "T1", "Unschedulable", "w"),),
        ),
        ((), Ending.ERROR, "e", (Condition("PodGroupScheduled", "False", 1, "T1", "SchedulerError", "e"),)),
        (
            (FAILED, OTHER),
            Ending.SCHEDULED,
            "",
            (Condition("PodGroupScheduled", "True", 1, "T1", "Scheduled", ""), OTHER),
        ),
        (
            (OTHER, FAILED),
            Ending.UNSCHEDULABLE,
            "n",
            (OTHER, Condition("PodGroupScheduled", "False", 1, "T0", "Unschedulable", "n")),
        ),
        ((FAILED,), Ending.UNSCHEDULABLE, "m", None),
        ((SCHEDULED,), Ending.UNSCHEDULABLE, "m", None),
        ((SCHEDULED,), Ending.ERROR, "m", None),
        ((SCHEDULED,), Ending.SCHEDULED, "", None),
    ],
)
def test_what_is_written(before, ending, message, expected):
    found = conditions(*before)
    assert changed_conditions(found, outcome_of(found, ending, message), "T1") == expected


class Writes:
    """Notes the conditions that are written."""

    def __init__(self):
        self.said = []

    async def merge(self, kind, meta, patch, subresource):
        (condition,) = patch["status"]["conditions"]
        self.said.append((meta.uid, condition["status"]))


@pytest.mark.parametrize(
    ("endings", "expected"),
    [
        # Pods that come later do not matter.
        ([("u", Ending.SCHEDULED), ("u", Ending.UNSCHEDULABLE)], ("u", "True")),
        ([("u", Ending.UNSCHEDULABLE), ("u", Ending.SCHEDULED)], ("u", "True")),
        # Another group of the same name.
        ([("u", Ending.SCHEDULED), ("v", Ending.UNSCHEDULABLE)], ("v", "False")),
    ],
)
async def test_a_group_stays_scheduled_also_before_that_is_written(bench, endings, expected):
    writes = Writes()
    controller = PodGroupConditions(bench.plugin, None, SimpleNamespace(writes=writes, clock=bench.handle.clock))
    for uid, ending in endings:
        made = group(1)
        made["metadata"]["uid"] = uid
        bench.add(made)
        bench.plugin.cache.ended("default/g", ending, "m")
    work = asyncio.ensure_future(controller.run())
    await until(lambda: writes.said, "a condition")
    work.cancel()
    assert writes.said == [expected]
