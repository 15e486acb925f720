"""Pods that wait without having been refused say so, after a while, in a condition of their own."""

import asyncio

from koordsched.framework.interface import PreEnqueue
from koordsched.framework.status import Code, Status
from koordsched.scheduling.podstatus import WAITING
from koordsched.scheduling.waitnotices import AFTER, AT_ONCE, WaitNotices
from tests.embedded import Embedded, scheduler_on
from tests.plugins.harness import Bench
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run


def waiting_condition(embedded, name):
    """(status, reason, message) of the Waiting condition, or None."""
    for condition in embedded.get("Pod", name)["status"].get("conditions", []):
        if condition["type"] == WAITING:
            return condition["status"], condition["reason"], condition["message"]
    return None


def test_a_pod_waiting_on_permit_says_so_until_it_is_bound(picky):
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded) as running:
            picky[0].wait = 60.0
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(AFTER - 1)
            assert waiting_condition(embedded, "p") is None
            await asyncio.sleep(3)
            assert waiting_condition(embedded, "p") == (
                "True",
                "WaitingOnPermit",
                "placed on alder, waiting for plugin Picky",
            )
            (waiting,) = running.scheduler.waiting
            waiting.allow("Picky")
            await asyncio.sleep(1)
            assert embedded.get("Pod", "p")["spec"]["nodeName"] == "alder"
            assert waiting_condition(embedded, "p") == ("False", "Resumed", "")

    run(main())


def test_a_preemptor_gated_behind_slow_evictions_says_so():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="2"))
        for i in range(2):
            embedded.insert(pod(f"v{i}", container(cpu="1"), on="alder"))

        async def fault(call, proceed):
            if call.method == "DELETE":
                await asyncio.sleep(20)
            return await proceed()

        async with scheduler_on(embedded, fault=fault) as running:
            embedded.insert(pod("p", container(cpu="2"), priority=100))
            await asyncio.sleep(2)
            running.scheduler.queue.activate(running.scheduler.pending_pods())
            await asyncio.sleep(8)
            assert waiting_condition(embedded, "p") == (
                "True",
                "Gated",
                "gated by plugin DefaultPreemption: waiting for the preemption for this pod to be finished",
            )

    run(main())


def test_pods_gated_by_their_own_gates_and_quick_waits_are_left_alone():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded):
            embedded.insert(pod("g", container(cpu="1"), schedulingGates=[{"name": "a"}]))
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(30)
            assert waiting_condition(embedded, "g") is None
            assert waiting_condition(embedded, "p") is None

    run(main())


class Reworded(PreEnqueue):
    """Keeps every pod out, for a reason that changes."""

    name = "Reworded"

    def __init__(self, args, handle):
        self.reason, self.pods = "too early", []

    def events_to_register(self):
        return []

    def pre_enqueue(self, pod):
        return Status(Code.UNSCHEDULABLE, (self.reason,))

    def reworded(self):
        while self.pods:
            yield self.pods.pop()


def test_a_gated_pod_shows_the_reason_that_its_plugin_has_now():
    async def main():
        embedded = Embedded()
        async with scheduler_on(embedded, plugins=[Reworded]) as running:
            embedded.insert(pod("p"))
            await asyncio.sleep(AFTER + 3)
            assert waiting_condition(embedded, "p") == ("True", "Gated", "gated by plugin Reworded: too early")
            plugin = running.scheduler.profiles["default-scheduler"].plugins["Reworded"]
            plugin.reason, plugin.pods = "too late", running.scheduler.pending_pods()
            await asyncio.sleep(3)
            assert waiting_condition(embedded, "p") == ("True", "Gated", "gated by plugin Reworded: too late")

    run(main())


class Told(list):
    """Hears (name of the pod, reason)."""

    def waiting(self, pod, reason, message):
        self.append((pod.name, reason))


def test_a_standby_which_tells_nothing_keeps_nothing_of_pods_that_are_gone():
    bench, told, pending, now = Bench(), Told(), set(), [0.0]
    notices = WaitNotices(told, lambda: now[0], pending)
    lasting = bench.pod(pod("lasting"))
    pending.add(lasting.uid)
    notices.begin(lasting, "DynamicResources", "Gated", "a claim is missing")
    for i in range(2000):
        gated = bench.pod(pod(f"p{i}"))
        pending.add(gated.uid)
        notices.begin(gated, "DynamicResources", "Gated", "a claim is missing")
        pending.remove(gated.uid)
    assert len(notices) < 200
    # It becomes the leader.
    now[0] = 100.0
    notices.tick()
    assert told == [("lasting", "Gated")]
    assert len(notices) == 1


class Existing(set):
    """Uids of pods that exist; counts how often it is asked about one."""

    asked = 0

    def __contains__(self, uid):
        self.asked += 1
        return super().__contains__(uid)


def test_a_crowd_that_waits_is_looked_through_a_few_times_only_as_it_grows():
    bench, pending = Bench(), Existing()
    notices = WaitNotices(Told(), lambda: 0.0, pending)
    for i in range(1000):
        gated = bench.pod(pod(f"p{i}"))
        pending.add(gated.uid)
        notices.begin(gated, "DynamicResources", "Gated", "a claim is missing")
    assert len(notices) == 1000
    assert pending.asked <= 2 * 1000


def test_a_wait_that_is_over_is_not_reported_later():
    bench, told, now = Bench(), Told(), [0.0]
    short, long = (bench.pod(pod(name)) for name in ("short", "long"))
    notices = WaitNotices(told, lambda: now[0], {short.uid, long.uid})
    for each in (short, long):
        notices.begin(each, "DynamicResources", "Gated", "a claim is missing")
    notices.end(short, "DynamicResources")
    now[0] = 100.0
    notices.tick()
    assert told == [("long", "Gated")]


class Shown:
    """A reporter that notes what pods show."""

    def __init__(self):
        self.shown = {}

    def waiting(self, pod, reason, message):
        self.shown[pod.name] = message


def test_pods_that_wait_for_another_reason_are_asked_again_a_few_at_a_time():
    bench, told, now = Bench(node("n1")), Shown(), [0.0]
    pods = [bench.pod(pod(f"p-{i}", container(cpu="1"))) for i in range(2 * AT_ONCE)]
    notices = WaitNotices(told, lambda: now[0], {each.uid for each in pods})
    changed, asked = iter(()), []

    def ask(each):
        asked.append(each)
        notices.begin(each, "Picky", "Gated", "now this")

    notices.follow("Picky", lambda: changed, ask)
    notices.follow("Broken", lambda: None, ask)
    for number, each in enumerate(pods):
        notices.begin(each, "Other" if number == 1 else "Picky", "Gated", "first that")
    now[0] = AFTER
    notices.tick()
    assert set(told.shown.values()) == {"first that"}
    changed = iter([*pods[:AT_ONCE], bench.pod(pod("p-unknown", container(cpu="1"))), *pods[AT_ONCE:]])
    notices.tick()
    assert asked == [pods[0], *pods[2:AT_ONCE]]
    notices.tick()
    notices.tick()
    assert asked == [pods[0], *pods[2:]]
    assert told.shown == {each.name: "now this" for each in pods} | {"p-1": "first that"}
