"""The real scheduler against the embedded API server, in one process on virtual time."""

import asyncio
import json
from contextlib import asynccontextmanager
from random import Random
from uuid import UUID

from koordsched.client.inmemory import InMemoryTransport
from koordsched.client.lanes import Lanes
from koordsched.fakecluster.clock import rfc3339
from koordsched.fakecluster.cluster import new_cluster
from koordsched.fakecluster.messages import Request
from koordsched.fakecluster.quantities import canonicalize
from koordsched.fakecluster.server import ApiServer
from koordsched.observability.metrics import Metrics
from koordsched.scheduling.scheduler import Scheduler
from tests.extraplugins import registry_with, resolved_with
from tests.virtualtime import VirtualClock

DEFAULT_CONFIG = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}

PATHS = {
    "Node": "api/v1/nodes",
    "Namespace": "api/v1/namespaces",
    "PersistentVolume": "api/v1/persistentvolumes",
    "PriorityClass": "apis/scheduling.k8s.io/v1/priorityclasses",
}


class _WallClock:
    """The server's reading of the virtual clock."""

    def __init__(self, clock):
        self._clock = clock

    def now(self):
        return self._clock.wall()


class Embedded:
    """An API server in this process, and shorthands for what a user does to it."""

    def __init__(self, seed=1, call_later=None, webhooks=()):
        loop = asyncio.get_running_loop()
        self.clock = VirtualClock(loop)
        self.rng = Random(seed)
        timers = call_later or loop.call_later
        self.registry = new_cluster(_WallClock(self.clock), Random(seed), timers, webhooks=webhooks)
        self.server = ApiServer(self.registry, rng=Random(seed))

    def transport(self, fault=None):
        """A client's way in."""

        async def handler(method, path, query, headers, body):
            response = await self.server.handle(Request(method, path, query, headers, body))
            return response.status, response.headers, response.body

        return InMemoryTransport(handler, fault=fault)

    def restore(self, thing):
        """Puts an object in as it is, past admission."""
        thing = json.loads(json.dumps(thing))
        resource = self.registry.resource_for_kind(thing["apiVersion"], thing["kind"])
        if resource.namespaced:
            thing["metadata"].setdefault("namespace", "default")
        return self.registry.restore(resource, thing)

    def insert(self, thing):
        """Puts an object in as it is, past admission, and tells all watches. Pods get their defaults and quantities in
        canonical form, as all pods have them that a server stores.
        """
        thing = json.loads(json.dumps(thing))
        resource = self.registry.resource_for_kind(thing["apiVersion"], thing["kind"])
        meta = thing["metadata"]
        if resource.namespaced:
            meta.setdefault("namespace", "default")
        meta.setdefault("uid", str(UUID(int=self.rng.getrandbits(128))))
        meta.setdefault("creationTimestamp", rfc3339(self.clock.wall()))
        if resource.kind == "Pod":
            self.registry.strategy(resource).defaults(thing)
            for container in (*thing["spec"].get("initContainers", ()), *thing["spec"]["containers"]):
                for quantities in container.get("resources", {}).values():
                    if isinstance(quantities, dict):
                        canonicalize(quantities, "")
        return self.registry._commit(resource, "ADDED", None, thing, dry_run=False)

    def disruption_budget(self, app, allowed=0):
        """A budget for the pods with the label app=`app`."""
        self.insert(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": app},
                "spec": {"selector": {"matchLabels": {"app": app}}},
                "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
            }
        )

    def resource(self, kind, api_version="v1"):
        """The resource of a kind."""
        return self.registry.resource_for_kind(api_version, kind)

    def get(self, kind, name, namespace="default", api_version="v1"):
        """The object, or None."""
        resource = self.resource(kind, api_version)
        return self.registry.peek(resource, namespace if resource.namespaced else None, name)

    def events(self):
        """All events, oldest first."""
        return self.registry.list(self.registry.resource("events.k8s.io", "v1", "events"))

    async def call(self, method, path, body=None, **query):
        """An HTTP request; returns (status, parsed body)."""
        headers = query.pop("headers", {"content-type": "application/json"})
        data = json.dumps(body).encode() if body is not None else b""
        response = await self.server.handle(Request(method, path, query, headers, data))
        return response.status, json.loads(response.body)


class Running:
    """A scheduler that runs against an embedded server."""

    def __init__(self, scheduler, lanes, transport):
        self.scheduler = scheduler
        self.lanes = lanes
        self.transport = transport
        self.work = None
        """The task that schedules."""
        self.attempts = {}
        """namespace/name -> scheduling attempts so far."""
        original = scheduler.cycle.schedule_one

        def counting(queued):
            self.attempts[queued.key] = self.attempts.get(queued.key, 0) + 1
            return original(queued)

        scheduler.cycle.schedule_one = counting


@asynccontextmanager
async def scheduler_on(
    embedded,
    configuration=None,
    *,
    seed=1,
    fault=None,
    gates=(),
    controllers=None,
    own_pod=("", ""),
    plugins=(),
    **more,
):
    """Starts a scheduler and waits until it has seen everything; stops it at the end.

    `gates`: `Name=true` texts; `plugins`: classes to be enabled, too; `more` goes to the scheduler.
    """
    resolved = resolved_with(configuration or DEFAULT_CONFIG, plugins, gates)
    transport = embedded.transport(fault)
    lanes = Lanes(transport, embedded.clock, Random(seed))
    scheduler = Scheduler(
        resolved,
        registry_with(plugins),
        transport=transport,
        lanes=lanes,
        clock=embedded.clock,
        rng=Random(seed),
        metrics=Metrics(process_metrics=False),
        hostname="test",
        own_pod=own_pod,
        controllers=controllers or {},
        **more,
    )
    scheduler.start()
    running = Running(scheduler, lanes, transport)
    running.work = asyncio.create_task(scheduler.run())
    await scheduler.wait_synced()
    try:
        yield running
    finally:
        running.work.cancel()
        await asyncio.gather(running.work, return_exceptions=True)
        await scheduler.stop()
        await lanes.close()
        await transport.close()
