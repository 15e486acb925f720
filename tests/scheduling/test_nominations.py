"""What becomes of a node that was promised to a pod, when the pod's next attempt fails."""

import asyncio

import pytest

from koordsched.framework.status import Code, Status
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.scheduling.kubelet import Kubelet
from tests.scheduling.test_core_cases import condition_of
from tests.virtualtime import run

NO_PREEMPTION = {"schedulerName": "default-scheduler", "plugins": {"postFilter": {"disabled": [{"name": "*"}]}}}
MODELESS = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "modeless"}}
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "c", "namespace": "default"},
    "spec": {"storageClassName": "modeless"},
}
CLAIMING = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}


def promised(*containers, on="alder", **spec):
    """A waiting pod that was promised a node."""
    thing = pod("p", *containers, **spec)
    thing["status"]["nominatedNodeName"] = on
    return thing


@pytest.mark.parametrize(
    ("objects", "waiting", "profile", "reserve", "kept"),
    [
        ([], promised(), {}, None, None),
        ([node("alder")], promised(), {}, Status(Code.UNSCHEDULABLE, ("R",)), None),
        ([node("alder")], promised(), {}, Status(Code.ERROR, ("R",)), None),
        ([node("alder"), MODELESS, CLAIM], promised(**CLAIMING), {}, None, None),
        ([node("alder")], promised(container(cpu="64")), NO_PREEMPTION, None, None),
        ([node("alder")], promised(container(cpu="64")), {}, None, None),
        ([node("alder")], promised(container(cpu="64"), preemptionPolicy="Never"), {}, None, "alder"),
    ],
    ids=["no nodes", "reserve", "reserve fails", "error", "no PostFilter plugins", "no victims", "not eligible"],
)
def test_a_promise_ends_with_every_failure_but_where_preemption_leaves_it(
    objects, waiting, profile, reserve, kept, picky
):
    async def main():
        embedded = Embedded()
        for thing in objects:
            embedded.insert(thing)
        config = {**DEFAULT_CONFIG, "profiles": [profile]} if profile else DEFAULT_CONFIG
        async with scheduler_on(embedded, config):
            if reserve is not None:
                picky[0].reserve_status = reserve
            embedded.insert(waiting)
            await asyncio.sleep(2)
            assert condition_of(embedded, "p") is not None
            assert embedded.get("Pod", "p")["status"].get("nominatedNodeName") == kept

    run(main())


def _ends(embedded):
    embedded.registry.delete(embedded.resource("Pod"), "default", "p", grace_period_seconds=0)


def _is_not_promised_any_more(embedded):
    shown = embedded.get("Pod", "p")
    status = {key: value for key, value in shown["status"].items() if key != "nominatedNodeName"}
    embedded.registry.update(embedded.resource("Pod"), {**shown, "status": status}, subresource="status")


def _is_bound_elsewhere_by_another_scheduler(embedded):
    embedded.registry.bind("default", "p", None, "beech")


@pytest.mark.parametrize("over", [_ends, _is_not_promised_any_more, _is_bound_elsewhere_by_another_scheduler])
def test_a_nominated_pod_that_never_preempts_keeps_its_room_until_the_nomination_ends(over):
    """Also if that pod cannot go there any more, as when a taint came while its last scheduler was about to bind it."""

    async def main():
        embedded = Embedded()
        Kubelet(embedded)
        embedded.insert(node("alder", cpu="2", taints=[("spot",)]))
        embedded.insert(node("beech", cpu="1", unschedulable=True))
        embedded.insert(pod("victim", container(cpu="1"), on="alder"))
        embedded.insert(promised(container(cpu="1"), priority=100, preemptionPolicy="Never"))
        tolerating = {"tolerations": [{"key": "spot", "operator": "Exists"}]}
        embedded.insert(pod("preemptor", container(cpu="2"), priority=10, **tolerating))

        def places():
            return {name: embedded.get("Pod", name)["spec"].get("nodeName") for name in ("victim", "preemptor")}

        async with scheduler_on(embedded):
            await asyncio.sleep(20)
            assert embedded.get("Pod", "p")["status"]["nominatedNodeName"] == "alder"
            assert places() == {"victim": "alder", "preemptor": None}
            over(embedded)
            await asyncio.sleep(20)
            assert embedded.get("Pod", "preemptor")["spec"]["nodeName"] == "alder"

    run(main())


