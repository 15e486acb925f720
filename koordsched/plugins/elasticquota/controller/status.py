"""Usage and runtimes, written to the objects of the quotas (elasticquota spec 3.15, status loop).

Once a second what each object shows is held against the books, as numbers; where they differ, one merge patch
carries what changed. Changes in between are never written, and a write never waits for one that is as new. Nothing
written here is ever read back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import msgspec
import orjson

from koordsched.api.core import Quantities
from koordsched.api.meta import ObjectMeta
from koordsched.cluster.objects import Store
from koordsched.framework.controller import ObjectWrites
from koordsched.framework.handle import Clock, WriteFailed
from koordsched.plugins.elasticquota.arithmetic.amounts import EMPTY, Amounts, add_to, parse, texts
from koordsched.plugins.elasticquota.arithmetic.tree import Quota
from koordsched.plugins.elasticquota.books import QuotaBooks
from koordsched.plugins.elasticquota.kinds import (
    ALLOCATED,
    CHILD_REQUEST,
    ELASTIC_QUOTAS,
    GUARANTEED,
    NON_PREEMPTIBLE_REQUEST,
    NON_PREEMPTIBLE_USED,
    REQUEST,
    RUNTIME,
    ElasticQuota,
)

_log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between checks."""

LONGEST_PAUSE = 30.0
"""Seconds between looks while nothing can be written."""

WRITES_PER_LOOK = 100
"""With more to write than this the rest waits for the next check, and goes first then."""

WRITES_AT_ONCE = 8

_QUOTAS_AT_ONCE = 10
"""Quotas compared between two turns of the loop."""

_ANNOTATIONS = (RUNTIME, REQUEST, CHILD_REQUEST, GUARANTEED, ALLOCATED, NON_PREEMPTIBLE_REQUEST, NON_PREEMPTIBLE_USED)


def numbers(quota: Quota, *, by_runtime: bool = True) -> dict[str, Amounts]:
    """What the annotations of a quota have to show, by their keys.

    `by_runtime`: argument enableRuntimeQuota; without it there are no runtimes.
    """
    return {
        RUNTIME: quota.runtime if by_runtime else EMPTY,
        REQUEST: quota.request,
        CHILD_REQUEST: quota.child_request,
        GUARANTEED: quota.guaranteed,
        ALLOCATED: _allocated_below(quota) if quota.is_root else quota.allocated,
        NON_PREEMPTIBLE_REQUEST: quota.non_preemptible_request,
        NON_PREEMPTIBLE_USED: quota.non_preemptible_used,
    }


def _allocated_below(root: Quota) -> Amounts:
    """Of a root: what is guaranteed to the topmost quotas, as of any parent (elasticquota spec 3.8)."""
    total: Amounts = {}
    for quota in root.children.values():
        add_to(total, quota.guaranteed)
    return total


@dataclass(frozen=True, slots=True)
class Shown:
    """What an object shows, as numbers; None stands for an annotation that cannot be read."""

    annotations: dict[str, Amounts | None]
    used: Amounts

    @classmethod
    def on(cls, obj: ElasticQuota) -> Shown:
        """Reads the object."""
        annotations = obj.metadata.annotations
        return cls(
            {key: _read(annotations[key]) for key in _ANNOTATIONS if key in annotations}, parse(obj.status.used)[0]
        )


def changes(quota: Quota, shown: Shown, *, by_runtime: bool = True) -> tuple[dict[str, Any], Shown]:
    """The merge patch that brings an object up to date ({} if it is), and what it shows afterwards.

    An entry that is zero equals one that is missing. Resources that the quota still names go down to 0, others vanish.
    """
    patch: dict[str, Any] = {}
    after = dict(shown.annotations)
    annotations: dict[str, str] = {}
    for key, amounts in numbers(quota, by_runtime=by_runtime).items():
        before = shown.annotations.get(key, {})
        if before is None or not _same(before, amounts):
            after[key] = now = _completed(amounts, before or {}, quota)
            annotations[key] = orjson.dumps(texts(now)).decode()
    if annotations:
        patch["metadata"] = {"annotations": annotations}
    used = shown.used
    if not _same(used, quota.used):
        used = _completed(quota.used, shown.used, quota)
        gone = dict.fromkeys(name for name in shown.used if name not in used)
        patch["status"] = {"used": {**texts(used), **gone}}
    return patch, Shown(after, used)


