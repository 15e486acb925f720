"""Pods for which preemption was in vain: tried again when what refused them in its dry runs is over, and only then.

In each case alder has room for a pod of priority 50 once a less important one leaves; beech is too small for it. Both
are in one zone. What refuses the pod on alder before anybody has left is NodeResourcesFit, and nothing else.
"""

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
