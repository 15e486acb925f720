"""What PreBind plugins change of a pod's metadata goes out as one patch, before the binding if that cannot carry it."""

import asyncio
import json
from unittest.mock import patch

import pytest

from koordsched.client.errors import Ambiguous
from koordsched.framework.interface import PreBind, Reserve
from koordsched.framework.status import SKIP, SUCCESS
from koordsched.scheduling.handlers import PodHandler
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

POD = "/api/v1/namespaces/default/pods/p"


def refusal(code, reason, message):
    return code, {}, json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message}).encode()


CONFLICT = refusal(409, "Conflict", "the object has been modified")


class First(PreBind, Reserve):
    """Annotates and labels pods; `during` is awaited in PreBind."""

    name = "First"
    value = "1"

    def __init__(self, args, handle):
        self.unreserved = []
        self.during = None

    def reserve(self, cycle, pod, row):
        return SUCCESS

    def unreserve(self, cycle, pod, row):
        self.unreserved.append(pod.uid)

    def pre_bind_pre_flight(self, cycle, pod, node):
        return SUCCESS

    async def pre_bind(self, cycle, pod, node):
        cycle.patch.annotate("first", self.value)
        cycle.patch.annotate("old", None)
        cycle.patch.label("by", "first")
        if self.during is not None:
            await self.during(cycle, pod)
        return SUCCESS


class Second(PreBind):
    name = "Second"

    def __init__(self, args, handle):
        pass

    def pre_bind_pre_flight(self, cycle, pod, node):
        return SUCCESS

    async def pre_bind(self, cycle, pod, node):
        cycle.patch.annotate("second", node)
        cycle.patch.label("zone", "a")
        return SUCCESS


class Calls:
    """The patches of the pod `p` and of its status, in order; `fault(number)` may answer the former instead."""

    def __init__(self, fault=None):
        self.patches, self.statuses = [], []
        self._fault = fault

    async def __call__(self, call, proceed):
        if call.method == "PATCH" and call.path == POD:
            self.patches.append((asyncio.get_running_loop().time(), json.loads(call.body)))
            if self._fault is not None and (answer := await self._fault(len(self.patches))) is not None:
                return answer
        elif call.method == "PATCH" and call.path == f"{POD}/status":
            self.statuses.append(json.loads(call.body)["status"])
        return await proceed()


def first_of(running):
    return running.scheduler.profiles["default-scheduler"].plugins["First"]


def failure_of(embedded):
    conditions = embedded.get("Pod", "p")["status"].get("conditions", [])
    return next((c["message"] for c in conditions if c["type"] == "PodScheduled"), None)


def test_two_plugins_make_one_patch_after_the_nomination_was_written():
    async def main():
        embedded, calls = Embedded(), Calls()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded, fault=calls, plugins=[First, Second]) as running:
            thing = pod("p", container(cpu="1"))
            thing["metadata"]["annotations"] = {"old": "x", "kept": "y"}
            embedded.insert(thing)
            # The write of nominatedNodeName makes a new version of the pod in between.
            first_of(running).during = lambda cycle, pod: asyncio.sleep(1)
            await asyncio.sleep(3)
            assert [status.get("nominatedNodeName") for status in calls.statuses] == ["alder"]
            ((_, patch),) = calls.patches
            assert patch == {
                "metadata": {
                    "uid": "uid-default-p",
                    "annotations": {"first": "1", "old": None, "second": "alder"},
                    "labels": {"by": "first", "zone": "a"},
                }
            }
            bound = embedded.get("Pod", "p")
            assert bound["metadata"]["annotations"] == {"first": "1", "kept": "y", "second": "alder"}
            assert bound["metadata"]["labels"] == {"by": "first", "zone": "a"}
            assert bound["spec"]["nodeName"] == "alder"
            assert running.attempts == {"default/p": 1}

    run(main())


class Quick(Second):
    """As the plugins that annotate allocations: it changes nothing but the patch."""

    name = "Quick"
    only_patches = True


def test_a_pod_that_is_only_patched_is_not_nominated():
    async def main():
        embedded, calls = Embedded(), Calls()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded, fault=calls, plugins=[Quick]):
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(3)
            assert [patch["metadata"]["annotations"] for _, patch in calls.patches] == [{"second": "alder"}]
            assert embedded.get("Pod", "p")["spec"]["nodeName"] == "alder"
            assert not any("nominatedNodeName" in status for status in calls.statuses)

    run(main())


