"""Events on quotas that are invalid, or that were deleted while pods name them."""

from __future__ import annotations

import asyncio
from collections import deque

from koordsched.api.meta import ObjectMeta
from koordsched.cluster.objects import Store
from koordsched.framework.handle import WARNING, EventRecorder
from koordsched.plugins.elasticquota.books import QuotaBooks
from koordsched.plugins.elasticquota.kinds import DEFAULT_QUOTA, ELASTIC_QUOTAS, ElasticQuota

INTERVAL = 2.0
"""Seconds between checks: what is wrong for a shorter time needs no event."""

_MOST_GONE = 1000
"""Deleted quotas that are remembered until the next check; a standby never checks."""

INVALID = "InvalidQuota"
IN_USE = "QuotaInUse"


class ValidationEvents:
    """One event per error, and again when it changed or came back."""

    def __init__(self, books: QuotaBooks, store: Store[ElasticQuota], reporter: EventRecorder) -> None:
        self._books = books
        self._store = store
        self._reporter = reporter
        self._reported: dict[tuple[str, str], tuple[str, ...]] = {}
        self._gone: deque[ObjectMeta] = deque(maxlen=_MOST_GONE)
        self._looked = -1
        store.subscribe(self._changed)

    async def run(self) -> None:
        """Checks until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(INTERVAL)

    def look(self) -> None:
        """Writes the events that are due."""
        if self._store.version == self._looked:
            return
        self._looked = self._store.version
        found = self._books.validation_errors()
        for key, texts in found.items():
            obj = self._store.get(*key)
            if obj is not None and self._reported.get(key) != texts:
                self._warn(obj.metadata, INVALID, "; ".join(texts))
        self._reported = found
        if self._gone:
            self._report_deleted(list(self._gone))
            self._gone.clear()

    def _changed(self, old: ElasticQuota | None, new: ElasticQuota | None) -> None:
        if old is not None and new is None:
            self._gone.append(old.metadata)

    def _report_deleted(self, gone: list[ObjectMeta]) -> None:
        names = self._books.unknown_names()
        for meta in gone:
            if pods := names.get(meta.name):
                text = f"deleted while {pods} pod{'s' if pods > 1 else ''} named it; they count in {DEFAULT_QUOTA} now"
                self._warn(meta, IN_USE, text)

    def _warn(self, meta: ObjectMeta, reason: str, text: str) -> None:
        self._reporter.event(ELASTIC_QUOTAS, meta, WARNING, reason, text, action="Checking", once=True)
