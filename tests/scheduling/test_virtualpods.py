"""Pods that are not Pod objects: made of other objects by a plugin, scheduled like pods, written to those objects."""

import asyncio
from random import Random

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.builtinkinds import SERVICES
from koordsched.cluster.observers import PodObserver
from koordsched.framework.handle import WriteFailed
from koordsched.framework.interface import PreBind
from koordsched.framework.status import SUCCESS
from koordsched.scheduling.offline import OfflineScheduler
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.extraplugins import catalog_with, registry_with, resolved_with
from tests.journal.recording import Recorded, repeat
from tests.plugins.harness import StoppedClock
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

MERGE = {"content-type": "application/merge-patch+json"}


def held(name, cpu, on="", priority=0):
    """A service that holds room on a node."""
    selector = {"cpu": cpu, "node": on, "priority": str(priority)}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-service-{name}"}
    spec = {"selector": selector, "ports": [{"port": 80}]}
    return {"kind": "Service", "apiVersion": "v1", "metadata": metadata, "spec": spec}


class Holds(PreBind):
    """Makes a virtual pod of every service that asks for room. `written` is what was written to it."""

    name = "Holds"
    embedded = None

    def __init__(self, args, handle):
        self.handle = handle
        self.written, self.conditions, self.events = [], [], []
        handle.cluster.objects.of(SERVICES).subscribe(self.changed)

    def changed(self, old, new):
        meta = (new or old).metadata
        if new is None:
            self.handle.virtual_pods.delete(f"virtual-{meta.uid}")
        elif "cpu" in (wanted := new.spec.selector):
            thing = pod(meta.name, container(cpu=wanted["cpu"]), on=wanted["node"], priority=int(wanted["priority"]))
            thing["metadata"] |= {"uid": f"virtual-{meta.uid}", "resourceVersion": meta.resource_version}
            self.handle.virtual_pods.upsert(self.handle.cluster.pods.build(convert(thing, core.Pod)), self)

    def pre_bind_pre_flight(self, cycle, pod, node):
        return SUCCESS

    async def pre_bind(self, cycle, pod, node):
        cycle.patch.annotate("bound-by", "holds")
        return SUCCESS

    async def bind(self, pod, node):
        self.written.append(("bind", pod.key, node))
        body = {"spec": {"selector": {"node": node}}}
        path = f"/api/v1/namespaces/default/services/{pod.name}"
        status, answer = await self.embedded.call("PATCH", path, body, headers=MERGE)
        if status != 200:
            raise WriteFailed(str(answer))

    async def patch(self, pod, metadata):
        self.written.append(("patch", pod.key, metadata))

    async def evict(self, pod, message):
        self.written.append(("evict", pod.key, message))
        self.embedded.registry.delete(self.embedded.resource("Service"), "default", pod.name, grace_period_seconds=0)

    def condition(self, pod, reason, message, nominated):
        self.conditions.append((pod.key, reason, message, nominated))

    def event(self, pod, event_type, reason, message, action):
        self.events.append((pod.key, event_type, reason, action))


class Requests:
    """The writes that concern pods of some names."""

    def __init__(self, *names):
        self.seen, self._names = [], names

    async def __call__(self, call, proceed):
        if call.method != "GET" and any(f"/pods/{name}" in call.path for name in self._names):
            self.seen.append((call.method, call.path))
        return await proceed()


def cluster(*names, cpu="4"):
    embedded = Embedded()
    Holds.embedded = embedded
    for name in names:
        embedded.insert(node(name, cpu=cpu))
    return embedded


def holds_of(running):
    scheduler = getattr(running, "scheduler", running)
    return scheduler.profiles["default-scheduler"].plugins["Holds"]


def node_of(embedded, name):
    return embedded.get("Pod", name)["spec"].get("nodeName")


def delete(embedded, kind, name):
    embedded.registry.delete(embedded.resource(kind), "default", name, grace_period_seconds=0)


def test_it_is_scheduled_and_takes_room():
    async def main():
        embedded, requests = cluster("alder"), Requests("room")
        async with scheduler_on(embedded, fault=requests, plugins=[Holds]) as running:
            embedded.insert(held("room", "3"))
            await asyncio.sleep(3)
            holds = holds_of(running)
            assert holds.written == [
                ("patch", "default/room", {"annotations": {"bound-by": "holds"}}),
                ("bind", "default/room", "alder"),
            ]
            assert ("default/room", "Normal", "Scheduled", "Binding") in holds.events
            assert running.attempts == {"default/room": 1}
            assert running.scheduler.cluster.assumed == {}
            embedded.insert(pod("late", container(cpu="2")))
            await asyncio.sleep(3)
            assert node_of(embedded, "late") is None
            # Its end makes room, and wakes the pod that waits for it.
            delete(embedded, "Service", "room")
            await asyncio.sleep(5)
            assert node_of(embedded, "late") == "alder"
            assert requests.seen == []
            assert [event["regarding"]["name"] for event in embedded.events()] == ["late"] * 2

    run(main())


