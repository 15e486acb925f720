"""Writes that arrive when another object has the name of the one they are about: they leave it as it is."""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.api.meta import ObjectMeta
from koordsched.client.lanes import Lanes
from koordsched.client.sink import ObjectKey
from koordsched.cluster.builtinkinds import PODS
from koordsched.cluster.resources import CPU
from koordsched.framework.handle import WriteFailed
from koordsched.scheduling.apiwrites import ApiWrites
from koordsched.scheduling.objectwrites import ObjectWrites
from koordsched.scheduling.podstatus import PatchRejected
from koordsched.scheduling.virtualpods import VirtualPodWriters
from tests.embedded import Embedded, scheduler_on
from tests.plugins.harness import Bench
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

BODY = b'{"metadata":{"uid":"first"},"status":{"nominatedNodeName":"beech"}}'
LABEL = {"metadata": {"labels": {"changed": "1"}}}


def meta(of):
    return ObjectMeta(name=of.name, namespace=of.namespace, uid=of.uid)


WRITES = {
    "bind": lambda api, objects, old: api.bind(old, "beech"),
    "evict": lambda api, objects, old: api.evict(old, "preempted", "2030-01-01T00:00:00Z"),
    "patch metadata": lambda api, objects, old: api.patch_metadata(old, LABEL["metadata"]),
    "patch status": lambda api, objects, old: api.patch_status("default", "p", BODY),
    "merge": lambda api, objects, old: api.merge(PODS, meta(old), LABEL),
    "delete": lambda api, objects, old: api.delete(PODS, meta(old)),
    "evict for a controller": lambda api, objects, old: objects.evict(old),
    "merge for a controller": lambda api, objects, old: objects.merge(PODS, meta(old), LABEL),
    "delete for a controller": lambda api, objects, old: objects.delete(PODS, meta(old)),
}
"""Every way to write about a pod."""


def thing(uid, on=None):
    made = pod("p", container(cpu="1"), on=on)
    made["metadata"]["uid"] = uid
    return made


async def world(on=None):
    """(the server, which has only the second pod of that name; the writes; the first pod)."""
    embedded = Embedded()
    for name in ("alder", "beech"):
        embedded.insert(node(name))
    embedded.insert(thing("second", on))
    transport, virtual = embedded.transport(), VirtualPodWriters()
    lanes = Lanes(transport, embedded.clock, Random(1))
    first = Bench().pod(thing("first"))
    return embedded, ApiWrites(lanes, transport, Random(1), virtual), ObjectWrites(lanes, virtual), first


@pytest.mark.parametrize("on", [None, "alder"], ids=["waiting", "running"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_about_a_pod_that_is_gone_leaves_its_namesake_alone(write, on):
    async def main():
        embedded, api, objects, first = await world(on)
        before = embedded.get("Pod", "p")
        with suppress(WriteFailed, PatchRejected):  # whether it is said that it failed is of no interest here
            await asyncio.wait_for(write(api, objects, first), 60)
        assert embedded.get("Pod", "p") == before

    run(main())


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_the_same_write_reaches_the_pod_that_it_is_about(write):
    """Otherwise the other test would pass whatever is written."""

    async def main():
        embedded, api, objects, _ = await world("alder" if write is not WRITES["bind"] else None)
        before = embedded.get("Pod", "p")
        own = Bench().pod(embedded.get("Pod", "p"))
        if write is WRITES["patch status"]:
            await api.patch_status("default", "p", BODY.replace(b"first", b"second"))
        else:
            await asyncio.wait_for(write(api, objects, own), 60)
        assert embedded.get("Pod", "p") != before

    run(main())


@pytest.mark.parametrize(("uid", "bound"), [("first", False), ("second", True)])
def test_the_node_of_a_namesake_is_not_that_of_the_pod(uid, bound):
    async def main():
        _, api, _, _ = await world("alder")
        own = Bench().pod(thing(uid))
        assert await api.is_bound(own, "alder") is bound
        assert await api.is_bound(own, "beech") is False

    run(main())


def test_a_binding_that_met_a_namesake_on_the_same_node_has_failed():
    """The answer is a conflict, and what is read back is a pod of this name on this node: another one."""

    async def main():
        _, api, _, first = await world("alder")
        with pytest.raises(WriteFailed):
            await asyncio.wait_for(api.bind(first, "alder"), 60)

    run(main())


@pytest.mark.parametrize("delete", ["the object", "its key"])
def test_the_late_end_of_a_bound_pod_leaves_its_namesake_its_place(delete):
    """A list shows the second pod, and only at its end that the first is gone; the second is being bound by then."""
    asked = asyncio.Event()

    async def fault(call, proceed):
        if call.path.endswith("/binding"):
            asked.set()
            await asyncio.sleep(3600)
        return await proceed()

    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="3"))
        embedded.insert(thing("first", "alder"))
        async with scheduler_on(embedded, fault=fault) as running:
            scheduler = running.scheduler
            sink, cluster = scheduler.watches.reflectors["/api/v1/pods"]._applier._sink, scheduler.cluster
            first, second = (convert(thing(uid, on), core.Pod) for uid, on in (("first", "alder"), ("second", None)))
            sink.upsert(second)
            await asked.wait()
            assert cluster.assigned.keys() == {"first", "second"}
            if delete == "the object":
                sink.delete(first)
            else:
                sink.delete_key(ObjectKey("default", "p", "first"))
            await asyncio.sleep(1)
            assert cluster.assigned.keys() == cluster.assumed.keys() == {"second"}
            row = cluster.table.row_of["alder"]
            assert (cluster.table.requested[CPU].data[row], cluster.table.pods_count.data[row]) == (1000, 1)

    run(main())
