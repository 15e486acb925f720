"""A reflector that asks for protobuf, on a server that has it, that has it not, and that sends something else."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

import pytest

from koordsched.api import core
from koordsched.api.decoding import Decoder
from koordsched.api.protobuf.decoding import ProtobufDecoder
from koordsched.api.protobuf.fields import MEDIA_TYPE
from koordsched.client.errors import NotSent
from koordsched.client.protobufformat import ProtobufFormat
from koordsched.client.reflector import Reflector, State
from koordsched.client.sink import ObjectKey
from tests.embedded import Embedded
from tests.virtualtime import run

PODS = "/api/v1/pods"
ONLY = MEDIA_TYPE
"""What asks the embedded server for protobuf: whoever takes JSON, too, gets that."""


def pod(name, **labels):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]},
    }


class Sink:
    """The pods there are, by name."""

    def __init__(self):
        self.pods = {}

    def upsert(self, obj, anew=False):
        self.pods[obj.metadata.name] = obj

    def delete(self, obj):
        self.pods.pop(obj.metadata.name, None)

    def delete_key(self, key):
        self.pods.pop(key.name, None)

    def known(self):
        return iter([ObjectKey(p.metadata.namespace, p.metadata.name, p.metadata.uid) for p in self.pods.values()])


class Setup:
    """A reflector at work. `types` are the content types of the answers it got."""

    def __init__(self, accept, fault=None, **options):
        self.embedded = Embedded()
        self.sink = Sink()
        self.types = []
        self.malformed = []
        self.fault = fault

        async def observed(call, proceed):
            reply = await (self.fault(call, proceed) if self.fault is not None else proceed())
            self.types.append(reply[1].get("content-type", ""))
            return reply

        self.transport = self.embedded.transport(observed)
        self.reflector = Reflector(
            self.transport,
            PODS,
            Decoder(core.Pod),
            self.sink,
            clock=self.embedded.clock,
            rng=Random(1),
            protobuf=ProtobufFormat(ProtobufDecoder(core.Pod, "io.k8s.api.core.v1.Pod"), accept),
            on_malformed=lambda name, error: self.malformed.append(name),
            **options,
        )

    async def call(self, method, name, body, content_type="application/json"):
        """What a user does to a pod, or to all ("")."""
        path, headers = f"/api/v1/namespaces/default/pods{name}", {"content-type": content_type}
        status, answer = await self.embedded.call(method, path, body, headers=headers)
        assert status < 300, answer

    def expected(self):
        """What the server has, by way of JSON."""
        registry = self.embedded.registry
        decode = Decoder(core.Pod)
        records = registry.collection(registry.resource("", "v1", "pods")).scan(None)
        return {obj.metadata.name: obj for obj in (decode(record.data) for record in records)}


@asynccontextmanager
async def at_work(setup):
    task = asyncio.get_running_loop().create_task(setup.reflector.run())
    await setup.reflector.synced.wait()
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await setup.transport.close()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "accept, expected",
    [(ONLY, {MEDIA_TYPE, f"{MEDIA_TYPE};stream=watch"}), (f"{MEDIA_TYPE},application/json", {"application/json"})],
)
def test_it_knows_what_the_server_knows(accept, expected, streamed):
    async def main():
        setup = Setup(accept, watch_list=streamed, page_size=2)
        for i in range(5):
            await setup.call("POST", "", pod(f"p{i}", i=str(i)))
        async with at_work(setup):
            assert setup.sink.pods == setup.expected()
            await setup.call("POST", "", pod("new"))
            await setup.call("PATCH", "/p1", {"metadata": {"labels": {"i": "9"}}}, "application/merge-patch+json")
            await setup.call("DELETE", "/p2", {"gracePeriodSeconds": 0})
            await asyncio.sleep(1)
            assert sorted(setup.sink.pods) == ["new", "p0", "p1", "p3", "p4"]
            assert setup.sink.pods == setup.expected()
            assert setup.sink.pods["p1"].metadata.labels == {"i": "9"}
            # Bookmarks: watches go on from where others have written since.
            await setup.embedded.call("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
            await asyncio.sleep(200)
            assert setup.reflector.resource_version == str(setup.embedded.registry.store.rv)
        assert set(setup.types) <= expected
        assert setup.malformed == []

    run(main())


def test_what_was_compacted_is_listed_again():
    async def main():
        setup = Setup(ONLY)
        async with at_work(setup):
            setup.fault = unreachable
            collection = setup.embedded.registry.collection(setup.embedded.registry.resource("", "v1", "pods"))
            await asyncio.sleep(700)
            setup.embedded.insert(pod("missed"))
            collection.compact()
            setup.embedded.insert(pod("later"))
            setup.fault = None
            await asyncio.sleep(60)
            assert sorted(setup.sink.pods) == ["later", "missed"]
            assert (setup.reflector.state, setup.reflector.lists) == (State.SYNCED, 2)

    async def unreachable(call, proceed):
        raise NotSent("no way")

    run(main())


async def bytes_of(*chunks):
    for chunk in chunks:
        yield chunk


BROKEN = {
    "not a frame": b"HTTP/1.1 502 Bad Gateway",
    "not an event": b"\x00\x00\x00\x02\xff\xff",
    "without an envelope": b"\x00\x00\x00\x0d\x0a\x05ADDED\x12\x04\x0a\x02{}",
    "of unknown type": b"\x00\x00\x00\x11\x0a\x03NEW\x12\x0a\x0a\x08k8s\x00\x12\x02\x0a\x00",
}


@pytest.mark.parametrize("chunk", BROKEN.values(), ids=BROKEN)
def test_an_unreadable_watch_leads_to_a_new_list(chunk):
    async def main():
        broken = []

        async def fault(call, proceed):
            if "watch" in call.query and len(broken) < 2:
                broken.append(call)
                return 200, {"content-type": f"{MEDIA_TYPE};stream=watch"}, bytes_of(chunk)
            return await proceed()

        setup = Setup(ONLY, fault)
        setup.embedded.insert(pod("p"))
        async with at_work(setup):
            await asyncio.sleep(30)
            assert setup.reflector.lists == 3
            setup.embedded.insert(pod("q"))
            await asyncio.sleep(1)
            assert setup.sink.pods == setup.expected()

    run(main())


def test_one_pod_that_cannot_be_read_is_reported_and_left_out():
    async def main():
        # Its metadata is sound, its spec is not: field 2 is no message.
        meta = b"\x0a\x05wrong\x1a\x07default\x2a\x01u\x32\x0599999"
        message = b"\x0a" + bytes([len(meta)]) + meta + b"\x12\x02\xff\xff"
        unknown = b"\x12" + bytes([len(message)]) + message
        raw = b"k8s\x00" + unknown
        event = b"\x0a\x05ADDED\x12" + bytes([len(raw) + 2]) + b"\x0a" + bytes([len(raw)]) + raw

        async def fault(call, proceed):
            reply = await proceed()
            if "watch" not in call.query:
                return reply

            async def both():
                yield len(event).to_bytes(4, "big") + event
                async for chunk in reply[2]:
                    yield chunk

            return reply[0], reply[1], both()

        setup = Setup(ONLY, fault)
        setup.embedded.insert(pod("p"))
        async with at_work(setup):
            await asyncio.sleep(1)
            assert setup.malformed == ["default/wrong"]
            assert list(setup.sink.pods) == ["p"]
            assert setup.reflector.lists == 1

    run(main())


def test_refusals_are_understood():
    async def main():
        setup = Setup(ONLY)
        setup.embedded.server.forbidden.add("pods")
        task = asyncio.get_running_loop().create_task(setup.reflector.run())
        await asyncio.sleep(5)
        assert setup.reflector.state is State.FORBIDDEN
        assert "pods is forbidden" in str(setup.reflector.error)
        setup.embedded.server.forbidden.clear()
        await asyncio.sleep(60)
        assert setup.reflector.state is State.SYNCED
        assert set(setup.types) == {MEDIA_TYPE, f"{MEDIA_TYPE};stream=watch"}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main())
