"""Writes what users see in a pod's status: the PodScheduled condition and the nominated node.

Best effort and coalesced: while one write of a pod is under way, newer states replace older ones; nothing is written
that the pod already shows. Source: core spec 2.6, 5.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Container
from datetime import UTC, datetime
from typing import Any

import orjson

from koordsched.cluster.pod import Pod

_log = logging.getLogger(__name__)

WAITING = "koordsched.io/Waiting"
"""Condition of a pod that waits without having been refused."""

_LIMIT = 50_000
"""Pods with pending writes; beyond that, the oldest is dropped (the next attempt repeats it)."""

_IN_FLIGHT = 32
_RETRIES = 4
_FIRST_RETRY = 0.01
_RETRY_FACTOR = 5.0


class PatchRejected(Exception):
    """The API server refused the patch for good: the pod is gone or is another one."""


class PatchFailed(Exception):
    """The patch may succeed when tried again."""


SendPatch = Callable[[str, str, bytes], Awaitable[None]]
"""(namespace, name, strategic merge patch) -> written. Raises PatchRejected or PatchFailed."""


class _Wish:
    __slots__ = ("condition", "in_doubt", "nominated", "pod", "waits")

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.in_doubt = False  # sent, but the API server never reported the outcome
        self.condition: tuple[str, str] | None = None  # reason, message
        self.nominated: str | None = None
        self.waits: tuple[str, str] | None = None  # reason, message; empty when the wait is over

    def inherit(self, older: _Wish) -> None:
        """Takes over what an older state says and this one does not."""
        self.condition = self.condition or older.condition
        self.nominated = older.nominated if self.nominated is None else self.nominated


def _shown(pod: Pod) -> tuple[str, str] | None:
    """Reason and message of the PodScheduled=False condition that the pod carries."""
    condition = pod.wire.status.condition("PodScheduled") if pod.wire is not None else None
    if condition is None or condition.status != "False":
        return None
    return condition.reason, condition.message


class PodStatusWriter:
    """The writer. `dropped` counts writes given up because there were too many.

    `pending`: the uids of the pods that wait for a node; nothing is kept of others.
    """

    def __init__(self, send: SendPatch, wall: Callable[[], float], pending: Container[str]) -> None:
        self._send = send
        self._wall = wall
        self._pending = pending
        self._wishes: OrderedDict[str, _Wish] = OrderedDict()
        self._held: dict[str, _Wish] = {}
        """States of pods that are being written right now."""
        self._set_aside: dict[str, _Wish] = {}
        """Of pods that are being bound."""
        self._written: dict[str, _Wish] = {}
        """What was sent last but may not have come back through the watch yet."""
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._withdrawn: set[str] = set()
        """Of these, pods that are about to be bound: nothing is tried again."""
        self._moot: set[str] = set()
        """Of these, pods that were forgotten meanwhile: nothing is tried again or kept."""
        self.dropped = 0

    def condition(self, pod: Pod, reason: str, message: str, nominated: str | None) -> None:
        """PodScheduled=False for a reason; `nominated` is written too unless it is None."""
        if self._is_at_rest(pod.uid) and self._shows(pod, (reason, message), nominated):
            return
        wish = self._wish(pod)
        wish.condition = (reason, message)
        if nominated is not None:
            wish.nominated = nominated
        self._pump()

    def nominate(self, pod: Pod, node: str) -> None:
        """status.nominatedNodeName alone; "" clears it."""
        if self._is_at_rest(pod.uid) and self._shows(pod, None, node):
            return
        self._wish(pod).nominated = node
        self._pump()

    def waiting(self, pod: Pod, reason: str, message: str) -> None:
        """The Waiting condition: True for a reason, or, with an empty one, False."""
        self._wish(pod).waits = (reason, message)
        self._pump()

    def forget(self, uid: str) -> None:
        """The pod is gone or bound: pending writes for it are dropped."""
        self._wishes.pop(uid, None)
        self._held.pop(uid, None)
        self._set_aside.pop(uid, None)
        self._written.pop(uid, None)
        if uid in self._busy:
            self._moot.add(uid)

    async def withdraw(self, uid: str) -> None:
        """The pod is about to be bound: what was to be written is set aside, and what is on its way must arrive first.

        Else a bound pod would show that it is not scheduled, or a nomination. If the binding fails, what is set aside
        is written with what the pod shows next. Returns when the API server has answered, or did not in time.
        """
        for wishes in (self._wishes, self._held):
            wish = wishes.pop(uid, None)
            if wish is None:
                continue
            if wish.waits is not None:
                rest = wishes[uid] = _Wish(wish.pod)
                rest.waits, wish.waits = wish.waits, None
            self._set_aside[uid] = wish
        under_way = self._busy.get(uid)
        if under_way is not None:
            self._withdrawn.add(uid)
            await asyncio.wait([under_way])

    async def drain(self) -> None:
        """Waits until everything is written or given up."""
        while self._busy:
            await asyncio.wait(self._busy.values())

    @property
    def unwritten(self) -> int:
        """Pods with states that are not written yet."""
        return len(self._wishes) + len(self._held)

    @property
    def remembered(self) -> int:
        """Pods of which it is known what was sent last."""
        return len(self._written)

    def _wished(self, uid: str) -> _Wish | None:
        return self._wishes.get(uid) or self._held.get(uid)

    def _is_at_rest(self, uid: str) -> bool:
        """Whether nothing is to be written for the pod, and no write is in progress."""
        return not any(uid in states for states in (self._busy, self._wishes, self._set_aside))

    def _shows(self, pod: Pod, condition: tuple[str, str] | None, nominated: str | None) -> bool:
        """Whether the pod shows this (None: anything), and will go on showing it.

        A version from before our last write may still come through the watch: what it shows will be replaced.
        """
        current = self._current(pod)
        return all(
            condition in (None, told.condition) and nominated in (None, told.nominated)
            for told in (current, self._written.get(pod.uid, current))
        )

    def _current(self, pod: Pod) -> _Wish:
        """What the pod shows, as far as we know."""
        written = self._written.get(pod.uid)
        if written is not None and written.pod.resource_version == pod.resource_version and not written.in_doubt:
            return written
        current = _Wish(pod)
        current.condition = _shown(pod)
        current.nominated = pod.nominated_node
        return current

    def _wish(self, pod: Pod) -> _Wish:
        wish = self._wished(pod.uid)
        if wish is None:
            wish = self._set_aside.pop(pod.uid, None) or _Wish(pod)
            if pod.uid in self._busy:
                self._held[pod.uid] = wish
            else:
                self._wishes[pod.uid] = wish
                if len(self._wishes) > _LIMIT:
                    self._wishes.popitem(last=False)
                    self.dropped += 1
        wish.pod = pod
        return wish

    def _pump(self) -> None:
        while self._wishes and len(self._busy) < _IN_FLIGHT:
            uid, wish = self._wishes.popitem(last=False)
            self._busy[uid] = asyncio.get_running_loop().create_task(self._write(uid, wish))

    async def _write(self, uid: str, wish: _Wish) -> None:
        pod = wish.pod
        try:
            delay = _FIRST_RETRY
            for attempt in range(_RETRIES + 1):
                try:
                    await self._send(pod.namespace, pod.name, self._body(wish))
                    self._sent(uid, wish)
                    return
                except PatchRejected as error:
                    _log.debug("status of %s not written: %s", pod.title, error)
                    self._held.pop(uid, None)
                    return
                except PatchFailed as error:
                    is_last = attempt == _RETRIES
                    if is_last:
                        _log.warning("status of %s not written after %d tries: %s", pod.title, attempt + 1, error)
                    if is_last or uid in self._withdrawn:
                        if uid in self._withdrawn and uid not in self._moot:
                            self._set_aside.setdefault(uid, _Wish(pod)).inherit(wish)
                        wish.in_doubt = True
                        self._sent(uid, wish)
                        return
                await asyncio.sleep(delay)
                if uid in self._moot:
                    return
                delay *= _RETRY_FACTOR
        finally:
            del self._busy[uid]
            self._withdrawn.discard(uid)
            self._moot.discard(uid)
            held = self._held.pop(uid, None)
            if held is not None:
                self._wishes[uid] = held
            self._pump()

    def _sent(self, uid: str, wish: _Wish) -> None:
        """Records what the pod shows from now on; that may be just what was to be written next."""
        if uid in self._moot or uid not in self._pending:
            return
        before = self._current(wish.pod)
        wish.condition = wish.condition or before.condition
        wish.nominated = before.nominated if wish.nominated is None else wish.nominated
        self._written[uid] = wish
        held = self._held.get(uid)
        if held is not None and held.waits is None and self._shows(held.pod, held.condition, held.nominated):
            del self._held[uid]

    def _body(self, wish: _Wish) -> bytes:
        status: dict[str, Any] = {}
        conditions: list[dict[str, Any]] = []
        now = datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if wish.condition is not None:
            reason, message = wish.condition
            condition: dict[str, Any] = {
                "type": "PodScheduled",
                "status": "False",
                "reason": reason,
                "message": message,
                "lastProbeTime": None,
                "observedGeneration": wish.pod.generation,
            }
            if _shown(wish.pod) is None:
                condition["lastTransitionTime"] = now
            conditions.append(condition)
        if wish.waits is not None:
            reason, message = wish.waits
            conditions.append(
                {
                    "type": WAITING,
                    "status": "True" if reason else "False",
                    "reason": reason or "Resumed",
                    "message": message,
                    "lastProbeTime": None,
                    "lastTransitionTime": now,
                }
            )
        if conditions:
            status["conditions"] = conditions
        if wish.nominated is not None:
            status["nominatedNodeName"] = wish.nominated or None
        # The uid makes sure that a pod of the same name, created meanwhile, is left alone.
        return orjson.dumps({"metadata": {"uid": wish.pod.uid}, "status": status})
