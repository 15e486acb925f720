"""Hooks around PreFilter and PostFilter, events of plugins on any object, and plugins that find each other."""

import asyncio
from random import Random

import pytest

from koordsched.framework.interface import (
    AfterPostFilter,
    BeforePreFilter,
    Bind,
    PodFilter,
    PreBind,
    PreFilter,
    Reserve,
)
from koordsched.framework.status import SKIP, SUCCESS, Code, Status
from koordsched.plugins.elasticquota.kinds import ELASTIC_QUOTAS
from koordsched.scheduling.offline import OfflineScheduler
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.extender.service import Service, everything, extended, extender, serving
from tests.extraplugins import registry_with, resolved_with
from tests.journal.test_replay import CRDS, quota
from tests.plugins.harness import StoppedClock
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run
from tests.waiting import until
from tests.yamlfiles import documents

REJECTS = Status(Code.UNRESOLVABLE, ("not today",))
FAILS = Status(Code.ERROR, ("no idea",))


class Hooked(BeforePreFilter, PreFilter, AfterPostFilter):
    """Notes when it is called; `answers`: by pod name, what the first hook says."""

    name = "Hooked"

    def __init__(self, args, handle):
        self.calls, self.acted, self.answers = [], [], {}

    def events_to_register(self):
        return []

    def before_pre_filter(self, cycle, pod):
        self.calls.append(("before", pod.name))
        cycle.state[self.name] = "seen"
        return self.answers.get(pod.name, SUCCESS)

    def pre_filter(self, cycle, pod):
        assert cycle.state[self.name] == "seen"
        self.calls.append(("pre", pod.name))
        return SUCCESS

    def after_post_filter(self, cycle, pod, codes, result):
        self.calls.append(("after", pod.name, result.status.code, result.nominated_node))
        result.also(lambda: self.acted.append(pod.name))


class Second(BeforePreFilter, PodFilter):
    """Comes after it."""

    name = "Second"

    def __init__(self, args, handle):
        self.calls = []

    def before_pre_filter(self, cycle, pod):
        assert cycle.state["Hooked"] == "seen"
        self.calls.append(pod.name)
        return SUCCESS

    def filter(self, cycle, pod, table, rows):
        return None


class Unprepared(PreBind):
    """Cannot say before the binding whether it has work to do."""

    name = "Unprepared"

    def __init__(self, args, handle):
        pass

    def events_to_register(self):
        return []

    def pre_bind_pre_flight(self, cycle, pod, node):
        return FAILS

    async def pre_bind(self, cycle, pod, node):
        return SUCCESS


class Declines(Bind):
    """Binds no pods."""

    name = "Declines"

    def __init__(self, args, handle):
        pass

    def events_to_register(self):
        return []

    async def bind(self, cycle, pod, node):
        return SKIP


def plugin_of(running, name):
    return running.scheduler.profiles["default-scheduler"].plugins[name]


def condition_of(embedded, name):
    conditions = embedded.get("Pod", name)["status"].get("conditions", [])
    return next(((c["reason"], c["message"]) for c in conditions if c["type"] == "PodScheduled"), None)


def node_of(embedded, name):
    return embedded.get("Pod", name)["spec"].get("nodeName")


def cluster(*names):
    embedded = Embedded()
    for name in names:
        embedded.insert(node(name))
    return embedded


def test_before_pre_filter_comes_first_and_success_changes_nothing():
    async def main():
        embedded = cluster("alder")
        async with scheduler_on(embedded, plugins=[Hooked, Second]) as running:
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(1)
            assert node_of(embedded, "p") == "alder"
            assert plugin_of(running, "Hooked").calls == [("before", "p"), ("pre", "p")]
            assert plugin_of(running, "Second").calls == ["p"]

    run(main())


