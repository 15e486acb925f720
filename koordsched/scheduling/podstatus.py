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
from itertools import count
from typing import Any

import orjson

from koordsched.cluster.pod import Pod

_log = logging.getLogger(__name__)

WAITING = "koordsched.io/Waiting"
"""Condition of a pod that waits without having been refused."""

_IN_FLIGHT = 32
_TRIES = 5
_FIRST_RETRY = 0.01
_RETRY_FACTOR = 5.0


class PatchRejected(Exception):
    """The API server refused the patch for good: the pod is gone or is another one."""


class PatchFailed(Exception):
    """The patch may succeed when tried again."""


SendPatch = Callable[[str, str, bytes], Awaitable[None]]
"""(namespace, name, strategic merge patch) -> written. Raises PatchRejected or PatchFailed."""


class _Wish:
    """A state that a pod is to show, or shows; None where it says nothing."""

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


class _Record:
    """One pod: what it shows, and what it is to show."""

    __slots__ = ("aside", "forgotten", "next", "task", "withdrawn", "written")

    def __init__(self) -> None:
        self.next: _Wish | None = None
        """To be written, once the write is over that is under way."""
        self.aside: _Wish | None = None
        """To be written if the pod is not bound."""
        self.written: _Wish | None = None
        """What was sent last but may not have come back through the watch yet."""
        self.task: asyncio.Task[None] | None = None
        """The write under way."""
        self.withdrawn = False
        """The pod is about to be bound: the write is not tried again."""
        self.forgotten = False
        """It is gone or bound: the write is not tried again, and what it says is not kept."""

    @property
    def is_empty(self) -> bool:
        return self.is_at_rest and self.written is None

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is to be written, and no write is in progress."""
        return self.next is None and self.aside is None and self.task is None

    def shows(self, pod: Pod, condition: tuple[str, str] | None, nominated: str | None) -> bool:
        """Whether the pod shows this (None: anything), and will go on showing it.

        A version from before our last write may still come through the watch: what it shows will be replaced.
        """
        current = self.current(pod)
        return all(
            condition in (None, told.condition) and nominated in (None, told.nominated)
            for told in (current, self.written or current)
        )

    def current(self, pod: Pod) -> _Wish:
        """What the pod shows, as far as we know."""
        written = self.written
        if written is not None and written.pod.resource_version == pod.resource_version and not written.in_doubt:
            return written
        current = _Wish(pod)
        current.condition = _shown(pod)
        current.nominated = pod.nominated_node
        return current

    def set_aside(self, wish: _Wish) -> None:
        """What a binding would make untrue is written if that fails; that a wait is over stays true, and comes next."""
        if wish.condition is not None or wish.nominated is not None:
            self.aside = self.aside or _Wish(wish.pod)
            self.aside.inherit(wish)
        if wish.waits is not None:
            self.next = self.next or _Wish(wish.pod)
            self.next.waits = self.next.waits or wish.waits

    def sent(self, wish: _Wish) -> None:
        """The pod shows this from now on; that may be just what was to be written next."""
        before = self.current(wish.pod)
        wish.condition = wish.condition or before.condition
        wish.nominated = before.nominated if wish.nominated is None else wish.nominated
        self.written, following = wish, self.next
        if (
            following is not None
            and following.waits is None
            and self.shows(following.pod, following.condition, following.nominated)
        ):
            self.next = None


class PodStatusWriter:
    """The writer.

    `pending`: the uids of the pods that wait for a node; nothing is kept of others.
    """

    def __init__(self, send: SendPatch, wall: Callable[[], float], pending: Container[str]) -> None:
        self._send = send
        self._wall = wall
        self._pending = pending
        self._records: dict[str, _Record] = {}
        """By uid."""
        self._due: OrderedDict[str, _Record] = OrderedDict()
        """Those with something to write, unless that was withdrawn, and no write under way."""
        self._under_way: set[asyncio.Task[None]] = set()

    def condition(self, pod: Pod, reason: str, message: str, nominated: str | None) -> None:
        """PodScheduled=False for a reason; `nominated` is written too unless it is None."""
        if self._shows(pod, (reason, message), nominated):
            return
        wish = self._wish(pod)
        wish.condition = (reason, message)
        if nominated is not None:
            wish.nominated = nominated
        self._pump()

    def nominate(self, pod: Pod, node: str) -> None:
        """status.nominatedNodeName alone; "" clears it."""
        if self._shows(pod, None, node):
            return
        self._wish(pod).nominated = node
        self._pump()

    def waiting(self, pod: Pod, reason: str, message: str) -> None:
        """The Waiting condition: True for a reason, or, with an empty one, False."""
        self._wish(pod).waits = (reason, message)
        self._pump()

    def forget(self, uid: str) -> None:
        """The pod is gone or bound: pending writes for it are dropped."""
        record = self._records.get(uid)
        if record is None:
            return
        record.next = record.aside = record.written = None
        record.forgotten = record.task is not None
        self._drop_if_empty(uid, record)

    def lose(self, uid: str) -> None:
        """What was written may be lost: the pod shows what its newest version does."""
        record = self._records.get(uid)
        if record is not None:
            record.written = None
            self._drop_if_empty(uid, record)

    async def withdraw(self, uid: str) -> None:
        """The pod is about to be bound: what was to be written is set aside, and what is on its way must arrive first.

        Else a bound pod would show that it is not scheduled, or a nomination. If the binding fails, what is set aside
        is written with what the pod shows next. Returns when the API server has answered, or did not in time.
        """
        record = self._records.get(uid)
        if record is None:
            return
        if (wish := record.next) is not None:
            record.next = None
            record.set_aside(wish)
        if record.task is not None:
            record.withdrawn = True
            await asyncio.wait([record.task])

    async def drain(self) -> None:
        """Waits until everything is written or given up."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    @property
    def unwritten(self) -> int:
        """Pods with states that are not written yet."""
        return sum(record.next is not None for record in self._records.values())

    @property
    def remembered(self) -> int:
        """Pods of which anything is known, or to be written."""
        return len(self._records)

    def _shows(self, pod: Pod, condition: tuple[str, str] | None, nominated: str | None) -> bool:
        record = self._records.get(pod.uid) or _Record()
        return record.is_at_rest and record.shows(pod, condition, nominated)

    def _wish(self, pod: Pod) -> _Wish:
        """What is to be written next about the pod."""
        record = self._records.setdefault(pod.uid, _Record())
        if record.next is None:
            record.next, record.aside = record.aside or _Wish(pod), None
            if record.task is None:
                self._due[pod.uid] = record
        record.next.pod = pod
        return record.next

    def _drop_if_empty(self, uid: str, record: _Record) -> None:
        if record.is_empty:
            del self._records[uid]

    def _pump(self) -> None:
        while self._due and len(self._under_way) < _IN_FLIGHT:
            uid, record = self._due.popitem(last=False)
            wish, record.next = record.next, None
            if wish is not None:
                record.task = asyncio.get_running_loop().create_task(self._write(uid, record, wish))
                self._under_way.add(record.task)

    async def _write(self, uid: str, record: _Record, wish: _Wish) -> None:
        try:
            await self._try(uid, record, wish)
        finally:
            assert record.task is not None, "it is this one"
            self._under_way.discard(record.task)
            record.task, record.withdrawn, record.forgotten = None, False, False
            if record.next is not None:
                self._due[uid] = record
            self._drop_if_empty(uid, record)
            self._pump()

    async def _try(self, uid: str, record: _Record, wish: _Wish) -> None:
        pod, delay = wish.pod, _FIRST_RETRY
        for attempt in count(1):
            try:
                await self._send(pod.namespace, pod.name, self._body(wish))
                break
            except PatchRejected as error:
                _log.debug("status of %s not written: %s", pod.title, error)
                record.next = None
                return
            except PatchFailed as error:
                is_last = attempt == _TRIES
                if is_last:
                    _log.warning("status of %s not written after %d tries: %s", pod.title, attempt, error)
                if is_last or record.withdrawn:
                    wish.in_doubt = True
                    break
            await asyncio.sleep(delay)
            if record.forgotten:
                return
            delay *= _RETRY_FACTOR
        if record.forgotten:
            return
        if wish.in_doubt and record.withdrawn:
            record.set_aside(wish)
        if uid in self._pending:
            record.sent(wish)

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
