"""backoffQ: pods that failed and have to wait before their next attempt.

Waiting times end at whole seconds (`backend/queue/backoff_queue.go`, ordering windows): within one second the pods of
a window keep the order of activeQ, so that popping early takes the right one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import floor
from operator import attrgetter
from typing import Any, Generic

from sortedcontainers import SortedKeyList

from koordsched.queue.active import SortKey
from koordsched.queue.item import P, Place, QueuedPod

#: Beyond this many doublings every configurable duration has reached its maximum.
_MOST_DOUBLINGS = 62


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """podInitialBackoffSeconds and podMaxBackoffSeconds; `maximum` 0 disables back-off."""

    initial: float = 1.0
    maximum: float = 10.0

    def duration(self, failures: int) -> float:
        """Seconds to wait after this many failures: initial * 2^(failures-1), at most `maximum`; 0 for none."""
        if failures <= 0:
            return 0.0
        return min(self.initial * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), self.maximum)

    def expiry(self, queued: QueuedPod[Any]) -> float | None:
        """The whole second in which the wait ends, None if there is nothing to wait for.

        Errors in a row count before rejections: during an outage, pods that never failed before must not hammer the
        server.
        """
        failures = queued.consecutive_errors or queued.unschedulable_count
        waits = failures > 0 and self.maximum > 0
        if not (waits or queued.rest):
            return None
        return float(floor(queued.timestamp + max(self.duration(failures) if waits else 0.0, queued.rest)))

    def is_backing_off(self, queued: QueuedPod[Any], now: float) -> bool:
        """Whether the pod still has to wait at `now`; it does during the whole second of its expiry."""
        expiry = queued.backoff_expiry
        if expiry is None:
            expiry = queued.backoff_expiry = self.expiry(queued)
            if expiry is None:
                return False
        return expiry >= floor(now)


class BackoffQueue(Generic[P]):
    """Two orders by expiry: pods that were rejected, which may be popped early, and pods that met an error, or are to
    wait in any case.
    """

    __slots__ = ("_failed", "_rejected", "_sort_key")

    def __init__(self, sort_key: SortKey) -> None:
        self._sort_key = sort_key
        self._rejected: SortedKeyList = SortedKeyList(key=attrgetter("order"))
        self._failed: SortedKeyList = SortedKeyList(key=attrgetter("order"))

    def add_all(self, batch: Iterable[QueuedPod[P]]) -> None:
        """Put pods whose `backoff_expiry` is known in their places. O(log n) each, less in bulk."""
        rejected, failed = [], []
        for queued in batch:
            queued.order = (queued.backoff_expiry, *self._sort_key(queued))
            if queued.rejected_by and not (queued.waits_out or queued.consecutive_errors):
                queued.place = Place.BACKOFF
                rejected.append(queued)
            else:
                queued.place = Place.ERROR_BACKOFF
                failed.append(queued)
        self._rejected.update(rejected)
        self._failed.update(failed)

    def remove(self, queued: QueuedPod[P]) -> None:
        """Take a pod out. O(log n)."""
        (self._failed if queued.place is Place.ERROR_BACKOFF else self._rejected).remove(queued)

    def pop_early(self) -> QueuedPod[P] | None:
        """Remove and return the rejected pod whose wait ends first, before it ends; None if there is none."""
        if not self._rejected:
            return None
        queued: QueuedPod[P] = self._rejected.pop(0)
        return queued

    def pop_expired(self, now: float) -> list[QueuedPod[P]]:
        """Remove and return the pods whose wait is over, rejected ones first."""
        window = floor(now)
        expired: list[QueuedPod[P]] = []
        for pods in (self._rejected, self._failed):
            while pods and pods[0].backoff_expiry < window:
                expired.append(pods.pop(0))
        return expired

    @property
    def next_release(self) -> float | None:
        """The time at which `pop_expired` will next find a pod; None if there is none."""
        expiries = [pods[0].backoff_expiry for pods in (self._rejected, self._failed) if pods]
        return min(expiries) + 1.0 if expiries else None

    @property
    def poppable(self) -> bool:
        """Whether `pop_early` would find a pod."""
        return bool(self._rejected)

    def __len__(self) -> int:
        return len(self._rejected) + len(self._failed)

    def __iter__(self) -> Iterator[QueuedPod[P]]:
        yield from self._rejected
        yield from self._failed