def test_before_pre_filter_may_skip_the_pre_filter_of_its_plugin():
    async def main():
        embedded = cluster("alder")
        async with scheduler_on(embedded, plugins=[Hooked, Second]) as running:
            hooked, second = plugin_of(running, "Hooked"), plugin_of(running, "Second")
            hooked.answers |= dict.fromkeys(("p", "huge"), Status(Code.SKIP))
            embedded.insert(pod("p", container(cpu="1")))
            embedded.insert(pod("huge", container(cpu="40")))
            await asyncio.sleep(1)
            assert node_of(embedded, "p") == "alder"
            assert hooked.calls[:2] == [("before", "p"), ("before", "huge")]
            assert hooked.calls[2:] == [("after", "huge", Code.UNSCHEDULABLE, "")]
            assert second.calls == ["p", "huge"]

    run(main())


@pytest.mark.parametrize(
    ("answer", "condition", "after"),
    [
        (
            REJECTS,
            # As for every PreFilter plugin before it: DynamicResources misses the state of its own.
            ("Unschedulable", "0/2 nodes are available: not today. not found"),
            [("after", "p", Code.ERROR, None)],
        ),
        (FAILS, ("SchedulerError", 'running BeforePreFilter of plugin "Hooked": no idea'), []),
    ],
)
def test_before_pre_filter_ends_the_attempt(answer, condition, after):
    async def main():
        embedded = cluster("alder", "beech")
        async with scheduler_on(embedded, plugins=[Hooked, Second]) as running:
            hooked = plugin_of(running, "Hooked")
            hooked.answers["p"] = answer
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(0.5)
            assert hooked.calls == [("before", "p"), *after]
            assert plugin_of(running, "Second").calls == []
            reason, message = condition_of(embedded, "p")
            assert (reason, message) == condition
            queued = running.scheduler.queue.get("default/p")
            assert queued.rejected_by == (frozenset({"Hooked"}) if after else frozenset())

    run(main())


def test_after_post_filter_sees_what_came_of_it_and_acts_with_it():
    async def main():
        embedded = cluster("alder")
        embedded.insert(pod("low", container(cpu="4"), on="alder"))
        async with scheduler_on(embedded, plugins=[Hooked]) as running:
            hooked = plugin_of(running, "Hooked")
            embedded.insert(pod("huge", container(cpu="40")))
            await asyncio.sleep(1)
            assert hooked.calls[2:] == [("after", "huge", Code.UNSCHEDULABLE, "")]
            embedded.insert(pod("high", container(cpu="4"), priority=10))
            await asyncio.sleep(0.5)
            assert ("after", "high", Code.SUCCESS, "alder") in hooked.calls
            assert hooked.acted == ["huge", "high"]

    run(main())


def test_an_explanation_does_not_act():
    objects = [node("alder"), pod("p", container(cpu="40"))]
    resolved = resolved_with(DEFAULT_CONFIG, [Hooked])
    offline = OfflineScheduler(resolved, registry_with([Hooked]), objects, clock=StoppedClock(), rng=Random(1))
    offline.explain("default/p")
    hooked = offline.profiles["default-scheduler"].plugins["Hooked"]
    assert [call[0] for call in hooked.calls] == ["before", "pre", "after"]
    assert hooked.acted == []


def test_profiles_without_hooks_have_none():
    resolved = resolved_with(DEFAULT_CONFIG, [])
    offline = OfflineScheduler(resolved, registry_with([]), [], clock=StoppedClock(), rng=Random(1))
    profile = offline.profiles["default-scheduler"]
    assert (profile.before_pre_filter_plugins, profile.after_post_filter_plugins) == ((), ())


