"""Follows pods and Events of the API server, counts, and notes what must never happen."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import msgspec

from koordsched.client.errors import ClientError
from koordsched.client.jsonformat import LineSplitter
from koordsched.client.network import NetworkTransport
from tests.soak.population import MARK, NODE_CPU, NODE_MEMORY, NODE_PODS, QUOTA_LABEL

_FINISHED = ("Succeeded", "Failed")
_AGAIN = 0.1
"""Seconds until a list or watch that failed is tried again."""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    deletion_timestamp: str | None = None


class _Resources(msgspec.Struct):
    requests: dict[str, str] = {}


class _Container(msgspec.Struct):
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: list[_Container] = []


class _Status(msgspec.Struct):
    phase: str = "Pending"


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    metadata: _Meta
    reason: str = ""
    regarding: _Meta = msgspec.field(default_factory=_Meta)


class _Change(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _List(msgspec.Struct):
    metadata: _Meta
    items: list[msgspec.Raw] | None = None


class Known(msgspec.Struct):
    """A pod as it was last seen. `holds`: it takes room on its node."""

    namespace: str
    name: str
    node: str
    cpu: int
    memory: int
    quota: str
    holds: bool
    charged: bool
    seen: float


class Observer:
    """`wrong`: what must never be and was, in words. Times are of the event loop."""

    def __init__(self, transport: NetworkTransport, quota_limit: int) -> None:
        self._transport = transport
        self._quota_limit = quota_limit
        self._tasks: list[asyncio.Task[None]] = []
        self._room: dict[str, list[int]] = {}
        self._quotas: Counter[str] = Counter()
        self._told: set[str] = set()
        self._latencies: list[float] = []
        self.pods: dict[str, Known] = {}
        self.on_bound: Callable[[Known], None] = lambda pod: None
        self._listed: set[str] = set()
        self.appeared = self.bound = 0
        self.marked = 0
        """The number of the last mark that was seen to go."""
        self.silent: dict[str, str] = {}
        """uid -> name of pods that were bound and have no Event yet that says so."""
        self.wrong: list[str] = []

    def start(self) -> None:
        """Begins to watch; goes on across restarts of the server."""
        for path, take, forget in (
            ("/api/v1/pods", self._take_pod, self._forget_pods),
            ("/apis/events.k8s.io/v1/events", self._take_event, None),
        ):
            self._tasks.append(asyncio.create_task(self._follow(path, take, forget)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def lost(self) -> None:
        """The watches are about to break."""
        self._listed.clear()

    @property
    def up_to_date(self) -> bool:
        """Whether pods and Events have been listed since the watches were last lost."""
        return len(self._listed) == len(self._tasks)

    @property
    def waiting(self) -> list[Known]:
        """Pods without a node."""
        return [pod for pod in self.pods.values() if not pod.node]

    def latencies(self) -> list[float]:
        """Seconds from appearance to binding of every pod that was bound since the last call."""
        taken, self._latencies = self._latencies, []
        return taken

    async def _follow(
        self,
        path: str,
        take: Callable[[str, msgspec.Raw | bytes, float], None],
        forget: Callable[[set[str]], None] | None,
    ) -> None:
        now = asyncio.get_running_loop().time
        decode = msgspec.json.Decoder(_Change).decode
        while True:
            try:
                response = await self._transport.request("GET", path, timeout=60.0)
                if response.status != 200:
                    await asyncio.sleep(_AGAIN)
                    continue
                listed = msgspec.json.decode(response.body, type=_List)
                if forget is not None:
                    present = [msgspec.json.decode(item, type=_Pod).metadata.uid for item in listed.items or ()]
                    forget(set(present))
                for item in listed.items or ():
                    take("ADDED", item, now())
                self._listed.add(path)
                query = {"watch": "1", "resourceVersion": listed.metadata.resource_version, "timeoutSeconds": "3600"}
                async with self._transport.stream(path, query=query, timeout=3700.0) as stream:
                    lines = LineSplitter()
                    async for chunk in stream.chunks():
                        for line in lines.feed(chunk):
                            change = decode(line)
                            if change.type == "ERROR":
                                raise msgspec.DecodeError("the watch ended")
                            take(change.type, change.object, now())
            except (ClientError, msgspec.DecodeError):
                await asyncio.sleep(_AGAIN)

    # --- Events --------------------------------------------------------------------------------------

    def _take_event(self, kind: str, raw: msgspec.Raw | bytes, now: float) -> None:
        event = msgspec.json.decode(raw, type=_Event)
        if kind == "DELETED" and event.reason == MARK:
            self.marked = int(event.metadata.name.rpartition("-")[2])
        if kind not in ("ADDED", "MODIFIED"):
            return
        if event.reason != "Scheduled":
            return
        uid = event.regarding.uid
        if self.silent.pop(uid, None) is None and uid in self.pods:
            # Ahead of the binding: the two come over different watches.
            self._told.add(uid)

    # --- pods ----------------------------------------------------------------------------------------

    def _take_pod(self, kind: str, raw: msgspec.Raw | bytes, now: float) -> None:
        pod = msgspec.json.decode(raw, type=_Pod)
        meta = pod.metadata
        before = self.pods.get(meta.uid)
        if kind == "DELETED":
            if before is not None:
                self._leave(meta.uid)
            return
        if before is None:
            self.appeared += 1
            requests = [container.resources.requests for container in pod.spec.containers]
            cpu = sum(int(request["cpu"].removesuffix("m")) for request in requests)
            memory = sum(int(request["memory"].removesuffix("Mi")) for request in requests)
            quota = meta.labels.get(QUOTA_LABEL, "")
            before = Known(meta.namespace, meta.name, "", cpu, memory, quota, False, False, now)
            self.pods[meta.uid] = before
        self._bind(before, meta.uid, pod.spec.node_name, now)
        ended = pod.status.phase in _FINISHED
        self._hold(before, holds=bool(before.node) and not ended)
        self._charge(before, charged=before.holds and meta.deletion_timestamp is None)

    def _bind(self, known: Known, uid: str, node: str, now: float) -> None:
        if known.node == node:
            return
        if known.node:
            self.wrong.append(f"pod {known.name} moved from {known.node} to {node or 'nowhere'}")
            return
        known.node = node
        self.bound += 1
        self._latencies.append(now - known.seen)
        if uid in self._told:
            self._told.discard(uid)
        else:
            self.silent[uid] = known.name
        self.on_bound(known)

    def _hold(self, known: Known, *, holds: bool) -> None:
        if known.holds == holds:
            return
        known.holds = holds
        sign = 1 if holds else -1
        room = self._room.setdefault(known.node, [0, 0, 0])
        room[0] += sign * known.cpu
        room[1] += sign * known.memory
        room[2] += sign
        if holds and (room[0] > NODE_CPU or room[1] > NODE_MEMORY or room[2] > NODE_PODS):
            self.wrong.append(f"{known.node} holds {room[0]}m, {room[1]}Mi, {room[2]} pods with {known.name}")
        if room[2] == 0:
            del self._room[known.node]

    def _charge(self, known: Known, *, charged: bool) -> None:
        if known.charged == charged:
            return
        known.charged = charged
        self._quotas[known.quota] += known.cpu if charged else -known.cpu
        if charged and self._quotas[known.quota] > self._quota_limit:
            self.wrong.append(f"quota {known.quota} holds {self._quotas[known.quota]}m with {known.name}")

    def _leave(self, uid: str) -> None:
        known = self.pods.pop(uid)
        self._hold(known, holds=False)
        self._charge(known, charged=False)
        self._told.discard(uid)

    def _forget_pods(self, present: set[str]) -> None:
        for uid in self.pods.keys() - present:
            self._leave(uid)
