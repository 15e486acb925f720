"""The writes of the scheduler, in terms of pods: bindings, status patches, evictions.

A binding whose answer got lost is settled by asking again, never by guessing: only the API server knows
whether the pod has its node, and until it says so the pod stays assumed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import orjson

from koordsched.api import core
from koordsched.api.decoding import DecodeError, Decoder
from koordsched.api.meta import HasMetadata, ObjectMeta
from koordsched.client.errors import (
    Ambiguous,
    ApiError,
    ClientError,
    Conflict,
    ConnectionFailure,
    Fenced,
    LanesClosed,
    NotFound,
    NotSent,
    TooManyRequests,
    raise_for_status,
)
from koordsched.client.lanes import Lane, Lanes
from koordsched.client.transport import STRATEGIC_MERGE_PATCH, Request, Transport
from koordsched.cluster.kinds import Kind
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import ObjectGone, WriteFailed
from koordsched.scheduling.podstatus import PatchFailed, PatchRejected
from koordsched.scheduling.versionedpatch import patch_version
from koordsched.scheduling.virtualpods import VirtualPodWriters
from koordsched.scheduling.writeretries import (
    brief_pauses,
    collection_path,
    delete_of_uid,
    merge_request,
    pauses,
    write_unless_gone,
    write_until_certain,
)

_log = logging.getLogger(__name__)

_decode_pod = Decoder(core.Pod)

T = TypeVar("T", bound=HasMetadata)


def _pod_path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


@dataclass(eq=False, repr=False)
class ApiWrites:
    """Writes through the lanes; those of virtual pods through their writers."""

    lanes: Lanes
    transport: Transport
    rng: Random
    virtual: VirtualPodWriters

    # --- binding ---------------------------------------------------------------------------------

    async def bind(self, pod: Pod, node: str, annotations: Mapping[str, str] | None = None) -> None:
        """Creates the binding, which sets annotations of the pod; for virtual pods they are written before.

        Raises WriteFailed if the pod certainly does not have the node through us.
        """
        if (writer := self.virtual.get(pod.uid)) is not None:
            if annotations:
                await writer.patch(pod, {"annotations": dict(annotations)})
            await writer.bind(pod, node)
            return
        path = f"{_pod_path(pod)}/binding"
        metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        if annotations:
            metadata["annotations"] = annotations
        target = {"kind": "Node", "name": node}
        body = orjson.dumps({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})
        waits = pauses()
        doubtful = False
        while True:
            try:
                await self.lanes.submit(Lane.BINDING, Request("POST", path, body))
                return
            except Conflict as error:
                # Perhaps our own earlier attempt got through; a conflict is checked in any case.
                if await self.is_bound(pod, node):
                    return
                raise WriteFailed(str(error)) from error
            except Ambiguous as error:
                doubtful = True
                _log.debug("it is unknown whether %s was bound to %s, reading it back: %s", pod.title, node, error)
            except Fenced as error:
                # The lease may be ours again before this pod, or one in its place, is tried.
                if doubtful and await self.is_bound(pod, node):
                    return
                raise WriteFailed(str(error)) from error
            except LanesClosed as error:
                raise WriteFailed(str(error)) from error
            except ApiError as error:
                # A failing server may still have carried it out, and a rejection (a server that starts knows neither
                # tokens nor roles yet) says nothing about the attempt before it that is in doubt.
                if (doubtful or error.status >= 500) and await self.is_bound(pod, node):
                    return
                if not doubtful or (error.status < 500 and not isinstance(error, TooManyRequests)):
                    raise WriteFailed(str(error)) from error
            except ClientError as error:
                if not doubtful:
                    raise WriteFailed(str(error)) from error
            await asyncio.sleep(next(waits))

    async def is_bound(self, pod: Pod, node: str) -> bool:
        """Whether the API server has this very pod on this node; asks until it gets an answer."""
        waits = pauses()
        while True:
            try:
                response = raise_for_status(await self.transport.request("GET", _pod_path(pod)))
                seen = _decode_pod(response.body)
                return seen.metadata.uid == pod.uid and seen.spec.node_name == node
            except (ClientError, DecodeError) as error:
                # Without the reason the answer does not come from the API server's storage.
                if isinstance(error, NotFound) and error.reason == "NotFound":
                    return False
                _log.debug("cannot read %s back: %s", pod.title, error)
            await asyncio.sleep(next(waits))

    # --- metadata ----------------------------------------------------------------------------------

    async def patch_metadata(self, pod: Pod, metadata: Mapping[str, Any]) -> None:
        """Merges into the pod's metadata, whatever its version. Raises WriteFailed, also for a pod being deleted."""
        if (writer := self.virtual.get(pod.uid)) is not None:
            await writer.patch(pod, metadata)
            return
        body = orjson.dumps({"metadata": {**metadata, "uid": pod.uid}})
        waits = brief_pauses(self.rng)
        while True:
            try:
                request = Request("PATCH", _pod_path(pod), body, STRATEGIC_MERGE_PATCH)
                response = await self.lanes.submit(Lane.BINDING, request)
                break
            except (Conflict, TooManyRequests, ConnectionFailure) as error:
                # The server's precondition may have met another client's write: the version does not matter.
                is_another = isinstance(error, Conflict) and error.is_about_uid
                pause = next(waits, None)
                if is_another or pause is None:
                    raise WriteFailed(str(error)) from error
                _log.debug("cannot write the metadata of %s, retrying: %s", pod.title, error)
            except ClientError as error:
                raise WriteFailed(str(error)) from error
            await asyncio.sleep(pause)
        try:
            deleting = _decode_pod(response.body).metadata.deletion_timestamp is not None
        except DecodeError as error:
            raise WriteFailed(str(error)) from error
        if deleting:
            raise WriteFailed("pod is being deleted")

    # --- objects that plugins change -----------------------------------------------------------------

    async def patch(self, kind: Kind[T], thing: T, changes: Mapping[str, Any], *, subresource: str = "") -> T:
        """Merge patch on condition of the version given. Raises WriteFailed if it certainly was not carried out."""
        return await patch_version(self.lanes, self.transport, kind, thing, changes, subresource)

    async def merge(
        self,
        kind: Kind[T],
        meta: ObjectMeta,
        changes: Mapping[str, Any],
        *,
        subresource: str = "",
        strategic: bool = False,
    ) -> T:
        """Merge patch on condition of the uid. Returns the result. Raises WriteFailed."""
        request = merge_request(kind, meta, changes, subresource, strategic=strategic)
        waits = brief_pauses(self.rng)
        while True:
            try:
                response = await write_until_certain(self.lanes, Lane.BINDING, request)
                return Decoder(kind.type)(response.body)
            except (Conflict, TooManyRequests) as error:
                is_another = isinstance(error, Conflict) and error.is_about_uid
                pause = next(waits, None)
                if is_another or pause is None:
                    raise WriteFailed(str(error)) from error
            except (ClientError, DecodeError) as error:
                raise WriteFailed(str(error)) from error
            await asyncio.sleep(pause)

    async def create(self, kind: Kind[T], namespace: str, thing: Mapping[str, Any]) -> T:
        """Sends it once. Raises WriteFailed, also if the outcome is unknown."""
        request = Request("POST", collection_path(kind, namespace), orjson.dumps(thing))
        try:
            return Decoder(kind.type)((await self.lanes.submit(Lane.BINDING, request)).body)
        except (ClientError, DecodeError) as error:
            raise WriteFailed(str(error)) from error

    async def delete(self, kind: Kind[Any], meta: ObjectMeta) -> None:
        """Deletes the object of that name and uid; one that is gone is fine. Raises WriteFailed."""
        await delete_of_uid(self.lanes, Lane.BINDING, kind, meta)

    async def read(self, kind: Kind[T], namespace: str, name: str) -> T:
        """The object as it is now. Raises WriteFailed; ObjectGone if there is none."""
        try:
            response = await self.transport.request("GET", kind.object_path(namespace, name))
            return Decoder(kind.type)(raise_for_status(response).body)
        except NotFound as error:
            raise ObjectGone(str(error)) from error
        except (ClientError, DecodeError) as error:
            raise WriteFailed(str(error)) from error

    # --- status ----------------------------------------------------------------------------------

    async def patch_status(self, namespace: str, name: str, body: bytes) -> None:
        """Strategic merge patch of a pod's status. Raises PatchRejected or PatchFailed."""
        request = Request("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}/status", body, STRATEGIC_MERGE_PATCH)
        try:
            await self.lanes.submit(Lane.STATUS, request)
        except (Ambiguous, NotSent) as error:
            raise PatchFailed(str(error)) from error
        except ApiError as error:
            is_another = isinstance(error, Conflict) and error.is_about_uid
            if not is_another and (error.status >= 500 or error.status in (409, 429)):
                raise PatchFailed(str(error)) from error
            raise PatchRejected(str(error)) from error
        except ClientError as error:
            raise PatchRejected(str(error)) from error

    # --- evictions -------------------------------------------------------------------------------

    async def evict(self, pod: Pod, message: str, now: str) -> None:
        """Marks a victim as disrupted by preemption and deletes it. Raises WriteFailed; a pod gone is fine."""
        if (writer := self.virtual.get(pod.uid)) is not None:
            await writer.evict(pod, message)
            return
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": now,
            "observedGeneration": pod.generation,
        }
        patch = orjson.dumps({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}})
        delete = orjson.dumps({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}})
        marking = Request("PATCH", f"{_pod_path(pod)}/status", patch, STRATEGIC_MERGE_PATCH)
        for request in (marking, Request("DELETE", _pod_path(pod), delete)):
            await write_unless_gone(self.lanes, Lane.EVICTION, request)
