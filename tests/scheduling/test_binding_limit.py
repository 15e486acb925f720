"""What counts towards the limit on pods that are placed and not bound: those that the API server keeps waiting."""

import asyncio
from collections import Counter

import pytest

from koordsched.scheduling.scheduler import MAX_BINDING
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

CONFLICT = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":409,"reason":"Conflict","message":"not now"}'
FOREVER = 600.0

LATE = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "late"},
    "provisioner": "nobody.test",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def cluster(nodes):
    embedded = Embedded()
    for i in range(nodes):
        embedded.insert(node(f"n{i}", cpu="64", pods="500"))
    return embedded


def claim(name):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "late",
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Pending"},
    }


def with_volume(name):
    return pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}])


def bound(embedded, prefix):
    """How many pods whose names begin like this have a node."""
    things = embedded.registry.list(embedded.resource("Pod"))
    return sum(thing["metadata"]["name"].startswith(prefix) and "nodeName" in thing["spec"] for thing in things)


def delete(embedded, name):
    embedded.registry.delete(embedded.resource("Pod"), "default", name, grace_period_seconds=0)


def test_a_crowd_that_waits_on_permit_keeps_no_other_pod_out(picky):
    async def main():
        embedded = cluster(10)
        async with scheduler_on(embedded) as running:
            picky[0].wait = FOREVER
            for i in range(MAX_BINDING):
                embedded.insert(pod(f"waits{i}"))
            await asyncio.sleep(5)
            scheduler = running.scheduler
            assert len(scheduler.waiting) == scheduler.binding.in_flight == MAX_BINDING
            under_way = scheduler.binding.metrics.running("binding")
            assert under_way.value == MAX_BINDING
            picky[0].wait = 0.0
            for i in range(100):
                embedded.insert(pod(f"other{i}"))
            await asyncio.sleep(5)
            assert (bound(embedded, "other"), bound(embedded, "waits")) == (100, 0)
            assert under_way.value == MAX_BINDING

    run(main())


def test_an_important_pod_that_comes_late_does_not_wait_for_a_burst():
    async def main():
        embedded = cluster(10)
        order = []
        began, done = asyncio.Event(), asyncio.Event()

        async def slow(call, proceed):
            if not call.path.endswith("/binding"):
                return await proceed()
            await asyncio.sleep(0.1)
            order.append(call.path.split("/")[-2])
            began.set()
            if order[-1] == "important":
                done.set()
            return await proceed()

        async with scheduler_on(embedded, fault=slow):
            for i in range(2048):
                embedded.insert(pod(f"burst{i}"))
            await began.wait()
            before = len(order)
            embedded.insert(pod("important", priority=1000))
            await done.wait()
            assert order.index("important") - before <= 2 * MAX_BINDING <= 512

    run(main())


def test_a_gang_larger_than_the_limit_gets_together(picky):
    async def main():
        embedded = cluster(1)
        async with scheduler_on(embedded, max_binding=5) as running:
            scheduler = running.scheduler
            picky[0].wait = FOREVER
            for i in range(30):
                embedded.insert(pod(f"member{i}"))
            await asyncio.sleep(5)
            assert len(scheduler.waiting) == 30
            for waiting in scheduler.waiting:
                waiting.allow("Picky")
            await asyncio.sleep(5)
            assert bound(embedded, "member") == 30
            assert (scheduler.binding.in_flight, scheduler.binding.pressing) == (0, 0)

    run(main())


def test_volumes_that_are_not_provisioned_keep_no_other_pod_out():
    async def main():
        embedded = cluster(1)
        embedded.insert(LATE)
        async with scheduler_on(embedded, max_binding=5) as running:
            for i in range(30):
                embedded.insert(claim(f"waits{i}"))
                embedded.insert(with_volume(f"waits{i}"))
            await asyncio.sleep(5)
            assert running.scheduler.binding.in_flight == 30
            for i in range(20):
                embedded.insert(pod(f"other{i}"))
            await asyncio.sleep(5)
            assert (bound(embedded, "other"), bound(embedded, "waits")) == (20, 0)

    run(main())


