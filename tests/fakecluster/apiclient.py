"""A client of the embedded API server in memory, for tests on virtual time."""

import json
import random

from koordsched.fakecluster.cluster import new_cluster
from koordsched.fakecluster.messages import Request
from koordsched.fakecluster.server import ApiServer
from koordsched.fakecluster.store import Store

START = 1893456000.0
NOW = "2030-01-01T00:00:00Z"


class StillClock:
    """Wall time that moves by hand."""

    def __init__(self, now=START):
        self.time = now

    def now(self):
        return self.time


class Timers:
    """Timers that run when told to."""

    def __init__(self, clock):
        self._clock = clock
        self._waiting = []

    def __call__(self, delay, callback, *args):
        timer = _Timer(self._clock.time + delay, callback, args)
        self._waiting.append(timer)
        return timer

    def advance(self, seconds):
        """Move the clock, running what becomes due in order."""
        end = self._clock.time + seconds
        while due := [t for t in self._waiting if not t.cancelled and t.at <= end]:
            timer = min(due, key=lambda t: t.at)
            self._waiting.remove(timer)
            self._clock.time = max(self._clock.time, timer.at)
            timer.callback(*timer.args)
        self._clock.time = end


class _Timer:
    def __init__(self, at, callback, args):
        self.at, self.callback, self.args, self.cancelled = at, callback, args, False

    def cancel(self):
        self.cancelled = True


class Api:
    """A server and shorthands to talk to it; every answer is (status, decoded body)."""

    def __init__(self, authenticator=None, store=None, webhooks=(), **server):
        self.clock = StillClock()
        self.timers = Timers(self.clock)
        self.registry = new_cluster(self.clock, random.Random(1), self.timers, store or Store(), webhooks)
        self.server = ApiServer(self.registry, authenticator, rng=random.Random(1), **server)

    def response(self, method, path, body=None, content_type="application/json", headers=None):
        """The whole response to a request."""
        path, _, query = path.partition("?")
        pairs = dict(p.split("=", 1) for p in query.split("&") if p)
        encoded = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        request = Request(method, path, pairs, {"content-type": content_type, **(headers or {})}, encoded)
        return self.server.start(request)

    def call(self, method, path, body=None, content_type="application/json", headers=None):
        """(status, decoded body)."""
        response = self.response(method, path, body, content_type, headers)
        return response.status, json.loads(response.body)

    def get(self, path, **options):
        return self.call("GET", path, **options)

    def post(self, path, body, **options):
        return self.call("POST", path, body, **options)

    def put(self, path, body, **options):
        return self.call("PUT", path, body, **options)

    def delete(self, path, body=None):
        return self.call("DELETE", path, body)

    def merge(self, path, patch):
        return self.call("PATCH", path, patch, "application/merge-patch+json")

    def watch(self, path):
        """The stream of a watch; see `events`."""
        response = self.response("GET", path)
        assert response.status == 200, response.body
        return Stream(response.body)


class Stream:
    """Reads a watch as decoded events."""

    def __init__(self, body):
        self._body = body.__aiter__()
        self._raw = body
        self._events = []

    async def take(self, count):
        """The next `count` events as (type, name or None, resourceVersion)."""
        return [(e["type"], e["object"]["metadata"].get("name"), e["object"]) for e in await self.raw(count)]

    async def raw(self, count):
        """The next `count` events whole."""
        while len(self._events) < count:
            chunk = await anext(self._body)
            self._events += [json.loads(line) for line in chunk.splitlines()]
        taken, self._events = self._events[:count], self._events[count:]
        return taken

    async def rest(self):
        """Everything until the stream ends."""
        async for chunk in self._body:
            self._events += [json.loads(line) for line in chunk.splitlines()]
        taken, self._events = self._events, []
        return taken

    async def close(self):
        await self._raw.aclose()


PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def pod(name="p", labels=None, **spec):
    """A minimal pod."""
    containers = spec.pop("containers", [{"name": "c", "image": "app:1"}])
    meta = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers, **spec}}


def config_map(name, labels=None, **data):
    """A config map."""
    meta = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
