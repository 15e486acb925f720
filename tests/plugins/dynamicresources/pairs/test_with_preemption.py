"""With preemption and nominations (dra spec 4): evictions free no device, and no device is kept for who waits."""

import asyncio

import pytest

from tests.plugins.dynamicresources.deviceworld import (
    N1,
    allocated,
    claim,
    claiming,
    device_class,
    slice_of,
    world,
)
from tests.plugins.objects import container, node, pod
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run

SETTLE = 5.0
SMALL1, SMALL2 = node("n1", "1"), node("n2", "1")


def play(steps, *objects):
    async def work():
        async with world(*objects) as there:
            Kubelet(there.embedded)
            await steps(there)

    run(work())


def big(name, *claims, **more):
    return claiming(name, *claims, containers=[container(cpu="1")], priority=100, **more)


def victim(name, where):
    return pod(name, container(cpu="1"), nodeName=where, priority=0)


def wanting(**amounts):
    """A container that asks for a GPU as an extended resource."""
    made = container(gpu="1", **amounts)
    made["resources"]["limits"] = {"ex.com/gpu": "1"}
    return made


def test_a_pod_preempts_on_a_node_that_has_its_device():
    async def steps(there):
        there.embedded.insert(big("p", "c"))
        await asyncio.sleep(60)
        assert there.where("p") == "n2"
        assert there.embedded.get("Pod", "v2") is None
        assert there.embedded.get("Pod", "v1") is not None

    objects = SMALL1, SMALL2, device_class(), slice_of("n2", "d0"), claim("c")
    play(steps, *objects, victim("v1", "n1"), victim("v2", "n2"))


def test_nobody_is_evicted_for_a_device():
    """The holder of the device is less important, and would leave the room, but not its device (limit L6)."""

    async def steps(there):
        there.embedded.insert(claiming("p", "mine", priority=100))
        await asyncio.sleep(SETTLE)
        assert there.where("p") is None
        assert there.embedded.get("Pod", "v") is not None
        assert "cannot allocate all claims" in there.message("p")

    holder = claiming("v", "its", nodeName="n1", priority=0)
    its = claim("its", status=allocated("d0", users=["v"]))
    play(steps, N1, device_class(), slice_of("n1", "d0"), claim("mine"), its, holder)


def test_a_device_is_not_kept_for_a_pod_that_is_nominated():
    async def steps(there):
        there.embedded.insert(big("p", "c"))
        await asyncio.sleep(1)
        nominated = there.embedded.get("Pod", "p")["status"].get("nominatedNodeName")
        assert (nominated, there.where("p")) == ("n1", None)
        there.embedded.insert(claiming("q", "other", containers=[container(memory="1Mi")]))
        await asyncio.sleep(SETTLE)
        assert there.where("q") == "n1"
        assert len(there.books.in_flight) == 0

    slow = victim("v", "n1")
    slow["spec"]["terminationGracePeriodSeconds"] = 30
    play(steps, SMALL1, device_class(), slice_of("n1", "d0"), claim("c"), claim("other"), slow)


@pytest.mark.parametrize(("of_plugin", "goes_to"), [({}, "n1"), ({"gpu": "1"}, None)], ids=["by claims", "by a plugin"])
def test_an_extended_resource_is_kept_unless_claims_serve_it(of_plugin, goes_to):
    """Where DRA serves it the node has none, so NodeResourcesFit counts none for the nominated pod (dra spec 3.10)."""

    async def steps(there):
        there.embedded.insert(pod("p", wanting(cpu="1"), priority=100))
        await asyncio.sleep(1)
        nominated = there.embedded.get("Pod", "p")["status"].get("nominatedNodeName")
        assert (nominated, there.where("p")) == ("n1", None)
        there.embedded.insert(pod("q", wanting(memory="1Mi")))
        await asyncio.sleep(SETTLE)
        assert there.where("q") == goes_to

    slow = victim("v", "n1")
    slow["spec"]["terminationGracePeriodSeconds"] = 30
    of_resource = device_class(extendedResourceName="ex.com/gpu")
    play(steps, node("n1", "1", **of_plugin), of_resource, slice_of("n1", "d0"), slow)
