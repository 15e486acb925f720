"""A server that was restored from a backup: what it shows now counts, in whatever versions."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from koordsched.api.core import Pod
from koordsched.api.decoding import convert
from koordsched.client.errors import NotSent
from koordsched.cluster.builtinkinds import PODS
from tests.embedded import Embedded, scheduler_on
from tests.journal.recording import Recorded, places, replayed_from_each_segment
from tests.plugins.objects import container, node, pod
from tests.scheduling.test_another_server import SYSTEM, lose
from tests.virtualtime import run

WRITES = 300
"""Of other objects, before the backup is put back: versions of then are greater than those of now."""


class Server:
    """An embedded server that can be restored from a backup. `fault` is that of a transport."""

    def __init__(self, *things):
        self.embedded = Embedded()
        self.insert(SYSTEM, *things)
        self.insert(
            *({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"map-{i}"}} for i in range(WRITES))
        )
        self.slow = ""
        """Requests whose path ends in this, if it is not empty, take five seconds."""
        self.blinding = ""
        """If it is not empty: after a request whose path ends in this, watches show nothing."""
        self._away = self._hidden = False

    def insert(self, *things):
        for thing in things:
            meta = {"uid": f"uid of {thing['metadata']['name']}", **thing["metadata"]}
            self.embedded.insert({**thing, "metadata": meta})

    def version_of(self, kind, name):
        return self.embedded.get(kind, name)["metadata"]["resourceVersion"]

    def node_of(self, name):
        return self.embedded.get("Pod", name)["spec"].get("nodeName")

    async def restore(self, *things):
        """All that it has afterwards is these."""
        self._away, self.slow, self.blinding = True, "", ""
        lose(self.embedded, 1)
        self.insert(SYSTEM, *things)
        await asyncio.sleep(1)
        self._away = self._hidden = False
        await asyncio.sleep(1)

    async def fault(self, call, proceed):
        if self._away:
            raise NotSent("connection refused")
        if self.blinding and call.path.endswith(self.blinding):
            self._hidden = True
        if self.slow and call.path.endswith(self.slow):
            await asyncio.sleep(5)
        status, headers, body = await proceed()
        return status, headers, self._shown(body) if "watch" in call.query else body

    async def _shown(self, chunks):
        async for chunk in chunks:
            if not self._hidden:
                yield chunk


@asynccontextmanager
async def scheduling(*things, **more):
    server = Server(*things)
    async with scheduler_on(server.embedded, fault=server.fault, **more) as running:
        server.scheduler, server.attempts = running.scheduler, running.attempts
        yield server


ALDER = node("alder", cpu="4")
WAITING = pod("waiting", container(cpu="3"))
FOREIGN = pod("waiting", container(cpu="3"), schedulerName="another")


def bound(wire):
    return {**wire, "spec": {**wire["spec"], "nodeName": "alder"}}


async def another_fits(server):
    server.insert(pod("another", container(cpu="3")))
    await asyncio.sleep(60)
    return server.node_of("another") == "alder"


@pytest.mark.parametrize("gates", [(), ("WatchListClient=true",)], ids=["lists", "streamed lists"])
def test_a_pod_that_waits_in_the_backup_is_scheduled_again(gates):
    async def main():
        async with scheduling(ALDER, gates=gates) as server:
            server.insert(WAITING)
            await asyncio.sleep(5)
            assert server.node_of("waiting") == "alder"
            await server.restore(ALDER, WAITING)
            await asyncio.sleep(10)
            assert server.node_of("waiting") == "alder"
            assert server.attempts == {"default/waiting": 2}

    run(main())


def test_a_pod_of_another_scheduler_that_waits_in_the_backup_holds_nothing():
    async def main():
        async with scheduling(ALDER) as server:
            server.insert(bound(FOREIGN))
            await asyncio.sleep(5)
            await server.restore(ALDER, FOREIGN)
            assert await another_fits(server)

    run(main())


@pytest.mark.parametrize("wire", [WAITING, FOREIGN], ids=["ours", "another scheduler's"])
def test_a_pod_leaves_its_node_when_a_newer_version_has_none(wire):
    async def main():
        async with scheduling(ALDER, bound(wire)) as server:
            server.insert(pod("second", container(cpu="3")))
            await asyncio.sleep(5)
            server.insert(wire)
            await asyncio.sleep(30)
            placed = [name for name in ("waiting", "second") if server.node_of(name)]
            assert placed == ["second"] if wire is FOREIGN else len(placed) == 1

    run(main())


@pytest.mark.parametrize("wire", [WAITING, FOREIGN], ids=["ours", "another scheduler's"])
def test_an_older_version_takes_no_pod_off_its_node(wire):
    async def main():
        async with scheduling(ALDER, bound(wire)) as server:
            known, version = server.scheduler.cluster.assigned, int(server.version_of("Pod", "waiting"))
            for older in (version - 1, version):
                meta = {**server.embedded.get("Pod", "waiting")["metadata"], "resourceVersion": str(older)}
                server.scheduler.watches.sinks[PODS.path].upsert(convert({**wire, "metadata": meta}, Pod))
            assert [each.node for each in known.values()] == ["alder"]

    run(main())


def test_a_binding_that_no_watch_has_shown_and_the_backup_lacks_is_made_again():
    async def main():
        async with scheduling(ALDER) as server:
            server.blinding = "/binding"
            server.insert(WAITING)
            await asyncio.sleep(5)
            assert server.node_of("waiting") == "alder"
            assert server.scheduler.cluster.is_assumed(WAITING["metadata"]["uid"])
            await server.restore(ALDER, WAITING)
            await asyncio.sleep(10)
            assert server.node_of("waiting") == "alder"

    run(main())


def test_a_pod_whose_binding_is_under_way_meanwhile_stays_where_it_is_assumed():
    async def main():
        async with scheduling(ALDER) as server:
            server.slow = "/binding"
            server.insert(WAITING)
            await asyncio.sleep(1)
            await server.restore(ALDER, WAITING)
            assert server.scheduler.watches.missing() == []
            assert server.node_of("waiting") is None
            assert server.scheduler.cluster.is_assumed(WAITING["metadata"]["uid"])
            await asyncio.sleep(30)
            assert server.node_of("waiting") == "alder"
            assert server.attempts == {"default/waiting": 1}

    run(main())


def test_a_node_in_another_state_under_the_same_version_is_known():
    async def main():
        async with scheduling(node("alder", cpu="1")) as server:
            before = server.version_of("Node", "alder")
            await server.restore(ALDER)
            assert server.version_of("Node", "alder") == before
            assert await another_fits(server)

    run(main())


def test_an_object_in_another_state_under_the_same_version_is_known():
    async def main():
        late = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"}}
        late |= {"provisioner": "csi", "volumeBindingMode": "Immediate"}
        async with scheduling(late) as server:
            await server.restore({**late, "volumeBindingMode": "WaitForFirstConsumer"})
            (known,) = server.scheduler.cluster.objects.at("/apis/storage.k8s.io/v1/storageclasses")
            assert known.volume_binding_mode == "WaitForFirstConsumer"

    run(main())


def test_a_pod_in_another_state_under_the_same_version_is_known():
    async def main():
        async with scheduling(ALDER, bound(WAITING), pod("other", container(cpu="3"))) as server:
            before = server.version_of("Pod", "waiting")
            small = pod("waiting", container(cpu="1"))
            await server.restore(ALDER, bound(small), pod("other", container(cpu="3")))
            assert server.version_of("Pod", "waiting") == before
            await asyncio.sleep(30)
            assert server.node_of("other") == "alder"

    run(main())


def test_a_condition_that_the_backup_lacks_is_written_again():
    async def main():
        huge = pod("huge", container(cpu="9"))
        async with scheduling(ALDER, huge) as server:
            await asyncio.sleep(5)
            assert server.embedded.get("Pod", "huge")["status"]["conditions"]
            await server.restore(ALDER, huge)
            assert not server.embedded.get("Pod", "huge")["status"].get("conditions")
            await asyncio.sleep(400)  # it is tried again, which fails in the same way
            assert server.embedded.get("Pod", "huge")["status"]["conditions"]

    run(main())


def test_a_replay_repeats_it():
    async def main():
        server = Server(ALDER)
        recorded = Recorded(server.embedded, fault=server.fault)
        async with recorded.running():
            server.insert(WAITING)
            await asyncio.sleep(5)
            await server.restore(ALDER, WAITING)
            await asyncio.sleep(10)
            assert server.node_of("waiting") == "alder"
        return recorded

    recorded = run(main())
    (replayed,) = replayed_from_each_segment(recorded.journal)
    assert places(replayed) == places(recorded.scheduler) == {"default/waiting": "alder"}
