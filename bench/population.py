"""Filling the cluster for a workload, and emptying it again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from urllib.parse import quote

import msgspec

from bench.api import Api, collection
from bench.manifests import (
    MARK,
    Manifest,
    definitions_of,
    namespaces_of,
    nodes_of,
    objects_of,
    pod,
    pods_of,
    priority_classes,
)
from bench.unrest import CHURN
from bench.workloads import Catalog, Pods, Workload

OURS = ",".join(f"{key}={value}" for key, value in MARK.items())
"""Selects what the benchmark made, and nothing else."""

SCHEDULER = "koordsched-bench-"
"""Schedulers are told a schedulerName that begins with this; their events carry it."""

_EVENTS = "/apis/events.k8s.io/v1/events"


class _Meta(msgspec.Struct):
    name: str
    namespace: str = ""
    finalizers: list[str] = []


class _Object(msgspec.Struct):
    metadata: _Meta


class Population:
    """The objects of one workload on one API server. `full_size`: pods have the size of real ones."""

    def __init__(self, api: Api, catalog: Catalog, workload: Workload, *, full_size: bool = True) -> None:
        self._api = api
        self._catalog = catalog
        self._workload = workload
        self._full_size = full_size
        self._names = [manifest["metadata"]["name"] for manifest in nodes_of(catalog, workload.nodes)]

    async def create_ground(self) -> None:
        """Nodes, namespaces and other objects: the same for every scheduler."""
        await self._api.create_all(priority_classes(self._catalog))
        for definition in definitions_of(self._workload):
            await self._api.define(definition)
        await self._api.create_all(namespaces_of(self._workload))
        await self._api.create_all(nodes_of(self._catalog, self._workload.nodes))
        await self._remove_taints()
        await self._api.create_all(objects_of(self._workload.objects))

    async def _remove_taints(self) -> None:
        """API servers taint every new node as not ready; the controller that takes that back may not be there."""
        nodes, _ = await self._api.list_all("/api/v1/nodes", OURS)
        tainted = [_path_of("nodes", "/api/v1", item) for item in nodes if _node(item).spec.taints]
        await self._api.patch_all(tainted, {"spec": {"taints": None}})

    async def strangers(self) -> int:
        """How many nodes there are that the benchmark did not make: they take part in every decision."""
        strange, _ = await self._api.list_all("/api/v1/nodes", f"!{next(iter(MARK))}")
        return len(strange)

    async def create_init(self, scheduler: str, nobody: str) -> None:
        """The pods that are there before the first measured one. Those that must wait are the scheduler `nobody`'s."""
        for number, group in enumerate(self._workload.init):
            await self._api.create_all(self._pods(group, f"init-{number}", scheduler, self._names))
        for number, group in enumerate(self._workload.pending):
            await self._api.create_all(self._pods(group, f"pending-{number}", nobody))

    def measured(self, prefix: str, scheduler: str) -> list[Manifest]:
        """The pods to measure, named after `prefix`."""
        return list(self._pods(self._workload.measure, prefix, scheduler))

    def _pods(self, group: Pods, prefix: str, scheduler: str, nodes: Sequence[str] = ()) -> Iterator[Manifest]:
        return pods_of(self._catalog, group, prefix, scheduler, nodes=nodes, full_size=self._full_size)

    def probe(self, scheduler: str) -> Manifest:
        """A pod that is bound as soon as the scheduler works at all."""
        kind = next(iter(self._catalog.pods.values()))
        return pod(kind, "probe", "default", 0, scheduler, full_size=False)

    async def create_at(self, manifests: list[Manifest], rate: float) -> None:
        """Creates objects at a constant rate per second, whatever the server does."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        creating: set[asyncio.Task[None]] = set()
        for number, manifest in enumerate(manifests):
            await asyncio.sleep(start + number / rate - loop.time())
            task = loop.create_task(self._api.create(manifest))
            creating.add(task)
            task.add_done_callback(creating.discard)
        await asyncio.gather(*creating)

    async def clear(self) -> None:
        """Deletes the pods of the benchmark, the events about them, and what came meanwhile."""
        pods, _ = await self._api.list_all("/api/v1/pods", OURS)
        held = [_path_of("pods", "/api/v1", item) for item in pods if _meta(item).finalizers]
        await self._api.delete_all(_path_of("pods", "/api/v1", item) for item in pods)
        await self._api.patch_all(held, {"metadata": {"finalizers": None}})
        for plural in ("nodes", "services"):
            items, _ = await self._api.list_all(f"/api/v1/{plural}", OURS)
            came = [item for item in items if _meta(item).name.startswith(CHURN)]
            await self._api.delete_all(_path_of(plural, "/api/v1", item) for item in came)
        events, _ = await self._api.list_all(_EVENTS)
        await self._api.delete_all(
            _path_of("events", "/apis/events.k8s.io/v1", item)
            for item in events
            if _event(item).reporting_controller.startswith(SCHEDULER)
        )

    async def clear_ground(self) -> None:
        """Deletes the nodes and other objects, for a workload with different ones."""
        nodes, _ = await self._api.list_all("/api/v1/nodes", OURS)
        await self._api.delete_all(_path_of("nodes", "/api/v1", item) for item in nodes)
        for path in dict.fromkeys(collection(manifest) for manifest in objects_of(self._workload.objects)):
            objects, _ = await self._api.list_all(path, OURS)
            await self._api.delete_all(f"{path}/{quote(_meta(item).name)}" for item in objects)

    async def count_events(self, prefix: str, scheduler: str) -> int:
        """Events of a scheduler about pods whose names begin with `prefix`."""
        events = [_event(item) for item in (await self._api.list_all(_EVENTS))[0]]
        return sum(e.reporting_controller == scheduler and e.regarding.name.startswith(prefix) for e in events)


class _NodeSpec(msgspec.Struct):
    taints: list[msgspec.Raw] | None = None


class _Node(msgspec.Struct):
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)


class _Reference(msgspec.Struct):
    name: str = ""


class _EventObject(msgspec.Struct, rename="camel"):
    reporting_controller: str = ""
    regarding: _Reference = msgspec.field(default_factory=_Reference)


def _event(item: msgspec.Raw) -> _EventObject:
    with suppress(msgspec.ValidationError):
        return msgspec.json.decode(item, type=_EventObject)
    return _EventObject()


def _node(item: msgspec.Raw) -> _Node:
    return msgspec.json.decode(item, type=_Node)


def _meta(item: msgspec.Raw) -> _Meta:
    return msgspec.json.decode(item, type=_Object).metadata


def _path_of(plural: str, api: str, item: msgspec.Raw) -> str:
    meta = _meta(item)
    within = f"/namespaces/{quote(meta.namespace)}" if meta.namespace else ""
    return f"{api}{within}/{plural}/{quote(meta.name)}"