def test_conditions_and_events_of_one_that_does_not_fit_go_to_its_writer():
    async def main():
        embedded, requests = cluster("alder"), Requests("huge")
        async with scheduler_on(embedded, fault=requests, plugins=[Holds]) as running:
            embedded.insert(held("huge", "30"))
            await asyncio.sleep(30)
            holds = holds_of(running)
            key, reason, message, _ = holds.conditions[0]
            assert (key, reason) == ("default/huge", "Unschedulable")
            assert message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
            assert ("default/huge", "Warning", "FailedScheduling", "Scheduling") in holds.events
            assert (requests.seen, holds.written) == ([], [])
            delete(embedded, "Service", "huge")
            await asyncio.sleep(1)
            assert running.scheduler.pending_pods() == []
            assert len(running.scheduler.queue) == 0

    run(main())


def test_preemption_goes_through_its_writer_and_it_preempts_pods():
    async def main():
        embedded, requests = cluster("alder"), Requests("room", "top")
        async with scheduler_on(embedded, fault=requests, plugins=[Holds]) as running:
            embedded.insert(held("room", "3"))
            await asyncio.sleep(3)
            embedded.insert(pod("important", container(cpu="4"), priority=100))
            await asyncio.sleep(5)
            holds = holds_of(running)
            text = "default-scheduler: preempting to accommodate a higher priority pod"
            assert holds.written[-1] == ("evict", "default/room", text)
            assert ("default/room", "Normal", "Preempted", "Preempting") in holds.events
            assert node_of(embedded, "important") == "alder"
            embedded.insert(held("top", "4", priority=200))
            await asyncio.sleep(60)
            # As the owner of the object sees it, the node is nominated.
            assert ("default/top", "alder") in [(key, nominated) for key, _, _, nominated in holds.conditions]
            gone = embedded.get("Pod", "important")
            assert gone is None or gone["metadata"].get("deletionTimestamp")
            assert requests.seen == []

    run(main())


def test_a_listing_of_pods_leaves_it_alone_and_the_next_scheduler_derives_it():
    async def main():
        embedded = cluster("alder")
        async with scheduler_on(embedded, plugins=[Holds]) as running:
            embedded.insert(held("room", "3"))
            embedded.insert(held("huge", "30"))
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(3)
            handler = running.scheduler.pod_handler
            assert [key.name for key in handler.known()] == ["p"]
        async with scheduler_on(embedded, seed=2, plugins=[Holds]) as running:
            await asyncio.sleep(1)
            scheduler = running.scheduler
            assert {each.key: each.node for each in scheduler.cluster.assigned.values()} == {
                "default/room": "alder",
                "default/p": "alder",
            }
            assert [each.key for each in scheduler.pending_pods()] == ["default/huge"]
            assert holds_of(running).written == []

    run(main())


def test_offline_it_counts():
    objects = [node("alder"), held("room", "3", on="alder"), held("more", "1"), pod("p", container(cpu="2"))]
    resolved = resolved_with(DEFAULT_CONFIG, [Holds])
    offline = OfflineScheduler(resolved, registry_with([Holds]), objects, clock=StoppedClock(), rng=Random(1))
    assert offline.queue_order() == ["default/more", "default/p"]
    assert "Insufficient cpu" in offline.schedule("default/p").message
    assert offline.schedule("default/more").node == "alder"


def test_offline_plugins_hear_of_it_when_it_is_gone():
    class Observer(PodObserver):
        def __init__(self):
            self.known = set()

        def pod_seen(self, pod, assigned):
            self.known.add(pod.uid)

        def pod_assigned(self, pod, assigned):
            pass

        def pod_gone(self, uid):
            self.known.discard(uid)

    resolved = resolved_with(DEFAULT_CONFIG, [Holds])
    objects = [node("alder"), held("room", "3", on="alder")]
    offline = OfflineScheduler(resolved, registry_with([Holds]), objects, clock=StoppedClock(), rng=Random(1))
    observer = Observer()
    offline.cluster.add_observer(observer, virtual=True)
    assert observer.known == {"virtual-uid-service-room"}
    holds_of(offline).handle.virtual_pods.delete("virtual-uid-service-room")
    assert observer.known == set()


def test_a_replay_repeats_it():
    async def main():
        embedded = cluster("alder", "beech")
        recorded = Recorded(embedded, plugins=[Holds], seconds_per_segment=5)
        async with recorded.running():
            embedded.insert(held("room", "3"))
            embedded.insert(held("huge", "30"))
            await asyncio.sleep(3)
            for i in range(6):
                embedded.insert(pod(f"p{i}", container(cpu="1"), priority=i))
                await asyncio.sleep(1.5)
            delete(embedded, "Pod", "p0")
            embedded.insert(pod("important", container(cpu="4"), priority=100))
            await asyncio.sleep(8)
            embedded.insert(held("again", "1"))
            await asyncio.sleep(8)
        return recorded

    recorded = run(main())
    written = holds_of(recorded.scheduler).written
    assert {kind for kind, *_ in written} == {"patch", "bind", "evict"}
    journal = recorded.journal
    assert len(journal.segments) > 3
    assert journal.problems == []
    for segment in range(len(journal.segments)):
        repetition, replay = repeat(journal.records(segment), None, registry_with([Holds]), catalog_with([Holds]))
        assert repetition.divergence is None, segment
        assert {pod.key: pod.node for pod in replay.replayed.scheduler.cluster.assigned.values()} == {
            pod.key: pod.node for pod in recorded.scheduler.cluster.assigned.values()
        }
