"""Filling the cluster for a workload, keeping things happening in it, and emptying it again."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from urllib.parse import quote

import msgspec

from bench.api import Api, collection
from bench.manifests import MARK, Manifest, namespaces_of, node, nodes_of, objects_of, pod, pods_of, priority_classes
from bench.workloads import Catalog, Churn, Deletion, Workload

OURS = ",".join(f"{key}={value}" for key, value in MARK.items())
"""Selects what the benchmark made, and nothing else."""

_EVENTS = "/apis/events.k8s.io/v1/events"


class _Meta(msgspec.Struct):
    name: str
    namespace: str = ""
    finalizers: list[str] = []


class _Object(msgspec.Struct):
    metadata: _Meta


class Population:
    """The objects of one workload on one API server."""

    def __init__(self, api: Api, catalog: Catalog, workload: Workload) -> None:
        self._api = api
        self._catalog = catalog
        self._workload = workload
        self._names = [manifest["metadata"]["name"] for manifest in nodes_of(catalog, workload.nodes)]

    async def create_ground(self) -> None:
        """Nodes, namespaces and other objects: the same for every scheduler."""
        await self._api.create_all(priority_classes(self._catalog))
        await self._api.create_all(namespaces_of(self._workload))
        await self._api.create_all(nodes_of(self._catalog, self._workload.nodes))
        await self._api.create_all(objects_of(self._workload.objects))

    async def create_init(self, scheduler: str) -> None:
        """The pods that are there before the first measured one."""
        for number, group in enumerate(self._workload.init):
            await self._api.create_all(pods_of(self._catalog, group, f"init-{number}", scheduler, nodes=self._names))
        for number, group in enumerate(self._workload.pending):
            await self._api.create_all(pods_of(self._catalog, group, f"pending-{number}", scheduler))

    def measured(self, prefix: str, scheduler: str) -> list[Manifest]:
        """The pods to measure, named after `prefix`."""
        return list(pods_of(self._catalog, self._workload.measure, prefix, scheduler))

    def probe(self, scheduler: str) -> Manifest:
        """A pod that is bound as soon as the scheduler works at all."""
        kind = next(iter(self._catalog.pods.values()))
        return pod(kind, "probe", "default", 0, scheduler, full_size=False)

    async def create_at(self, manifests: list[Manifest], rate: float) -> None:
        """Creates objects at a constant rate per second, whatever the server does."""
        loop = asyncio.get_running_loop()
        start = time.monotonic()
        creating: set[asyncio.Task[None]] = set()
        for number, manifest in enumerate(manifests):
            delay = start + number / rate - time.monotonic()
            if delay > 0:
                await asyncio.sleep(delay)
            task = loop.create_task(self._api.create(manifest))
            creating.add(task)
            task.add_done_callback(creating.discard)
        await asyncio.gather(*creating)

    async def unrest(self, scheduler: str) -> None:
        """What goes on meanwhile, until cancelled."""
        work = []
        if self._workload.churn is not None:
            work.append(self._churn(self._workload.churn, scheduler))
        if self._workload.delete is not None:
            work.append(self._delete(self._workload.delete))
        await asyncio.gather(*work)

    async def _churn(self, churn: Churn, scheduler: str) -> None:
        previous: list[str] = []
        step = 0
        while True:
            if churn.mode == "recreate":
                await self._api.delete_all(previous)
            fresh = [
                *(node(self._catalog.nodes[kind], f"churn-{step}", step, "") for kind in churn.nodes),
                *(pod(self._catalog.pods[kind], f"churn-{step}", "default", step, scheduler) for kind in churn.pods),
                *churn.objects,
            ]
            await self._api.create_all(fresh)
            previous = [f"{collection(manifest)}/{manifest['metadata']['name']}" for manifest in fresh]
            step += 1
            await asyncio.sleep(churn.interval)

    async def _delete(self, deletion: Deletion) -> None:
        items, _ = await self._api.list_all(f"/api/v1/namespaces/{quote(deletion.namespace)}/pods")
        start = time.monotonic()
        for number, item in enumerate(items):
            delay = start + number / deletion.rate - time.monotonic()
            if delay > 0:
                await asyncio.sleep(delay)
            await self._api.delete(_path_of("pods", "/api/v1", item))

    async def clear(self) -> None:
        """Deletes the pods of the benchmark, and the events about them."""
        pods, _ = await self._api.list_all("/api/v1/pods", OURS)
        held = [_path_of("pods", "/api/v1", item) for item in pods if _meta(item).finalizers]
        await self._api.delete_all(_path_of("pods", "/api/v1", item) for item in pods)
        await self._api.remove_finalizers(held)
        events, _ = await self._api.list_all(_EVENTS)
        names = {_meta(item).name for item in pods}
        await self._api.delete_all(
            _path_of("events", "/apis/events.k8s.io/v1", item) for item in events if _regarding(item) in names
        )

    async def clear_ground(self) -> None:
        """Deletes the nodes and other objects, for a workload with different ones."""
        nodes, _ = await self._api.list_all("/api/v1/nodes", OURS)
        await self._api.delete_all(_path_of("nodes", "/api/v1", item) for item in nodes)
        await self._api.delete_all(
            f"{collection(manifest)}/{manifest['metadata']['name']}" for manifest in objects_of(self._workload.objects)
        )

    async def count_events(self, prefix: str) -> int:
        """Events about pods whose names begin with `prefix`."""
        events, _ = await self._api.list_all(_EVENTS)
        return sum(_regarding(item).startswith(prefix) for item in events)


class _Reference(msgspec.Struct):
    name: str = ""


class _EventObject(msgspec.Struct):
    regarding: _Reference = msgspec.field(default_factory=_Reference)


def _regarding(item: msgspec.Raw) -> str:
    with suppress(msgspec.ValidationError):
        return msgspec.json.decode(item, type=_EventObject).regarding.name
    return ""


def _meta(item: msgspec.Raw) -> _Meta:
    return msgspec.json.decode(item, type=_Object).metadata


def _path_of(plural: str, api: str, item: msgspec.Raw) -> str:
    meta = _meta(item)
    within = f"/namespaces/{quote(meta.namespace)}" if meta.namespace else ""
    return f"{api}{within}/{plural}/{quote(meta.name)}"
