"""Pods that wait because preemption inside their quota was in vain: tried again when it may succeed, and only then.

In each case a pod of priority 50 that requests 4 CPUs waits in a quota of 10, in which 8 are used by pods that are more
important and 2 by one that is less.
"""

import asyncio

import pytest

from tests.plugins.elasticquota.objects import PREFIX, node, quota
from tests.plugins.elasticquota.objects import pod as plain_pod
from tests.plugins.elasticquota.running import cluster, relabel, remove, replace, where
from tests.plugins.objects import pod_affinity, pod_term
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run


def pod(*what, **more):
    """A pod complete enough to be written back when it is evicted."""
    thing = plain_pod(*what, **more)
    thing["spec"]["containers"][0]["image"] = "app"
    return thing


NODE = node("n", cpu=100, memory="100Gi")
KEPT = pod("kept", {"cpu": 8}, "mine", on="n", priority=100)
LOW = pod("low", {"cpu": 2}, "mine", on="n", priority=1)
STUBBORN = pod("low", {"cpu": 2}, "mine", on="n", priority=1, preemptible=False)


def mine(cpu):
    """The quota, so large."""
    return quota("mine", {"cpu": cpu})


def leaving(embedded, name):
    """Whether a pod is being evicted."""
    return "deletionTimestamp" in embedded.get("Pod", name)["metadata"]


CASES = {
    # What is missing is more than the evictable pods have, then just what they have, then still more.
    "max grows enough": ([LOW], 4, lambda e: replace(e, mine(12)), True),
    "max grows too little": ([LOW], 4, lambda e: replace(e, mine(11)), False),
    "max shrinks": ([LOW], 4, lambda e: replace(e, mine(9)), False),
    "a more important pod goes, which is not enough": (
        [LOW, pod("also", {"cpu": 1}, "mine", on="n", priority=100)],
        6,
        lambda e: remove(e, pod("also", {"cpu": 1}, "mine")),
        False,
    ),
    "a more important pod goes": (
        [LOW, pod("also", {"cpu": 2}, "mine", on="n", priority=100)],
        2,
        lambda e: remove(e, pod("also", {"cpu": 2}, "mine")),
        True,
    ),
    "may be preempted now": (
        [STUBBORN],
        2,
        lambda e: relabel(e, "Pod", "low", **{f"{PREFIX}preemptible": "true"}),
        True,
    ),
    "may be preempted now, but has too little": (
        [STUBBORN],
        4,
        lambda e: relabel(e, "Pod", "low", **{f"{PREFIX}preemptible": "true"}),
        False,
    ),
    "some other label changes": ([STUBBORN], 2, lambda e: relabel(e, "Pod", "low", other="true"), False),
    "as important a pod may be preempted now": (
        [pod("low", {"cpu": 2}, "mine", on="n", priority=50, preemptible=False)],
        2,
        lambda e: relabel(e, "Pod", "low", **{f"{PREFIX}preemptible": "true"}),
        False,
    ),
    "a less important pod comes": (
        [STUBBORN],
        2,
        lambda e: e.insert(pod("new", {"cpu": 2}, "mine", on="n", priority=1)),
        False,
    ),
}


@pytest.mark.parametrize(
    ("others", "size", "change", "helps"), [pytest.param(*case, id=name) for name, case in CASES.items()]
)
def test_tried_again_when_a_pod_can_be_evicted_and_only_then(others, size, change, helps):
    async def scenario():
        args = {"enableRuntimeQuota": False}
        async with cluster(NODE, mine(10), KEPT, *others, args=args) as (embedded, running):
            embedded.insert(pod("waits", {"cpu": size}, "mine", priority=50))
            await asyncio.sleep(15)
            assert (where(embedded, "waits"), running.attempts["default/waits"]) == (None, 1)
            change(embedded)
            await asyncio.sleep(2)
            tries, going = running.attempts["default/waits"], leaving(embedded, "low")
            if helps:
                remove(embedded, LOW)
                await asyncio.sleep(2)
            return going, tries, where(embedded, "waits") is not None

    assert run(scenario()) == ((True, 2, True) if helps else (False, 1, False))


def test_others_are_looked_for_when_the_room_of_the_victims_is_gone():
    """While the victim goes, the quota shrinks: another one has to go, too."""

    async def scenario():
        second = pod("second", {"cpu": 2}, "mine", on="n", priority=2)
        async with cluster(NODE, mine(12), KEPT, LOW, second, args={"enableRuntimeQuota": False}) as (
            embedded,
            running,
        ):
            embedded.insert(pod("waits", {"cpu": 2}, "mine", priority=50))
            await asyncio.sleep(15)
            assert (leaving(embedded, "low"), leaving(embedded, "second")) == (True, False)
            replace(embedded, mine(10))
            await asyncio.sleep(2)
            assert running.attempts["default/waits"] == 1, "it waits for its victim"
            remove(embedded, LOW)
            await asyncio.sleep(2)
            assert (leaving(embedded, "second"), running.attempts["default/waits"]) == (True, 2)
            remove(embedded, second)
            await asyncio.sleep(2)
            return where(embedded, "waits")

    assert run(scenario()) == "n"


