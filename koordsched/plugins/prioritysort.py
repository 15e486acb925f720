"""PrioritySort: higher priority first, then the older queue entry (default-plugins spec 3.2)."""

from __future__ import annotations

from typing import Any

from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle
from koordsched.framework.interface import QueueSort
from koordsched.queue.item import QueuedPod


class PrioritySort(QueueSort):
    """Orders by (-priority, timestamp, order of arrival)."""

    name = "PrioritySort"

    def __init__(self, args: None, handle: Handle) -> None:
        """Takes no arguments."""

    def sort_key(self, queued: QueuedPod[Pod]) -> tuple[Any, ...]:
        """The key; the last part makes it unique."""
        return (-queued.pod.priority, queued.timestamp, queued.sequence)