@pytest.mark.parametrize("shown", [True, False], ids=["", "its status never said so"])
def test_who_was_kept_out_by_a_promise_alone_gets_in_when_its_pod_is_gone(shown):
    """One of two victims is gone, the other one still leaves: half of the node is free but for the promise."""

    async def refuse(call, proceed):
        refused = b'{"kind":"Status","code":403,"reason":"Forbidden","message":"not you"}'
        return (403, {}, refused) if call.path.endswith("/pods/p/status") and not shown else await proceed()

    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="2"))
        for name in ("soon", "late"):
            embedded.insert(pod(name, container(cpu="1"), on="alder"))
        async with scheduler_on(embedded, fault=refuse):
            embedded.insert(pod("p", container(cpu="2"), priority=100))
            await asyncio.sleep(2)
            embedded.registry.delete(embedded.resource("Pod"), "default", "soon", grace_period_seconds=0)
            await asyncio.sleep(2)
            embedded.insert(pod("kept-out", container(cpu="1")))
            await asyncio.sleep(20)
            assert embedded.get("Pod", "kept-out")["spec"].get("nodeName") is None
            _ends(embedded)
            await asyncio.sleep(20)
            assert embedded.get("Pod", "kept-out")["spec"].get("nodeName") == "alder"

    run(main())


def test_a_pod_that_was_kept_out_by_a_promise_alone_gets_in_when_the_promise_is_given_up(picky):
    """Nothing else has it tried again: a label of the node does not concern it, and no status says that p gave up."""

    async def refuse(call, proceed):
        refused = b'{"kind":"Status","code":403,"reason":"Forbidden","message":"not you"}'
        return (403, {}, refused) if call.path.endswith("/pods/p/status") else await proceed()

    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="1"))
        fast = {"nodeSelector": {"disk": "ssd"}}
        embedded.insert(promised(container(cpu="1"), priority=100, preemptionPolicy="Never", **fast))
        embedded.insert(pod("kept-out", container(cpu="1")))
        async with scheduler_on(embedded, fault=refuse) as running:
            picky[0].reserve_status, picky[0].spared = Status(Code.UNSCHEDULABLE, ("R",)), {"kept-out"}
            await asyncio.sleep(20)
            assert len(running.scheduler.queue.nominator.nominated_on("alder")) == 1
            assert embedded.get("Pod", "kept-out")["spec"].get("nodeName") is None
            shown = embedded.get("Node", "alder")
            labelled = {**shown, "metadata": {**shown["metadata"], "labels": {"disk": "ssd"}}}
            embedded.registry.update(embedded.resource("Node"), labelled)
            await asyncio.sleep(5)
            assert embedded.get("Pod", "p")["spec"].get("nodeName") is None
            assert embedded.get("Pod", "kept-out")["spec"].get("nodeName") == "alder"

    run(main())


def test_a_pod_that_takes_the_room_promised_to_it_wakes_none():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="1"))
        embedded.insert(pod("big", container(cpu="2")))
        async with scheduler_on(embedded) as running:
            await asyncio.sleep(20)
            embedded.insert(promised(container(cpu="1")))
            embedded.insert(pod("q", container()))
            await asyncio.sleep(20)
            assert [embedded.get("Pod", name)["spec"].get("nodeName") for name in ("p", "q")] == ["alder", "alder"]
            assert running.attempts == {"default/big": 1, "default/p": 1, "default/q": 1}

    run(main())