def test_a_pod_that_shows_all_of_it_is_not_patched():
    async def main():
        embedded, calls = Embedded(), Calls()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded, fault=calls, plugins=[First]):
            thing = pod("p")
            thing["metadata"] |= {"annotations": {"first": "1"}, "labels": {"by": "first"}}
            embedded.insert(thing)
            await asyncio.sleep(1)
            assert embedded.get("Pod", "p")["spec"]["nodeName"] == "alder"
            assert calls.patches == []

    run(main())


def test_a_pod_of_the_same_name_is_left_alone():
    async def main():
        embedded, calls = Embedded(), Calls()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded, fault=calls, plugins=[First]) as running:

            async def replace(cycle, pod_):
                if pod_.uid == "uid-default-p":
                    embedded.registry.delete(embedded.resource("Pod"), "default", "p", grace_period_seconds=0)
                    again = pod("p", container(cpu="1"))
                    again["metadata"] |= {"uid": "another", "annotations": {"first": "1"}, "labels": {"by": "first"}}
                    embedded.insert(again)

            first_of(running).during = replace
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(5)
            assert len(calls.patches) == 1
            assert first_of(running).unreserved == ["uid-default-p"]
            left = embedded.get("Pod", "p")
            assert (left["metadata"]["uid"], left["spec"]["nodeName"]) == ("another", "alder")

    run(main())


def test_conflicts_are_tried_again():
    async def conflicts(number):
        return CONFLICT if number <= 2 else None

    async def main():
        embedded, calls = Embedded(), Calls(conflicts)
        embedded.insert(node("alder"))
        async with scheduler_on(embedded, fault=calls, plugins=[First]) as running:
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(0.9)
            (one, _), (two, _), (three, _) = calls.patches
            assert 0.01 <= two - one <= 0.0111
            assert 0.05 <= three - two <= 0.0551
            assert embedded.get("Pod", "p")["spec"]["nodeName"] == "alder"
            assert running.attempts == {"default/p": 1}

    run(main())


def test_four_conflicts_are_a_failure():
    async def conflicts(number):
        return CONFLICT if number <= 4 else None

    async def main():
        embedded, calls = Embedded(), Calls(conflicts)
        embedded.insert(node("alder"))
        async with scheduler_on(embedded, fault=calls, plugins=[First]) as running:
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(0.9)
            assert len(calls.patches) == 4
            assert first_of(running).unreserved == ["uid-default-p"]
            assert failure_of(embedded).endswith('plugin "DefaultPreBind": the object has been modified')
            await asyncio.sleep(5)
            assert embedded.get("Pod", "p")["spec"]["nodeName"] == "alder"

    run(main())


def test_a_pod_being_deleted_is_not_bound():
    async def main():
        embedded = Embedded()

        async def deleted(number):
            embedded.registry.delete(embedded.resource("Pod"), "default", "p", grace_period_seconds=0)

        calls = Calls(deleted)
        embedded.insert(node("alder"))
        async with scheduler_on(embedded, fault=calls, plugins=[First]) as running:
            thing = pod("p", container(cpu="1"))
            thing["metadata"]["finalizers"] = ["example.com/wait"]
            embedded.insert(thing)
            await asyncio.sleep(5)
            assert len(calls.patches) == 1
            assert first_of(running).unreserved == ["uid-default-p"]
            assert "nodeName" not in embedded.get("Pod", "p")["spec"]
            (condition,) = calls.statuses[-1]["conditions"]
            assert condition["message"] == 'running PreBindExtension plugin "DefaultPreBind": pod is being deleted'

    run(main())


