"""What the queue counts for metrics: plain dicts, written on the hot path and read when metrics are scraped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable


class QueueCounters:
    """Counters and gauges of core spec 5.3 that only the queue knows."""

    __slots__ = ("incoming", "unschedulable")

    def __init__(self) -> None:
        #: queue_incoming_pods_total: (queue, event label) -> pods, with queue active, backoff or unschedulable.
        self.incoming: defaultdict[tuple[str, str], int] = defaultdict(int)
        #: unschedulable_pods: (plugin, profile) -> pods it rejected that have not been popped since.
        self.unschedulable: defaultdict[tuple[str, str], int] = defaultdict(int)

    def rejected(self, profile: str, plugins: Iterable[str], pods: int = 1) -> None:
        """Pods came back, or were gated."""
        for plugin in plugins:
            self.unschedulable[plugin, profile] += pods

    def released(self, profile: str, plugins: Iterable[str], pods: int = 1) -> None:
        """Pods that these plugins rejected were popped or deleted."""
        for plugin in plugins:
            self.unschedulable[plugin, profile] -= pods
