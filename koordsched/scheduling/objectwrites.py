"""Writes of objects on behalf of controllers. They are states, not commands: repeating one does no harm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from koordsched.api.meta import ObjectMeta
from koordsched.client.errors import AlreadyExists, ClientError
from koordsched.client.lanes import Lane, Lanes
from koordsched.client.transport import MERGE_PATCH, Request
from koordsched.cluster.kinds import Kind
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import WriteFailed
from koordsched.scheduling.virtualpods import VirtualPodWriters
from koordsched.scheduling.writeretries import evict_until_certain, write_until_certain


class ObjectWrites:
    """Through the lanes, after bindings and evictions. Every method raises WriteFailed."""

    def __init__(self, lanes: Lanes, virtual: VirtualPodWriters) -> None:
        self._lanes = lanes
        self._virtual = virtual

    async def create(self, kind: Kind[Any], namespace: str, thing: Mapping[str, Any]) -> bool:
        """Creates the object (JSON); False if there is one of that name already."""
        collection = f"/{kind.api}/namespaces/{namespace}/{kind.plural}" if kind.namespaced else kind.path
        try:
            await write_until_certain(self._lanes, Lane.STATUS, Request("POST", collection, orjson.dumps(thing)))
        except AlreadyExists:
            return False
        except ClientError as error:
            raise WriteFailed(str(error)) from error
        return True

    async def merge(self, kind: Kind[Any], meta: ObjectMeta, changes: Mapping[str, Any]) -> None:
        """Merges changes into the object of that name and uid, whatever its version."""
        body = {**changes, "metadata": {**changes.get("metadata", {}), "uid": meta.uid}}
        path = kind.object_path(meta.namespace, meta.name)
        try:
            await write_until_certain(self._lanes, Lane.STATUS, Request("PATCH", path, orjson.dumps(body), MERGE_PATCH))
        except ClientError as error:
            raise WriteFailed(str(error)) from error

    async def evict(self, pod: Pod) -> None:
        """Evicts the pod, disruption budgets permitting; one that is gone is fine."""
        if (writer := self._virtual.get(pod.uid)) is not None:
            await writer.evict(pod, "evicted by a controller")
            return
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
        await evict_until_certain(self._lanes, Request("POST", path, orjson.dumps(body)))
