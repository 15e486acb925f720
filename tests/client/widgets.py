"""A made-up kind, a sink that records what it is told, and a reflector at work on a fake server."""

import asyncio
import random

import msgspec

from koordsched.api.meta import ObjectMeta, Wire
from koordsched.client.inmemory import InMemoryTransport
from koordsched.client.reflector import Reflector
from koordsched.client.sink import ObjectKey
from tests.client.apifake import FakeApi
from tests.virtualtime import VirtualClock

WIDGETS = "/apis/example.com/v1/widgets"


class Widget(Wire, frozen=True):
    metadata: ObjectMeta
    size: int = 0


def widget(name, size=1, namespace="ns", **meta):
    return {"metadata": {"namespace": namespace, "name": name, **meta}, "size": size}


class RecordingSink:
    """Keeps the state a sink should have, and the calls it got."""

    def __init__(self):
        self.objects = {}
        self.calls = []
        self.reject = set()

    def upsert(self, obj, anew=False):
        if obj.metadata.name in self.reject:
            raise RuntimeError(f"cannot take {obj.metadata.name}")
        key = ObjectKey(obj.metadata.namespace, obj.metadata.name, obj.metadata.uid)
        self.calls.append(("upsert", obj.metadata.name, obj.size))
        for other in [k for k in self.objects if k[:2] == key[:2] and k != key]:
            del self.objects[other]
        self.objects[key] = obj

    def delete(self, obj):
        self.calls.append(("delete", obj.metadata.name, obj.size))
        self.objects.pop(ObjectKey(obj.metadata.namespace, obj.metadata.name, obj.metadata.uid), None)

    def delete_key(self, key):
        self.calls.append(("delete_key", key.name))
        self.objects.pop(key, None)

    def known(self):
        self.calls.append(("known", len(self.objects)))
        return iter(list(self.objects))

    def state(self):
        return {(k.namespace, k.name): (k.uid, o.size, o.metadata.resource_version) for k, o in self.objects.items()}


def server_state(api):
    return {
        key: (obj["metadata"]["uid"], obj["size"], obj["metadata"]["resourceVersion"])
        for key, obj in api.objects[WIDGETS].items()
        if isinstance(obj["size"], int)
    }


class Setup:
    """A reflector at work on a fake server."""

    def __init__(self, fault=None, seed=1, sink=None, **options):
        self.api = FakeApi()
        self.sink = sink or RecordingSink()
        self.malformed = []
        self.states = []
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.reflector = Reflector(
            InMemoryTransport(self.api.handler, fault=fault),
            WIDGETS,
            msgspec.json.Decoder(Widget).decode,
            self.sink,
            clock=self.clock,
            rng=random.Random(seed),
            on_malformed=lambda name, error: self.malformed.append((name, type(error).__name__)),
            on_state=lambda state, error: self.states.append(state),
            **options,
        )
        self.sink.calls.clear()  # whether it had something before was asked
        self.task = None

    async def __aenter__(self):
        self.task = asyncio.create_task(self.reflector.run())
        return self

    async def __aexit__(self, *_):
        assert not self.task.done(), self.task
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def lists(self):
        return [query for method, path, query in self.api.requests if path == WIDGETS and "watch" not in query]

    def watches(self):
        return [query for method, path, query in self.api.requests if "watch" in query]