async def test_with_extenders():
    service = Service(filter=everything, preempt=lambda body: {"NodeNameToMetaVictims": {}})
    embedded = cluster("alder")
    embedded.insert(pod("low", container(cpu="4"), on="alder"))
    async with serving(service):
        configuration = extended(extender(service, "filter", "preempt"))
        async with scheduler_on(embedded, configuration, plugins=[Hooked]) as running:
            hooked = plugin_of(running, "Hooked")
            hooked.answers["refused"] = REJECTS
            embedded.insert(pod("high", container(cpu="4"), priority=10))
            await until(lambda: hooked.acted == ["high"], "the end of the attempt")
            # The extender objected to the only candidate.
            after = ("after", "high", Code.UNSCHEDULABLE, None)
            assert hooked.calls == [("before", "high"), ("pre", "high"), after]
            embedded.insert(pod("refused", container(cpu="1")))
            await until(lambda: condition_of(embedded, "refused"), "the refusal")
            assert "not today" in condition_of(embedded, "refused")[1]
            assert ("pre", "refused") not in hooked.calls


class Reports(Reserve):
    """Writes events about quotas and pods that it reserves for."""

    name = "Reports"

    def __init__(self, args, handle):
        self.handle = handle
        handle.cluster.objects.of(ELASTIC_QUOTAS).subscribe(lambda old, new: None)

    def reserve(self, cycle, pod, row):
        for each in self.handle.cluster.objects.of(ELASTIC_QUOTAS):
            self.handle.events.event(ELASTIC_QUOTAS, each.metadata, "Warning", "Full", "no more", action="Counting")
        self.handle.events.pod_event(pod, "Normal", "Counted", "one more", action="Counting")
        return SUCCESS

    def unreserve(self, cycle, pod, row):
        pass


def test_events_on_custom_objects_and_pods():
    async def main():
        embedded = cluster("alder")
        for crd in documents(CRDS):
            embedded.insert(crd)
        embedded.insert(quota("team", "3"))
        async with scheduler_on(embedded, plugins=[Reports]):
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(3)
        stored = embedded.get("ElasticQuota", "team", api_version="scheduling.sigs.k8s.io/v1alpha1")
        full, counted = (next(e for e in embedded.events() if e["reason"] == reason) for reason in ("Full", "Counted"))
        assert full["regarding"] == {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "namespace": "default",
            "name": "team",
            "uid": stored["metadata"]["uid"],
        }
        assert (full["type"], full["note"], full["action"]) == ("Warning", "no more", "Counting")
        assert full["metadata"]["namespace"] == "default"
        regarding = counted["regarding"]
        assert (regarding["apiVersion"], regarding["kind"], regarding["name"]) == ("v1", "Pod", "p")
        assert regarding["uid"] == "uid-default-p"
        assert counted["reportingController"] == "default-scheduler"

    run(main())


def test_offline_events_are_dropped():
    objects = [node("alder"), quota("team", "3"), pod("p", container(cpu="1"))]
    resolved = resolved_with(DEFAULT_CONFIG, [Reports])
    offline = OfflineScheduler(resolved, registry_with([Reports]), objects, clock=StoppedClock(), rng=Random(1))
    assert offline.schedule("default/p").node == "alder"


def test_a_pod_that_no_plugin_binds_says_so():
    async def main():
        embedded = cluster("alder")
        profile = {"plugins": {"bind": {"disabled": [{"name": "DefaultBinder"}]}}}
        async with scheduler_on(embedded, {**DEFAULT_CONFIG, "profiles": [profile]}, plugins=[Declines]):
            embedded.insert(pod("p"))
            await asyncio.sleep(1)
            assert condition_of(embedded, "p") == ("SchedulerError", "no bind plugin took the pod")

    run(main())


def test_a_pod_whose_binding_a_plugin_cannot_prepare_says_so():
    async def main():
        embedded = cluster("alder")
        async with scheduler_on(embedded, plugins=[Unprepared]):
            embedded.insert(pod("p"))
            await asyncio.sleep(1)
            assert condition_of(embedded, "p") == ("SchedulerError", 'running PreBindPreFlight "Unprepared": no idea')
            assert "nodeName" not in embedded.get("Pod", "p")["spec"]

    run(main())
