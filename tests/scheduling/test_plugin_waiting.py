"""What plugins do about pods that wait on Permit or in the queue, and what replays make of it."""

import asyncio

from koordsched.framework.interface import Permit
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.journal.records import Undone
from tests.embedded import Embedded
from tests.extraplugins import catalog_with, registry_with
from tests.journal.recording import Recorded, repeat
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run


class Gang(Permit):
    """Lets pods of one gang go when there are two of them, within ten seconds; one whose name ends in `bad` fails it.

    When a pod labelled `calls` is placed, the pods that it calls are tried at once.
    """

    name = "Gang"

    def __init__(self, args, handle):
        self.handle = handle
        self.known = {}
        handle.cluster.add_observer(self)

    def pod_seen(self, pod, assigned):
        self.known[pod.name] = pod

    def pod_gone(self, uid):
        pass

    def pod_assigned(self, pod, assigned):
        pass

    def permit(self, cycle, pod, row):
        labels = pod.wire.metadata.labels
        if called := labels.get("calls"):
            self.handle.activate([self.known[called]])
        gang = labels.get("gang")
        if gang is None:
            return SUCCESS, 0.0
        others = [each for each in self.handle.waiting if each.pod.wire.metadata.labels.get("gang") == gang]
        if not others:
            return Status(Code.WAIT), 10.0
        for other in others:
            assert other.pending_plugins == (self.name,)
            if pod.name.endswith("bad"):
                assert other.reject(self.name, f"{pod.name} spoils it")
            else:
                other.allow(self.name)
        return (Status(Code.UNSCHEDULABLE, ("spoilt",)) if pod.name.endswith("bad") else SUCCESS), 0.0

    def events_to_register(self):
        return []


def play(steps):
    """Records what the steps do, repeats the journal from each of its segments."""

    async def main():
        embedded = Embedded()
        recorded = Recorded(embedded, plugins=[Gang], seconds_per_segment=4)
        async with recorded.running() as scheduler:
            await steps(embedded, scheduler)
        return recorded

    recorded = run(main())
    assert recorded.journal.problems == []
    for segment in range(len(recorded.journal.segments)):
        records = recorded.journal.records(segment)
        repetition, replay = repeat(records, None, registry_with([Gang]), catalog_with([Gang]))
        assert repetition.divergence is None, segment
        assert placed(replay.replayed.scheduler) == placed(recorded.scheduler)
    return recorded


def placed(scheduler):
    return {each.key: each.node for each in scheduler.cluster.assigned.values()}


def node_of(embedded, name):
    return embedded.get("Pod", name)["spec"].get("nodeName")


def message_of(embedded, name):
    conditions = embedded.get("Pod", name)["status"].get("conditions", [])
    return next((each["message"] for each in conditions if each["type"] == "PodScheduled"), None)


def member(name, gang, cpu="1"):
    return pod(name, container(cpu=cpu), labels={"gang": gang})


def test_the_first_waits_and_the_second_lets_both_go():
    async def steps(embedded, scheduler):
        embedded.insert(node("alder"))
        embedded.insert(member("a1", "a"))
        embedded.insert(member("b1", "b"))
        await asyncio.sleep(3)
        assert len(scheduler.waiting) == 2
        assert (node_of(embedded, "a1"), node_of(embedded, "b1")) == (None, None)
        embedded.insert(member("a2", "a"))
        await asyncio.sleep(2)
        assert (node_of(embedded, "a1"), node_of(embedded, "a2")) == ("alder", "alder")
        assert node_of(embedded, "b1") is None
        embedded.insert(member("b2", "b"))
        await asyncio.sleep(2)
        assert (node_of(embedded, "b1"), node_of(embedded, "b2")) == ("alder", "alder")
        assert len(scheduler.waiting) == 0

    play(steps)


def test_the_time_is_out():
    async def steps(embedded, scheduler):
        embedded.insert(node("alder"))
        embedded.insert(member("a1", "a", cpu="4"))
        await asyncio.sleep(9)
        assert (len(scheduler.waiting), node_of(embedded, "a1")) == (1, None)
        await asyncio.sleep(2.5)
        assert len(scheduler.waiting) == 0
        assert "rejected due to timeout after waiting 10s at plugin Gang" in message_of(embedded, "a1")
        embedded.insert(pod("p", container(cpu="4")))
        await asyncio.sleep(3)
        assert node_of(embedded, "p") == "alder"

    recorded = play(steps)
    assert [record.plugin for record in recorded.journal.records() if isinstance(record, Undone)] == ["Gang"]


def test_one_rejects_the_other():
    async def steps(embedded, scheduler):
        embedded.insert(node("alder"))
        embedded.insert(member("a1", "a"))
        await asyncio.sleep(1)
        embedded.insert(member("bad", "a"))
        await asyncio.sleep(2)
        assert message_of(embedded, "a1") == "0/1 nodes are available: 1 bad spoils it."
        assert message_of(embedded, "bad") == "0/1 nodes are available: 1 spoilt."
        assert placed(scheduler) == {}

    play(steps)


def test_activate_has_an_unschedulable_pod_tried_at_once():
    async def steps(embedded, scheduler):
        embedded.insert(node("alder"))
        embedded.insert(pod("big", container(cpu="40")))
        await asyncio.sleep(12)
        queued = scheduler.queue.get("default/big")
        assert (queued.attempts, queued.place.name) == (1, "UNSCHEDULABLE")
        embedded.insert(pod("caller", container(cpu="1"), labels={"calls": "big"}))
        await asyncio.sleep(0.5)
        assert scheduler.queue.get("default/big").attempts == 2

    play(steps)
