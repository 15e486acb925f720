"""Who are equivalent pods under the default plugins, and what users see of those that were not tried themselves."""

import asyncio

import pytest

from koordsched.cluster.events import NODE_ADD, POD, ActionType, ClusterEvent
from koordsched.framework.interface import (
    BeforePreFilter,
    PostFilter,
    PostFilterResult,
    PreFilter,
    Reserve,
    TellsPodsApart,
)
from koordsched.framework.status import SKIP, SUCCESS, Code, Status
from koordsched.queue.hints import GroupBy, HintRegistration, Scope
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs-uid", "controller": True}
CLAIM = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
QUOTAS = {
    **DEFAULT_CONFIG,
    "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "ElasticQuota"}]}}}],
}


class Tenants(BeforePreFilter, Reserve):
    """Takes pods of one tenant for alike."""

    name = "Tenants"

    def __init__(self, args, handle):
        pass

    def events_to_register(self):
        tenant = GroupBy(lambda pod: pod.wire.metadata.annotations["tenant"])
        return [HintRegistration(self.name, NODE_ADD, None, tenant)]

    def before_pre_filter(self, cycle, pod):
        return SUCCESS

    def reserve(self, cycle, pod, row):
        return SUCCESS

    def unreserve(self, cycle, pod, row):
        pass


class Knowing(TellsPodsApart):
    """Takes pods of one tenant for alike, and others for cases of their own."""

    def __init__(self, args, handle):
        pass

    def events_to_register(self):
        return []

    def identity(self, pod):
        return pod.wire.metadata.annotations.get("tenant")


class KnowingFilter(Knowing, PreFilter):
    name = "KnowingFilter"

    def pre_filter(self, cycle, pod):
        return SKIP


class KnowingHook(Knowing, Tenants):
    name = "KnowingHook"


def owned(thing, **owner):
    thing["metadata"]["ownerReferences"] = [{**OWNER, **owner}]
    return thing


def big(name, **more):
    return pod(name, container(cpu="100"), **more)


def condition_of(embedded, name):
    (condition,) = [c for c in embedded.get("Pod", name)["status"]["conditions"] if c["type"] == "PodScheduled"]
    return condition


async def evaluated(embedded, running, things):
    """Inserts pods one after the other; the names of those that were evaluated.

    A pod whose name is a part of some word in its message would not pass for anybody else, so names are long here.
    """
    found = []
    for profile in running.scheduler.profiles.values():
        original = profile.filtering.filter

        def noting(cycle, *args, original=original, **more):
            found.append(cycle.pod.name)
            return original(cycle, *args, **more)

        profile.filtering.filter = noting
    for thing in things:
        embedded.insert(thing)
        await asyncio.sleep(0.01)
    return found


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        (big("first"), big("second"), True),
        (big("first", labels={"app": "x"}), big("second", labels={"app": "x"}), True),
        (big("first", labels={"app": "x"}), big("second", labels={"app": "y"}), False),
        (big("first"), big("second", namespace="other"), False),
        (big("first"), pod("second", container(cpu="101")), False),
        (big("first"), big("second", priority=1), False),
        (big("first"), big("second", tolerations=[{"operator": "Exists"}]), False),
        (owned(big("first")), owned(big("second")), True),
        (owned(big("first")), owned(big("second"), name="rs2"), False),
        (big("first", volumes=CLAIM), big("second", volumes=CLAIM), False),
    ],
    ids=["equal", "labels", "other-label", "namespace", "size", "priority", "tolerations", "owner", "owners", "claims"],
)
@pytest.mark.parametrize("configuration", [None, QUOTAS], ids=["default", "quotas"])
def test_equivalent_pods(first, second, alike, configuration):
    async def main():
        embedded = Embedded()
        embedded.insert(node("n", cpu="4"))
        async with scheduler_on(embedded, configuration) as running:
            assert await evaluated(embedded, running, [first, second]) == (["first"] if alike else ["first", "second"])

    run(main())


@pytest.mark.parametrize("plugin", [Tenants, KnowingFilter, KnowingHook])
def test_plugins_tell_pods_apart_as_well(plugin):
    async def main():
        embedded = Embedded()
        embedded.insert(node("n", cpu="4"))
        async with scheduler_on(embedded, plugins=[plugin]) as running:
            pods = [big("first"), big("second"), big("third")]
            for thing, tenant in zip(pods, "aab", strict=True):
                thing["metadata"]["annotations"] = {"tenant": tenant}
            assert await evaluated(embedded, running, pods) == ["first", "third"]

    run(main())


