"""An embedded API server over HTTP, in a thread of this process, and a kubeconfig for it."""

import asyncio
import threading
from contextlib import contextmanager
from random import Random

import orjson

from koordsched.fakecluster.clock import SystemClock, loop_call_later
from koordsched.fakecluster.cluster import new_cluster
from koordsched.fakecluster.http import HttpServer
from koordsched.fakecluster.kubeconfig import kubeconfig, write_kubeconfig
from koordsched.fakecluster.messages import Request
from koordsched.fakecluster.server import ApiServer

DEADLINE = 30.0


class ServedCluster:
    """What a user does to the cluster, from another thread than that of the server."""

    def __init__(self, loop, api):
        self.loop = loop
        self.api = api
        self.requests = []
        """(method, path) of what was asked, in order."""
        self.address = ""
        self.kubeconfig = ""

    def restore(self, *objects):
        """Puts objects in as they are, past admission."""
        self._in_loop(self._restore, objects)

    def _restore(self, objects):
        for thing in orjson.loads(orjson.dumps(objects)):
            resource = self.api.registry.resource_for_kind(thing["apiVersion"], thing["kind"])
            if resource.namespaced:
                thing["metadata"].setdefault("namespace", "default")
            thing["metadata"].setdefault("uid", f"uid-{thing['kind']}-{thing['metadata']['name']}")
            self.api.registry.restore(resource, thing)

    def create(self, path, thing):
        """Posts an object, as a user does."""

        async def post():
            headers = {"content-type": "application/json"}
            response = await self.api.handle(Request("POST", path, {}, headers, orjson.dumps(thing)))
            assert response.status == 201, response.body

        asyncio.run_coroutine_threadsafe(post(), self.loop).result(DEADLINE)

    def insert(self, thing):
        """Puts an object in as it is, past admission, and tells the watches."""
        self._in_loop(self._insert, thing)

    def _insert(self, thing):
        thing = orjson.loads(orjson.dumps(thing))
        registry = self.api.registry
        resource = registry.resource_for_kind(thing["apiVersion"], thing["kind"])
        if resource.namespaced:
            thing["metadata"].setdefault("namespace", "default")
        thing["metadata"].setdefault("uid", f"uid-{thing['kind']}-{thing['metadata']['name']}")
        registry._commit(resource, "ADDED", None, thing, dry_run=False)

    def listed(self, kind, api_version="v1"):
        """All objects of a kind, as a client gets them."""
        registry = self.api.registry
        return self._in_loop(lambda: registry.list(registry.resource_for_kind(api_version, kind)))

    def forbid(self, *names):
        """Refuses every request for these resources (`plural.group`)."""
        self._in_loop(self.api.forbidden.update, names)

    def _in_loop(self, function, *arguments):
        async def call():
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(DEADLINE)

    def handle(self, request: Request):
        self.requests.append((request.method, request.path))
        return self.api.start(request)


@contextmanager
def served_cluster(directory, *, seed=1, wrap=None):
    """A cluster that serves until the end; its kubeconfig is in the directory. `wrap` may replace the handler."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start():
        registry = new_cluster(SystemClock(), Random(seed), loop_call_later)
        cluster = ServedCluster(loop, ApiServer(registry, rng=Random(seed)))
        http = HttpServer(wrap(cluster) if wrap is not None else cluster.handle)
        port = await http.start("127.0.0.1", 0)
        cluster.address = f"http://127.0.0.1:{port}"
        return cluster, http

    try:
        cluster, http = asyncio.run_coroutine_threadsafe(start(), loop).result(DEADLINE)
        path = directory / "kubeconfig"
        write_kubeconfig(path, kubeconfig(cluster.address))
        cluster.kubeconfig = str(path)
        try:
            yield cluster
        finally:
            asyncio.run_coroutine_threadsafe(http.stop(), loop).result(DEADLINE)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(DEADLINE)
        loop.close()