def test_whom_the_quota_admits_waits_for_what_refuses_it_in_dry_runs():
    """The node has no room, and even if it had, there is a pod on it that must not be beside the one that waits."""
    apart = {"affinity": pod_affinity(required_anti=[pod_term("kubernetes.io/hostname", {"app": "x"})])}
    avoided = pod("avoided", {"cpu": 1}, on="n", priority=100, labels={"app": "x"})

    async def scenario():
        args = {"enableRuntimeQuota": False}
        async with cluster(node("n", cpu=11), mine(20), KEPT, LOW, avoided, args=args) as (embedded, running):
            embedded.insert(pod("waits", {"cpu": 2}, "mine", priority=50, **apart))
            await asyncio.sleep(15)
            assert (where(embedded, "waits"), running.attempts["default/waits"]) == (None, 1)
            relabel(embedded, "Pod", "avoided", app="y")
            await asyncio.sleep(15)
            return running.attempts["default/waits"], leaving(embedded, "low")

    assert run(scenario()) == (2, True)


def test_whom_the_quota_admits_looks_for_others_once_the_victims_are_gone():
    """Beside the victim a more important pod took the port: its end leaves no room, yet there are others to evict."""

    def exposed(*what, **more):
        thing = pod(*what, **more)
        thing["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
        return thing

    async def scenario():
        objects = (
            node("alder", cpu=4),
            node("beech", cpu=5),
            pod("low", {"cpu": 3}, "mine", on="alder"),
            exposed("second", {"cpu": 1}, "mine", on="beech", priority=1),
            *(pod(name, {"cpu": 1}, on="beech") for name in ("a", "b")),
        )
        elsewhere = (pod("c", {"cpu": 1}, "mine", on="cedar"), pod("d", {"cpu": 1}, on="cedar"))
        args = {"enableRuntimeQuota": False}
        async with cluster(mine(20), node("cedar", cpu=2), *objects, *elsewhere, args=args) as (embedded, running):
            Kubelet(embedded, grace=40.0)
            embedded.insert(exposed("waits", {"cpu": 3}, "mine", priority=50))
            await asyncio.sleep(5)
            assert embedded.get("Pod", "waits")["status"]["nominatedNodeName"] == "alder"
            embedded.insert(exposed("rival", {"cpu": 1}, on="alder", priority=100))
            # Room elsewhere is worth an attempt; from then on NodePorts alone refuses it.
            remove(embedded, objects[-2])
            remove(embedded, objects[-1])
            await asyncio.sleep(15)
            assert (running.attempts["default/waits"], leaving(embedded, "second")) == (2, False)
            for thing in elsewhere:
                remove(embedded, thing)
            await asyncio.sleep(5)
            assert running.attempts["default/waits"] == 2, "it waits for its victim"
            await asyncio.sleep(75)
            return embedded.get("Pod", "second"), where(embedded, "waits")

    assert run(scenario()) == (None, "beech")


def test_whom_the_quota_admitted_once_and_then_refused_is_woken_by_room_in_it():
    """It preempts in its quota, whose room another pod takes before the victim is gone; that one goes later."""

    async def scenario():
        blocking = pod("blocking", {"cpu": 4}, on="alder", priority=100)
        rival = pod("rival", {"cpu": 4}, "mine", on="cedar", priority=100)
        nodes = node("alder", cpu=4), node("beech", cpu=10), node("cedar", cpu=4)
        filling = pod("filling", {"cpu": 10}, on="beech", priority=100)
        full = pod("full", {"cpu": 4}, on="cedar", priority=100)
        args = {"enableRuntimeQuota": False}
        async with cluster(mine(10), *nodes, blocking, filling, full, args=args) as (embedded, running):
            Kubelet(embedded, grace=40.0)
            embedded.insert(pod("waits", {"cpu": 4}, "mine", priority=50))
            await asyncio.sleep(5)
            assert running.attempts["default/waits"] == 1  # its quota has room, no node has
            for name, cpu, priority in (("kept", 6, 100), ("low", 4, 1)):
                embedded.insert(pod(name, {"cpu": cpu}, "mine", on="beech", priority=priority))
            remove(embedded, filling)
            await asyncio.sleep(5)
            assert embedded.get("Pod", "waits")["status"]["nominatedNodeName"] == "beech"
            remove(embedded, full)
            embedded.insert(rival)
            await asyncio.sleep(60)
            assert embedded.get("Pod", "low") is None
            assert where(embedded, "waits") is None
            remove(embedded, rival)
            await asyncio.sleep(15)
            return where(embedded, "waits")

    assert run(scenario()) in ("beech", "cedar")
