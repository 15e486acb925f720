"""Pods for which preemption was in vain: tried again when it may succeed, and only then."""

import asyncio

import pytest

from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod, pod_affinity, pod_term, spread
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run

ZONE = "zone"
HOST = "kubernetes.io/hostname"
CPU = container(cpu="1")

EVENLY = {"topologySpreadConstraints": [spread(HOST, 1, {"app": "x"})]}
APART = {"affinity": pod_affinity(required_anti=[pod_term(HOST, {"app": "x"})])}
BESIDE = {"affinity": pod_affinity(required=[pod_term(ZONE, {"app": "y"})])}


def important(name, app, on):
    return pod(name, CPU, on=on, labels={"app": app}, priority=100)


def relabel(embedded, name, app):
    resource = embedded.resource("Pod")
    record = embedded.registry.record(resource, "default", name)
    stored = record.obj()
    embedded.registry.replace_record(
        resource, record, {**stored, "metadata": {**stored["metadata"], "labels": {"app": app}}}
    )


CASES = {
    "spread: one of its kind comes where there are few": (
        EVENLY,
        lambda e: e.insert(important("new", "x", "beech")),
        1,
    ),
    "spread: one of another kind comes": (EVENLY, lambda e: e.insert(important("new", "z", "beech")), 0),
    "spread: one of its kind is so no more": (EVENLY, lambda e: relabel(e, "resident", "z"), 1),
    "anti-affinity: who is avoided changes": (APART, lambda e: relabel(e, "resident", "z"), 1),
    "anti-affinity: who is avoided comes elsewhere, too": (
        APART,
        lambda e: e.insert(important("new", "x", "beech")),
        0,
    ),
    "affinity: who is sought comes": (BESIDE, lambda e: e.insert(important("new", "y", "beech")), 1),
    "affinity: somebody else comes": (BESIDE, lambda e: e.insert(important("new", "z", "beech")), 0),
}


def cluster():
    """Alder has room for a pod of 3 CPUs once the less important one leaves; beech is too small for it.

    Before anybody has left, nothing but NodeResourcesFit refuses the pod on alder.
    """
    embedded = Embedded()
    Kubelet(embedded)
    embedded.insert(node("alder", cpu="4", labels={HOST: "alder", ZONE: "a"}))
    embedded.insert(node("beech", cpu="2", labels={HOST: "beech", ZONE: "a"}))
    embedded.insert(important("resident", "x", "alder"))
    embedded.insert(pod("low", container(cpu="3"), on="alder", labels={"app": "low"}))
    return embedded


def where(embedded):
    return embedded.get("Pod", "waits")["spec"].get("nodeName")


@pytest.mark.parametrize(("constraint", "change", "wakes"), CASES.values(), ids=CASES)
def test_tried_again_when_dry_runs_may_end_otherwise(constraint, change, wakes):
    async def main():
        embedded = cluster()
        async with scheduler_on(embedded) as running:
            embedded.insert(pod("waits", container(cpu="3"), labels={"app": "x"}, priority=50, **constraint))
            await asyncio.sleep(15)
            assert (where(embedded), running.attempts) == (None, {"default/waits": 1})
            change(embedded)
            await asyncio.sleep(15)
            # The attempt that makes somebody go, and the one that finds the room.
            assert running.attempts == {"default/waits": 1 + 2 * wakes}
            assert where(embedded) == ("alder" if wakes else None)
            assert (embedded.get("Pod", "low") is None) == bool(wakes)

    run(main())


def test_other_victims_are_looked_for_once_those_on_the_promised_node_are_gone():
    """Beside the victim a more important pod took the port: its end leaves no room, yet there are others to evict."""

    def exposed(name, cpu, on=None, priority=0):
        return pod(name, container(cpu=cpu, ports=[80]), on=on, priority=priority)

    async def main():
        embedded = Embedded()
        Kubelet(embedded, grace=40.0)
        embedded.insert(node("alder", cpu="4"))
        embedded.insert(pod("low", container(cpu="3"), on="alder"))
        embedded.insert(node("beech", cpu="5"))
        embedded.insert(exposed("second", "1", on="beech", priority=1))
        for name in ("a", "b"):
            embedded.insert(pod(name, CPU, on="beech"))
        async with scheduler_on(embedded) as running:
            embedded.insert(exposed("waits", "3", priority=50))
            await asyncio.sleep(5)
            assert embedded.get("Pod", "waits")["status"]["nominatedNodeName"] == "alder"
            embedded.insert(exposed("rival", "1", on="alder", priority=100))
            # While the victim leaves, only room elsewhere is worth an attempt; from then on NodePorts alone refuses it.
            for name in ("a", "b"):
                embedded.registry.delete(embedded.resource("Pod"), "default", name, grace_period_seconds=0)
                await asyncio.sleep(10)
                assert running.attempts["default/waits"] == 2
            await asyncio.sleep(75)
            assert (embedded.get("Pod", "second"), where(embedded)) == (None, "beech")

    run(main())