@dataclass(eq=False, repr=False)
class StatusWriter:
    """Keeps the objects up to date; `observe` gets the seconds that each write took."""

    books: QuotaBooks
    store: Store[ElasticQuota]
    writes: ObjectWrites
    clock: Clock
    observe: Callable[[float], None]
    _: KW_ONLY
    by_runtime: bool = True

    def __post_init__(self) -> None:
        self._shown: dict[tuple[str, str], tuple[str, Shown]] = {}
        """By namespace and name: the version of the object that was read, and what it shows or will show."""
        self._next = ""
        """The quota to begin with."""
        self._looked: object = None

    async def run(self) -> None:
        """Checks and writes until cancelled."""
        pause = INTERVAL
        while True:
            written, failed = await self.look()
            pause = min(pause * 2, LONGEST_PAUSE) if failed and not written else INTERVAL
            await asyncio.sleep(pause)

    async def look(self) -> tuple[int, int]:
        """Compares and writes once; returns how many writes succeeded and failed."""
        seen = self.books.version, self.store.version
        if seen == self._looked:
            return 0, 0
        wishes = await self._wishes()
        slots = asyncio.Semaphore(WRITES_AT_ONCE)
        results = await asyncio.gather(*(self._write(slots, *wish) for wish in wishes))
        if all(results) and len(wishes) < WRITES_PER_LOOK:
            self._looked = seen
        return sum(results), len(results) - sum(results)

    async def _wishes(self) -> list[tuple[ElasticQuota, dict[str, Any], Shown]]:
        """What there is to be written, of as many quotas as may be written at a time; the others are next."""
        quotas = self.books.quotas()
        start = next((index for index, quota in enumerate(quotas) if quota.name >= self._next), 0)
        wishes: list[tuple[ElasticQuota, dict[str, Any], Shown]] = []
        for turn, quota in enumerate([*quotas[start:], *quotas[:start]]):
            if turn % _QUOTAS_AT_ONCE == _QUOTAS_AT_ONCE - 1:
                await asyncio.sleep(0)
            if len(wishes) >= WRITES_PER_LOOK:
                self._next = quota.name
                break
            self.books.before_reading()
            for obj in self.books.objects(quota.name):
                patch, after = changes(quota, self._on(obj), by_runtime=self.by_runtime)
                if patch:
                    wishes.append((obj, patch, after))
        if len(self._shown) > 2 * len(quotas) + _QUOTAS_AT_ONCE:
            self._forget(quotas)
        return wishes

    def _on(self, obj: ElasticQuota) -> Shown:
        meta = obj.metadata
        known = self._shown.get((meta.namespace, meta.name))
        if known is not None and known[0] == _version(meta):
            return known[1]
        shown = Shown.on(obj)
        self._shown[meta.namespace, meta.name] = (_version(meta), shown)
        return shown

    async def _write(self, slots: asyncio.Semaphore, obj: ElasticQuota, patch: dict[str, Any], after: Shown) -> bool:
        meta = obj.metadata
        async with slots:
            started = self.clock.monotonic()
            try:
                await self.writes.merge(ELASTIC_QUOTAS, meta, patch)
            except WriteFailed as error:
                _log.info("status of quota %s/%s not written: %s", meta.namespace, meta.name, error)
                return False
            self.observe(self.clock.monotonic() - started)
            # Unless it came back already: until it does, this is what the object shows.
            if self._shown.get((meta.namespace, meta.name), ("",))[0] == _version(meta):
                self._shown[meta.namespace, meta.name] = (_version(meta), after)
            return True

    def _forget(self, quotas: list[Quota]) -> None:
        """Objects that were deleted."""
        names = {quota.name for quota in quotas}
        self._shown = {key: shown for key, shown in self._shown.items() if key[1] in names}


def _version(meta: ObjectMeta) -> str:
    return f"{meta.uid}/{meta.resource_version}"


def _read(annotation: str) -> Amounts | None:
    try:
        amounts, problems = parse(msgspec.json.decode(annotation, type=Quantities | None) or {})
    except msgspec.MsgspecError:
        return None
    return None if problems else amounts


def _same(shown: Amounts, amounts: Amounts) -> bool:
    """Whether they differ in nothing but zeros."""
    return shown == amounts or _nonzero(shown) == _nonzero(amounts)


def _nonzero(amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount}


def _completed(amounts: Amounts, before: Amounts, quota: Quota) -> Amounts:
    """The amounts, with a 0 for what was shown before and is still named by max."""
    return {**{name: 0 for name in before if name in quota.max}, **amounts}