def test_volumes_that_cannot_be_written_count():
    """The API server does not answer: these are what the limit is for."""

    async def main():
        embedded = cluster(1)
        embedded.insert(LATE)

        async def silent(call, proceed):
            if call.method == "PATCH" and "/persistentvolumeclaims/" in call.path:
                await asyncio.sleep(FOREVER)
            return await proceed()

        async with scheduler_on(embedded, fault=silent, max_binding=5) as running:
            for i in range(30):
                embedded.insert(claim(f"waits{i}"))
                embedded.insert(with_volume(f"waits{i}"))
            await asyncio.sleep(60)
            assert running.scheduler.binding.in_flight == running.scheduler.binding.pressing == 5

    run(main())


class Bindings:
    """Refuses the first `conflicts` bindings of each pod; the others take `seconds`."""

    def __init__(self, conflicts, seconds):
        self._conflicts = conflicts
        self._seconds = seconds
        self._seen = Counter()

    async def __call__(self, call, proceed):
        if not call.path.endswith("/binding"):
            return await proceed()
        self._seen[call.path] += 1
        await asyncio.sleep(self._seconds)
        return (409, {}, CONFLICT) if self._seen[call.path] <= self._conflicts else await proceed()


async def let_go(scheduler, embedded):
    for waiting in scheduler.waiting:
        waiting.allow("Picky")


async def refuse(scheduler, embedded):
    for waiting in scheduler.waiting:
        waiting.reject("Picky", "no")


async def time_out(scheduler, embedded):
    await asyncio.sleep(FOREVER)


async def delete_all(scheduler, embedded):
    for i in range(8):
        delete(embedded, f"p{i}")


async def preempt(scheduler, embedded):
    embedded.insert(pod("boss", container(cpu="64"), priority=100))


async def lose_the_node(scheduler, embedded):
    embedded.registry.delete(embedded.resource("Node"), None, "n0", grace_period_seconds=0)


@pytest.mark.parametrize("volumes", [False, True], ids=["plain", "volumes"])
@pytest.mark.parametrize("conflicts", [0, 1])
@pytest.mark.parametrize("end", [let_go, refuse, time_out, delete_all, preempt, lose_the_node])
def test_nothing_is_left_of_a_binding_however_it_ends(picky, end, conflicts, volumes):
    async def main():
        embedded = cluster(1)
        embedded.insert(LATE)
        async with scheduler_on(embedded, fault=Bindings(conflicts, 0.5), max_binding=5) as running:
            scheduler = running.scheduler
            picky[0].wait = 300.0
            for i in range(8):
                if volumes:
                    embedded.insert(claim(f"p{i}"))
                    embedded.insert(with_volume(f"p{i}"))
                else:
                    embedded.insert(pod(f"p{i}", container(cpu="1")))
            await asyncio.sleep(5)
            assert len(scheduler.waiting) == scheduler.binding.in_flight == 8
            assert scheduler.binding.pressing == 0
            picky[0].wait = 0.0
            await end(scheduler, embedded)
            await asyncio.sleep(0.75)  # bindings are under way, or refused
            await asyncio.sleep(1)
            for i in range(8):
                if embedded.get("Pod", f"p{i}") is not None:
                    delete(embedded, f"p{i}")
            await asyncio.sleep(700)
            assert (scheduler.binding.in_flight, scheduler.binding.pressing) == (0, 0)
            assert not scheduler.binding._pre_binding
            assert len(scheduler.waiting) == 0
            assert scheduler.cluster.assumed == {}
            assert scheduler.queue.in_flight_pods() == []

    run(main())


def test_a_plugin_that_cannot_take_back_its_reservation_does_not_keep_the_pod(picky, monkeypatch):
    async def main():
        embedded = cluster(1)

        def fail(cycle, pod, row):
            raise RuntimeError("books are lost")

        async with scheduler_on(embedded, fault=Bindings(1, 0.0)) as running:
            monkeypatch.setattr(picky[0], "unreserve", fail)
            embedded.insert(pod("p", container(cpu="64")))
            await asyncio.sleep(10)
            assert bound(embedded, "p") == 1
            assert running.attempts == {"default/p": 2}

    run(main())