@pytest.mark.failing_hints
def test_pods_that_a_plugin_cannot_tell_apart_are_tried_each():
    async def main():
        embedded = Embedded()
        embedded.insert(node("n", cpu="4"))
        async with scheduler_on(embedded, plugins=[Tenants]) as running:
            pods = [big("first"), big("second"), big("third")]
            pods[2]["metadata"]["annotations"] = {"tenant": "a"}
            assert await evaluated(embedded, running, pods) == ["first", "second", "third"]
            embedded.insert(node("large", cpu="400"))
            await asyncio.sleep(20)
            assert [embedded.get("Pod", thing["metadata"]["name"])["spec"]["nodeName"] for thing in pods] == [
                "large"
            ] * 3

    run(main())


class Acts(PostFilter):
    """Its hints take each pod for a case of its own, and it says nothing of shapes."""

    name = "Acts"

    def __init__(self, args, handle):
        pass

    def events_to_register(self):
        return [HintRegistration(self.name, ClusterEvent(POD, ActionType.DELETE), None, Scope.POD)]

    def post_filter(self, cycle, pod, codes):
        return PostFilterResult(Status(Code.UNSCHEDULABLE))


class TreatsAlike(Acts):
    """Has the same answer for all pods of a shape."""

    def treats_alike(self, shape):
        return True


@pytest.mark.parametrize(("plugin", "alike"), [(Acts, False), (TreatsAlike, True)])
def test_plugins_that_act_for_single_pods_are_asked_for_each(plugin, alike):
    async def main():
        embedded = Embedded()
        embedded.insert(node("n", cpu="4"))
        async with scheduler_on(embedded, plugins=[plugin]) as running:
            found = await evaluated(embedded, running, [big("first"), big("second")])
            assert found == (["first"] if alike else ["first", "second"])

    run(main())


def test_each_equivalent_pod_is_reported_and_counted_as_if_it_had_been_evaluated():
    async def main():
        embedded = Embedded()
        embedded.insert(node("n", cpu="4"))
        async with scheduler_on(embedded) as running:
            assert await evaluated(embedded, running, [big(f"p{i}") for i in range(5)]) == ["p0"]
            await asyncio.sleep(1)
            told = [condition_of(embedded, f"p{i}") for i in range(5)]
            assert {(c["reason"], c["message"]) for c in told} == {
                (
                    "Unschedulable",
                    "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: "
                    "0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
                )
            }
            failed = {e["regarding"]["name"] for e in embedded.events() if e["reason"] == "FailedScheduling"}
            assert failed == {f"p{i}" for i in range(5)}
            assert set(running.attempts.values()) == {1}
            assert running.scheduler.queue.pending()["unschedulable"] == 5

    run(main())


def test_those_that_rest_keep_their_word_and_get_their_turn():
    async def main():
        embedded = Embedded()
        embedded.insert(node("n", cpu="4"))
        async with scheduler_on(embedded) as running:
            await evaluated(embedded, running, [big(f"p{i}") for i in range(5)])
            await asyncio.sleep(3)
            before = [condition_of(embedded, f"p{i}") for i in range(5)]
            embedded.insert(node("taken", cpu="150"))
            embedded.insert(pod("resident", container(cpu="60"), on="taken"))
            await asyncio.sleep(5)
            # One of them looked at the new node, for all.
            assert sum(running.attempts.values()) <= 5 + 2
            after = [condition_of(embedded, f"p{i}") for i in range(5)]
            assert sum(old != new for old, new in zip(before, after, strict=True)) == 1
            embedded.insert(node("roomy", cpu="350"))
            await asyncio.sleep(15)
            assert sum("nodeName" in embedded.get("Pod", f"p{i}")["spec"] for i in range(5)) == 3
            assert running.scheduler.queue.pending()["unschedulable"] == 2
            embedded.registry.delete(embedded.resource("Pod"), "default", "resident", grace_period_seconds=0)
            await asyncio.sleep(15)
            assert sum("nodeName" in embedded.get("Pod", f"p{i}")["spec"] for i in range(5)) == 4

    run(main())


def test_each_equivalent_pod_finds_victims_of_its_own():
    async def main():
        embedded = Embedded()
        for i in range(3):
            embedded.insert(node(f"n{i}", cpu="4"))
            embedded.insert(pod(f"low{i}", container(cpu="3"), on=f"n{i}"))
        Kubelet(embedded)
        async with scheduler_on(embedded):
            for i in range(4):
                embedded.insert(pod(f"high{i}", container(cpu="3"), priority=10))
            await asyncio.sleep(60)
            nodes = [embedded.get("Pod", f"high{i}")["spec"].get("nodeName") for i in range(4)]
            assert sorted(filter(None, nodes)) == ["n0", "n1", "n2"]
            assert all(embedded.get("Pod", f"low{i}") is None for i in range(3))

    run(main())