def test_preemption_ends_a_patch_that_takes_its_time():
    async def slow(number):
        if number == 1:
            await asyncio.sleep(3600)

    async def main():
        embedded, calls = Embedded(), Calls(slow)
        embedded.insert(node("alder", cpu="2"))
        async with scheduler_on(embedded, fault=calls, plugins=[First]) as running:
            embedded.insert(pod("p", container(cpu="2")))
            await asyncio.sleep(1)
            assert len(calls.patches) == 1
            embedded.insert(pod("important", container(cpu="2"), priority=100))
            await asyncio.sleep(5)
            assert embedded.get("Pod", "important")["spec"]["nodeName"] == "alder"
            assert "nodeName" not in embedded.get("Pod", "p")["spec"]
            assert first_of(running).unreserved == ["uid-default-p"]
            notes = [event["note"] for event in embedded.events() if event["reason"] == "FailedScheduling"]
            assert 'running PreBindExtension plugin "DefaultPreBind": preempted by a pod of higher priority' in notes

    run(main())


def test_too_many_requests_and_lost_connections_are_tried_again():
    async def troubled(number):
        if number == 1:
            return refusal(429, "TooManyRequests", "slow down")
        if number == 2:
            raise Ambiguous("connection lost after sending")

    async def main():
        embedded, calls = Embedded(), Calls(troubled)
        embedded.insert(node("alder"))
        async with scheduler_on(embedded, fault=calls, plugins=[First]) as running:
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(5)
            assert len({json.dumps(patch) for _, patch in calls.patches}) == 1 < len(calls.patches) - 1
            assert embedded.get("Pod", "p")["metadata"]["annotations"] == {"first": "1"}
            assert running.attempts == {"default/p": 1}

    run(main())


def test_a_patch_whose_answer_is_lost_was_carried_out_and_is_sent_again():
    async def main():
        embedded = Embedded()
        lost = []

        async def fault(call, proceed):
            answer = await proceed()
            if (call.method, call.path) != ("PATCH", POD) or lost:
                return answer
            lost.append(call)
            raise Ambiguous("connection lost after sending")

        embedded.insert(node("alder"))
        async with scheduler_on(embedded, fault=fault, plugins=[First]) as running:
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(5)
            assert len(lost) == 1
            assert embedded.get("Pod", "p")["spec"]["nodeName"] == "alder"
            assert (first_of(running).unreserved, running.attempts) == ([], {"default/p": 1})

    run(main())


def test_a_refusal_is_final():
    async def refused(number):
        return refusal(403, "Forbidden", "a webhook says no") if number == 1 else None

    async def main():
        embedded, calls = Embedded(), Calls(refused)
        embedded.insert(node("alder"))
        async with scheduler_on(embedded, fault=calls, plugins=[First]) as running:
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(0.5)
            assert failure_of(embedded) == 'running PreBindExtension plugin "DefaultPreBind": a webhook says no'
            assert (len(calls.patches), first_of(running).unreserved) == (1, ["uid-default-p"])

    run(main())


BINDING = f"{POD}/binding"


@pytest.mark.parametrize("again", ["1", None], ids=["as before", "nothing"])
def test_what_an_attempt_in_vain_wrote_is_overwritten_also_while_the_watch_is_late(again):
    """`again`: what the second attempt wants; None if the plugin has nothing to write then."""

    async def main():
        embedded, refused = Embedded(), []

        async def fault(call, proceed):
            if call.path == BINDING and not refused:
                refused.append(embedded.get("Pod", "p")["metadata"]["annotations"])
                return refusal(403, "Forbidden", "not now")
            return await proceed()

        embedded.insert(node("alder"))
        async with scheduler_on(embedded, fault=fault, plugins=[First]) as running:
            plugin = first_of(running)
            plugin.value = "2"

            async def then(cycle, pod):
                plugin.value, plugin.during = again, None
                plugin.pre_bind_pre_flight = lambda *asked: SUCCESS if again else SKIP

            plugin.during = then
            thing = pod("p", container(cpu="1"))
            thing["metadata"]["annotations"] = {"first": "1"}
            embedded.insert(thing)
            await asyncio.sleep(0)
            upsert = PodHandler.upsert

            def late(handler, wire):
                if wire.spec.node_name or wire.metadata.annotations == {"first": "1"}:
                    upsert(handler, wire)

            with patch.object(PodHandler, "upsert", late):
                await asyncio.sleep(10)
            assert refused == [{"first": "2"}]
            bound = embedded.get("Pod", "p")
            assert (bound["spec"].get("nodeName"), bound["metadata"]["annotations"]) == ("alder", {"first": "1"})
            assert not running.scheduler.binding._written

    run(main())
