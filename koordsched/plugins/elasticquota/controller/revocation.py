"""Pods of quotas that use more than they may are evicted (elasticquota spec 3.15, revoke loop)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import partial

from koordsched.cluster.pod import Pod
from koordsched.framework.controller import ObjectWrites
from koordsched.framework.handle import NORMAL, Clock, EventRecorder, WriteFailed
from koordsched.plugins.elasticquota.arithmetic.amounts import EMPTY, Amounts, exceeded, fits
from koordsched.plugins.elasticquota.arithmetic.tree import Quota
from koordsched.plugins.elasticquota.books import QuotaBooks
from koordsched.plugins.elasticquota.kinds import ROOT_QUOTA, SYSTEM_QUOTA
from koordsched.plugins.elasticquota.members import Member
from koordsched.plugins.elasticquota.messages import listed

_log = logging.getLogger(__name__)

REASON = "QuotaRevoked"


def picked(members: Iterable[Member], used: Mapping[str, int], runtime: Amounts, own: Container[Pod]) -> list[Member]:
    """The pods to evict, in order, so that what the others use fits the runtime.

    The least important are taken away until it fits; what of it still fits is put back, the most important first. If it
    does not fit without all of them, all are evicted. Terminating pods count as gone; non-preemptible ones and our own
    replicas stay. Every resource counts all the time, not only those of the pod handled last.
    """
    remaining = dict(used)
    candidates: list[Member] = []
    for member in members:
        if not member.assigned:
            continue
        if member.pod.deleting:
            _take(remaining, member)
        elif not member.non_preemptible and member.pod not in own:
            candidates.append(member)
    taken: list[Member] = []
    for member in sorted(candidates, key=lambda one: _importance(one.pod), reverse=True):
        if fits(remaining, EMPTY, runtime):
            break
        _take(remaining, member)
        taken.append(member)
    if not fits(remaining, EMPTY, runtime):
        return taken
    evicted: list[Member] = []
    for member in reversed(taken):
        if fits(remaining, member.counted, runtime):
            for name, amount in member.counted.items():
                remaining[name] += amount
        else:
            evicted.append(member)
    return evicted


def _take(used: Amounts, member: Member) -> None:
    for name, amount in member.counted.items():
        used[name] = max(used.get(name, 0) - amount, 0)


def _importance(pod: Pod) -> tuple[int, bool, str, str]:
    """Sorts the most important first: by priority, then by start; a pod that has not started is the latest."""
    return -pod.priority, not pod.start_time, pod.start_time or "", pod.key


class OveruseMonitor:
    """Since when quotas use more than they may: how long it must last is `delay` seconds."""

    def __init__(self, books: QuotaBooks, delay: float) -> None:
        self._books = books
        self._delay = delay
        self._looked = 0.0
        self._last_under: dict[str, float] = {}
        """When those that use too much were last seen not to exceed."""
        self._version = -1
        self._names: frozenset[str] = frozenset()
        self._over: list[Quota] = []

    def due(self, now: float) -> list[Quota]:
        """The quotas that have used more than they may for longer than the delay; their time starts anew."""
        known = self._names
        self._refresh()
        due: list[Quota] = []
        last_under: dict[str, float] = {}
        for quota in self._over:
            since = self._last_under.get(quota.name, self._looked if quota.name in known else now)
            if now - since > self._delay:
                due.append(quota)
                since = now
            last_under[quota.name] = since
        self._last_under = last_under
        self._looked = now
        return due

    def _refresh(self) -> None:
        """Which quotas there are, and which of them use too much; the same as before if no number changed."""
        if self._books.version == self._version:
            return
        self._version = self._books.version
        quotas = [quota for quota in self._books.quotas() if quota.name not in (ROOT_QUOTA, SYSTEM_QUOTA)]
        self._names = frozenset(quota.name for quota in quotas)
        self._over = [quota for quota in quotas if not fits(quota.used, EMPTY, quota.limit)]


@dataclass(eq=False, repr=False)
class Revocation:
    """Watches usage every `interval` seconds and evicts. `revoked`: pods that it has evicted, by quota."""

    books: QuotaBooks
    writes: ObjectWrites
    reporter: EventRecorder
    clock: Clock
    own: Container[Pod]
    _: KW_ONLY
    delay: InitVar[float]
    interval: float

    def __post_init__(self, delay: float) -> None:
        self._monitor = OveruseMonitor(self.books, delay)
        self._evicting: dict[str, asyncio.Task[None]] = {}
        self.revoked: Counter[str] = Counter()

    async def run(self) -> None:
        """Checks until cancelled."""
        try:
            while True:
                self.look()
                await asyncio.sleep(self.interval)
        finally:
            for task in self._evicting.values():
                task.cancel()

    def look(self) -> None:
        """Starts the evictions that are due."""
        self.books.before_reading()
        for quota in self._monitor.due(self.clock.monotonic()):
            limit = quota.limit
            victims = picked(self.books.members(quota), quota.used, limit, self.own)
            if quota.name in self._evicting:
                continue
            used, may, over = listed(quota.used), listed(limit), ", ".join(exceeded(quota.used, EMPTY, limit))
            text = f"evicted: quota {quota.name} uses more {over} than it may: used {used}, runtime {may}"
            task = asyncio.get_running_loop().create_task(self._evict(quota.name, [one.pod for one in victims], text))
            self._evicting[quota.name] = task
            task.add_done_callback(partial(self._finished, quota.name))

    def _finished(self, name: str, task: asyncio.Task[None]) -> None:
        del self._evicting[name]

    async def _evict(self, quota: str, pods: list[Pod], text: str) -> None:
        for pod in pods:
            try:
                await self.writes.evict(pod)
            except WriteFailed as error:
                # Tried again when the quota is due next.
                _log.warning("pod %s not evicted (%s): %s", pod.key, text, error)
            else:
                self.revoked[quota] += 1
                self.reporter.pod_event(pod, NORMAL, REASON, text, action="Evicting")
