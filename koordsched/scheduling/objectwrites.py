"""Writes of objects on behalf of controllers. They are desired states, not commands: repeating one is harmless."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from koordsched.api.meta import ObjectMeta
from koordsched.client.errors import AlreadyExists, ClientError, Conflict, NotFound
from koordsched.client.lanes import Lane, Lanes
from koordsched.client.transport import Request
from koordsched.cluster.kinds import Kind
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import WriteFailed
from koordsched.scheduling.virtualpods import VirtualPodWriters
from koordsched.scheduling.writeretries import evict_until_certain, merge_request, write_until_certain


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
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": meta.uid}}
        request = Request("DELETE", kind.object_path(meta.namespace, meta.name), orjson.dumps(options))
        try:
            await write_until_certain(self._lanes, Lane.STATUS, request)
        except NotFound:
            return
        except ClientError as error:
            if not (isinstance(error, Conflict) and error.is_about_uid):
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
