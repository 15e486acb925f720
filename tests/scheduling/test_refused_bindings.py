"""Preemptors whose bindings are refused: nobody goes who need not, and they get on by their back-off."""

import asyncio
from collections import Counter
from random import Random

import pytest

from tests.depth import quick_first
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run

CONFLICT = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":409,"reason":"Conflict","message":"not now"}'
PREEMPTORS = 40


class LeisurelyKubelet(Kubelet):
    """Every pod takes a time of its own to end."""

    def __init__(self, embedded, longest):
        super().__init__(embedded)
        self._longest = longest
        self._rng = Random(3)

    def _changed(self, kind, old, new):
        self._grace = self._rng.uniform(0.05, self._longest)
        super()._changed(kind, old, new)


class Refusing:
    """Refuses a share of the bindings for so many seconds; writing the status of preemptors takes its time."""

    def __init__(self, share, seconds, status):
        self._loop = asyncio.get_running_loop()
        self._share = share
        self._end = self._loop.time() + seconds
        self._status = status
        self._rng = Random(7)
        self.bindings = Counter()
        self.evictions = Counter()

    async def __call__(self, call, proceed):
        if call.path.endswith("/binding"):
            self.bindings[call.path] += 1
            if self._loop.time() < self._end and self._rng.random() < self._share:
                return 409, {}, CONFLICT
        elif call.method == "DELETE":
            self.evictions[call.path] += 1
        elif call.method == "PATCH" and "/pods/p" in call.path:
            await asyncio.sleep(self._status)
        return await proceed()


def full_cluster(embedded):
    """A node for each preemptor, with two pods of which one has to go."""
    for i in range(PREEMPTORS):
        embedded.insert(node(f"n{i}", cpu="2"))
        for j in range(2):
            embedded.insert(pod(f"v{i}-{j}", container(cpu="1"), on=f"n{i}"))


def bound(embedded):
    return sum("nodeName" in embedded.get("Pod", f"p{i}")["spec"] for i in range(PREEMPTORS))


@pytest.mark.parametrize("status", quick_first([2.0, 0.0], 1), ids=lambda seconds: f"status takes {seconds} s")
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("successors", [0, PREEMPTORS], ids=["", "victims come back"])
def test_as_many_pods_go_as_have_to(successors, share, status):
    """`successors`: pods like the victims, which wait for any room that is left."""

    async def main():
        embedded = Embedded()
        LeisurelyKubelet(embedded, 10.0)
        full_cluster(embedded)
        server = Refusing(share, 60.0, status)
        async with scheduler_on(embedded, fault=server) as running:
            for i in range(PREEMPTORS):
                embedded.insert(pod(f"p{i}", container(cpu="1"), priority=100))
            for i in range(successors):
                embedded.insert(pod(f"w{i}", container(cpu="1")))
            await asyncio.sleep(59)
            # Back-offs of 1, 2, 4, 8, 10, 10, 10, 10 seconds: a ninth refusal comes after 55 s at the earliest.
            assert max(server.bindings.values(), default=0) <= 9
            await asyncio.sleep(30)
            assert bound(embedded) == PREEMPTORS
            assert len(server.evictions) == server.evictions.total() == PREEMPTORS
            assert running.scheduler.cluster.assumed == {}
            assert len(running.scheduler.queue) == successors

    run(main())


def test_a_promise_is_kept_while_the_binding_is_refused_and_shown():
    async def main():
        embedded = Embedded()
        Kubelet(embedded)
        embedded.insert(node("alder", cpu="1"))
        embedded.insert(pod("v", container(cpu="1"), on="alder"))
        async with scheduler_on(embedded, fault=Refusing(1.0, 30.0, 0.0)) as running:
            embedded.insert(pod("p", container(cpu="1"), priority=100))
            embedded.insert(pod("equal", container(cpu="1"), priority=100))
            embedded.insert(pod("low", container(cpu="1")))
            await asyncio.sleep(20)
            nominator = running.scheduler.queue.nominator
            assert [other.name for other in nominator.nominated_on("alder")] == ["p"]
            assert embedded.get("Pod", "p")["status"]["nominatedNodeName"] == "alder"
            await asyncio.sleep(40)
            nodes = {name: embedded.get("Pod", name)["spec"].get("nodeName") for name in ("p", "equal", "low")}
            assert nodes == {"p": "alder", "equal": None, "low": None}
            assert len(nominator) == 0

    run(main())


def test_a_promise_that_the_pod_gives_up_by_its_end_is_everybodys():
    async def main():
        embedded = Embedded()
        Kubelet(embedded)
        embedded.insert(node("alder", cpu="1"))
        embedded.insert(pod("v", container(cpu="1"), on="alder"))

        async def refuse(call, proceed):
            return (409, {}, CONFLICT) if call.path.endswith("/p/binding") else await proceed()

        async with scheduler_on(embedded, fault=refuse):
            embedded.insert(pod("p", container(cpu="1"), priority=100))
            embedded.insert(pod("low", container(cpu="1")))
            await asyncio.sleep(20)
            assert "nodeName" not in embedded.get("Pod", "low")["spec"]
            embedded.registry.delete(embedded.resource("Pod"), "default", "p", grace_period_seconds=0)
            await asyncio.sleep(5)
            assert embedded.get("Pod", "low")["spec"]["nodeName"] == "alder"

    run(main())


def test_victims_that_go_wake_whom_they_went_for():
    """Each of a node's three victims ends at a time of its own; none of them concerns the other preemptors."""

    async def main():
        embedded = Embedded()
        LeisurelyKubelet(embedded, 10.0)
        for i in range(PREEMPTORS):
            embedded.insert(node(f"n{i}", cpu="3"))
            for j in range(3):
                embedded.insert(pod(f"v{i}-{j}", container(cpu="1"), on=f"n{i}"))
        async with scheduler_on(embedded) as running:
            for i in range(PREEMPTORS):
                embedded.insert(pod(f"p{i}", container(cpu="3"), priority=100))
            await asyncio.sleep(12)
            assert bound(embedded) == PREEMPTORS
            # The one that chooses its victims, one that tells that it waits for them, and one for each of them at most.
            assert max(running.attempts.values()) <= 5

    run(main())


def test_room_elsewhere_is_taken_before_the_victims_are_gone():
    async def main():
        embedded = Embedded()
        LeisurelyKubelet(embedded, 10.0)
        embedded.insert(node("alder", cpu="3"))
        embedded.insert(pod("v", container(cpu="3"), on="alder"))
        embedded.insert(node("birch", cpu="3"))
        leaving = ("first", "second", "third")
        for name in leaving:
            embedded.insert(pod(name, container(cpu="1"), on="birch", priority=200))
        async with scheduler_on(embedded) as running:
            embedded.insert(pod("p", container(cpu="3"), priority=100))
            await asyncio.sleep(0.05)
            assert embedded.get("Pod", "p")["status"]["nominatedNodeName"] == "alder"
            attempts = []
            for name in leaving:
                await embedded.call("DELETE", f"/api/v1/namespaces/default/pods/{name}", gracePeriodSeconds="0")
                await asyncio.sleep(0.01)
                attempts.append(running.attempts["default/p"])
            # Once it is tried in vain, and tells so; the second leaves too little, and makes no difference.
            assert attempts == [2, 2, 3]
            assert embedded.get("Pod", "p")["spec"]["nodeName"] == "birch"

    run(main())
