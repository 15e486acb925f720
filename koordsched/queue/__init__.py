"""Pending pods: what is tried next, what waits, and what wakes it."""

from koordsched.queue.active import SortKey
from koordsched.queue.backoff import BackoffPolicy
from koordsched.queue.counters import QueueCounters
from koordsched.queue.gating import PreEnqueue
from koordsched.queue.hints import (
    ByKey,
    GroupBy,
    HintFn,
    HintObserver,
    HintRegistration,
    HintTable,
    QueueingHint,
    Scope,
    every_event,
)
from koordsched.queue.item import Place, PodShape, QueuedPod, SchedulablePod
from koordsched.queue.nominator import Nominator
from koordsched.queue.queue import QueueProfile, SchedulingQueue

__all__ = [
    "BackoffPolicy",
    "ByKey",
    "GroupBy",
    "HintFn",
    "HintObserver",
    "HintRegistration",
    "HintTable",
    "Nominator",
    "Place",
    "PodShape",
    "PreEnqueue",
    "QueueCounters",
    "QueueProfile",
    "QueuedPod",
    "QueueingHint",
    "SchedulablePod",
    "SchedulingQueue",
    "Scope",
    "SortKey",
    "every_event",
]
