"""What goes on in a cluster while pods are scheduled: others come and go, and kubelets end what is deleted."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import msgspec

from bench.api import Api, collection
from bench.manifests import node, objects_of, pod
from bench.watching import Event, Pod, pod_events
from bench.workloads import Catalog, Churn, Deletion, Objects, Workload

CHURN = "churn-"
"""Names of the pods and nodes that come meanwhile begin with this."""


_decode_pod = msgspec.json.Decoder(Pod).decode


class Unrest:
    """The churn, deletions and kubelets of one workload. `scheduler`: whose pods the churn makes."""

    def __init__(self, api: Api, catalog: Catalog, workload: Workload, scheduler: str) -> None:
        self._api = api
        self._catalog = catalog
        self._workload = workload
        self._scheduler = scheduler

    async def run(self, resource_version: str) -> None:
        """Goes on until cancelled; kubelets see what is deleted after `resource_version`.

        Raises RequestRefused, or WatchLost.
        """
        loop = asyncio.get_running_loop()
        work = []
        if self._workload.churn is not None:
            work.append(loop.create_task(self._churn(self._workload.churn)))
        if self._workload.delete is not None:
            work.append(loop.create_task(self._delete(self._workload.delete)))
        if self._workload.kubelets:
            work.append(loop.create_task(self._kubelets(resource_version)))
        try:
            await asyncio.gather(*work)
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    async def _churn(self, churn: Churn) -> None:
        previous: list[str] = []
        loop = asyncio.get_running_loop()
        start = loop.time()
        step = 0
        while True:
            if churn.mode == "recreate":
                await self._api.delete_all(previous)
            name = f"{CHURN}{step}"
            fresh = [
                *(node(self._catalog.nodes[kind], name, step, "") for kind in churn.nodes),
                *(pod(self._catalog.pods[kind], name, "default", step, self._scheduler) for kind in churn.pods),
                *objects_of([Objects(manifest, first=step) for manifest in churn.objects]),
            ]
            await self._api.create_all(fresh)
            previous = [f"{collection(manifest)}/{manifest['metadata']['name']}" for manifest in fresh]
            step += 1
            await asyncio.sleep(start + step * churn.interval - loop.time())

    async def _delete(self, deletion: Deletion) -> None:
        items, _ = await self._api.list_all(f"/api/v1/namespaces/{quote(deletion.namespace)}/pods")
        loop = asyncio.get_running_loop()
        start = loop.time()
        for number, item in enumerate(items):
            await asyncio.sleep(start + number / deletion.rate - loop.time())
            await self._api.delete(_decode_pod(item).path)

    async def _kubelets(self, resource_version: str) -> None:
        ending: dict[str, asyncio.Task[None]] = {}
        try:
            async for events in pod_events(self._api.transport, resource_version):
                for event in events:
                    self._look(event, ending)
        finally:
            for task in ending.values():
                task.cancel()
            await asyncio.gather(*ending.values(), return_exceptions=True)

    def _look(self, event: Event, ending: dict[str, asyncio.Task[None]]) -> None:
        if event.type != "MODIFIED":
            return
        found = event.object
        meta = found.metadata
        if meta.deletion_timestamp is None or not found.spec.node_name or meta.uid in ending:
            return
        grace = meta.deletion_grace_period_seconds or 0.0
        ending[meta.uid] = asyncio.get_running_loop().create_task(self._end(found.path, grace))

    async def _end(self, path: str, grace: float) -> None:
        await asyncio.sleep(grace)
        await self._api.delete(path)
