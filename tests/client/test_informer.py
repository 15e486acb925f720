import asyncio
import random

import msgspec
import pytest

from koordsched.api.meta import ObjectMeta, Wire
from koordsched.client.informer import Informer, Store
from koordsched.client.inmemory import InMemoryTransport
from koordsched.client.reflector import Reflector
from koordsched.client.sink import ObjectKey
from tests.client.apifake import FakeApi
from tests.virtualtime import VirtualClock, run

SERVICES = "/api/v1/services"


class Service(Wire, frozen=True):
    metadata: ObjectMeta


def service(name, namespace="a", uid="u", version="1"):
    return Service(ObjectMeta(name=name, namespace=namespace, uid=uid, resource_version=version))


def key(obj):
    return ObjectKey(obj.metadata.namespace, obj.metadata.name, obj.metadata.uid)


class Recorder:
    def __init__(self, store):
        self.heard = []
        store.on_change(
            add=lambda new: self.heard.append(("add", self._tag(new))),
            update=lambda old, new: self.heard.append(("update", self._tag(old), self._tag(new))),
            delete=lambda old: self.heard.append(("delete", self._tag(old))),
        )

    @staticmethod
    def _tag(obj):
        meta = obj.metadata
        return f"{meta.namespace}/{meta.name}@{meta.uid}.{meta.resource_version}"


ONE, TWO, OTHER = service("s"), service("s", version="2"), service("s", uid="v", version="3")

STEPS = {
    "a new object": ([("upsert", ONE)], [("add", "a/s@u.1")], ["a/s@u.1"]),
    "a changed one": (
        [("upsert", ONE), ("upsert", TWO)],
        [("add", "a/s@u.1"), ("update", "a/s@u.1", "a/s@u.2")],
        ["a/s@u.2"],
    ),
    "the same again, as every list brings": ([("upsert", ONE), ("upsert", ONE)], [("add", "a/s@u.1")], ["a/s@u.1"]),
    "another of the same name": (
        [("upsert", ONE), ("upsert", OTHER)],
        [("add", "a/s@u.1"), ("delete", "a/s@u.1"), ("add", "a/s@v.3")],
        ["a/s@v.3"],
    ),
    "deleted": ([("upsert", ONE), ("delete", TWO)], [("add", "a/s@u.1"), ("delete", "a/s@u.1")], []),
    "deleted before it was seen": ([("delete", ONE)], [], []),
    "a predecessor's late deletion": ([("upsert", OTHER), ("delete", ONE)], [("add", "a/s@v.3")], ["a/s@v.3"]),
    "vanished between lists": (
        [("upsert", ONE), ("replace_begin",), ("replace_end", set())],
        [("add", "a/s@u.1"), ("delete", "a/s@u.1")],
        [],
    ),
    "still there after a list": (
        [("upsert", ONE), ("replace_begin",), ("upsert", TWO), ("replace_end", {key(ONE)})],
        [("add", "a/s@u.1"), ("update", "a/s@u.1", "a/s@u.2")],
        ["a/s@u.2"],
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_what_handlers_hear(name):
    steps, heard, left = STEPS[name]
    store = Store()
    recorder = Recorder(store)
    for method, *arguments in steps:
        getattr(store, method)(*arguments)
    assert recorder.heard == heard
    assert [Recorder._tag(obj) for obj in store] == left
    assert len(store) == len(left)
    late = Recorder(store)
    assert late.heard == [("add", tag) for tag in left], "a late handler hears of what is there"


def test_lookups():
    store = Store()
    objects = [service("x", "a"), service("y", "a"), service("x", "b"), service("cluster-wide", "")]
    for obj in objects:
        store.upsert(obj)
    assert store.get("a", "x") is objects[0]
    assert store.get("b", "y") is None
    assert store.get("nowhere", "x") is None
    assert store.list("a") == objects[:2]
    assert store.list("nowhere") == []
    assert store.list() == objects
    assert store.get("", "cluster-wide") is objects[3]


def test_an_informer_follows_the_server():
    async def main():
        api = FakeApi()
        api.put(SERVICES, {"metadata": {"namespace": "a", "name": "s"}})
        store = Store()
        recorder = Recorder(store)
        reflector = Reflector(
            InMemoryTransport(api.handler),
            SERVICES,
            msgspec.json.Decoder(Service).decode,
            store,
            clock=VirtualClock(asyncio.get_running_loop()),
            rng=random.Random(1),
        )
        informer = Informer(store, reflector)
        assert not informer.has_synced()
        task = asyncio.create_task(informer.run())
        await reflector.synced.wait()
        assert informer.has_synced()
        api.put(SERVICES, {"metadata": {"namespace": "a", "name": "s"}})
        await asyncio.sleep(1)
        api.remove(SERVICES, "a", "s")
        await asyncio.sleep(1)
        assert recorder.heard == [
            ("add", "a/s@uid-11.11"),
            ("update", "a/s@uid-11.11", "a/s@uid-11.12"),
            ("delete", "a/s@uid-11.12"),
        ]
        task.cancel()

    run(main())
