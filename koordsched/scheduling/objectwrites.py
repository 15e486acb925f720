"""Writes of objects on behalf of controllers. They are desired states, not commands: repeating one is harmless."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from koordsched.api.meta import ObjectMeta
from koordsched.client.errors import AlreadyExists, ClientError
from koordsched.client.lanes import Lane, Lanes
from koordsched.client.transport import Request
from koordsched.cluster.kinds import Kind
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import WriteFailed
from koordsched.scheduling.virtualpods import VirtualPodWriters
from koordsched.scheduling.writeretries import (
    collection_path,
    delete_of_uid,
    merge_request,
    write_unless_gone,
    write_until_certain,
)


class ObjectWrites:
    """Through the lanes, after bindings and evictions. Every method raises WriteFailed."""

    def __init__(self, lanes: Lanes, virtual: VirtualPodWriters) -> None:
        self._lanes = lanes
        self._virtual = virtual

    async def create(self, kind: Kind[Any], namespace: str, thing: Mapping[str, Any]) -> bool:
        """Creates the object (JSON); False if there is one of that name already."""
        request = Request("POST", collection_path(kind, namespace), orjson.dumps(thing))
        try:
            await write_until_certain(self._lanes, Lane.STATUS, request)
        except AlreadyExists:
            return False
        except ClientError as error:
            raise WriteFailed(str(error)) from error
        return True

    async def merge(
        self, kind: Kind[Any], meta: ObjectMeta, changes: Mapping[str, Any], *, subresource: str = ""
    ) -> None:
        """Merges changes into the object of that name and uid, or a subresource of it, whatever its version."""
        try:
            await write_until_certain(self._lanes, Lane.STATUS, merge_request(kind, meta, changes, subresource))
        except ClientError as error:
            raise WriteFailed(str(error)) from error

    async def delete(self, kind: Kind[Any], meta: ObjectMeta) -> None:
        """Deletes the object of that name and uid; one that is gone is fine."""
        await delete_of_uid(self._lanes, Lane.STATUS, kind, meta)

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
        await write_unless_gone(self._lanes, Lane.EVICTION, Request("POST", path, orjson.dumps(body)))
