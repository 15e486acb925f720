"""Pods, clocks and queues for the queue's tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from koordsched.queue.backoff import BackoffPolicy
from koordsched.queue.gating import PreEnqueue
from koordsched.queue.hints import HintObserver, HintRegistration, HintTable
from koordsched.queue.item import QueuedPod
from koordsched.queue.queue import QueueProfile, SchedulingQueue

PROFILE = "default-scheduler"


@dataclass(frozen=True)
class Shape:
    scheduler_name: str = PROFILE
    name: str = "web"


@dataclass(frozen=True)
class Pod:
    name: str
    namespace: str = "default"
    uid: str = ""
    priority: int = 0
    shape: Shape = field(default_factory=Shape)
    nominated_node: str = ""
    claims: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    labels: str = ""

    def __post_init__(self) -> None:
        if not self.uid:
            object.__setattr__(self, "uid", f"uid-{self.namespace}-{self.name}")

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def title(self) -> str:
        return self.key


class Clock:
    """Seconds, moved by the test."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def priority_sort(queued: QueuedPod[Any]) -> tuple[Any, ...]:
    return -queued.pod.priority, queued.timestamp, queued.sequence


def scheduling_gates(pod: Pod) -> str | None:
    return f"waiting for scheduling gates: {list(pod.gates)}" if pod.gates else None


def make_queue(
    hints: Iterable[HintRegistration[Pod]] = (),
    *,
    clock: Clock | None = None,
    pre_enqueue: Mapping[str, PreEnqueue[Pod]] | None = None,
    backoff: BackoffPolicy | None = None,
    observer: HintObserver | None = None,
) -> SchedulingQueue[Pod]:
    return SchedulingQueue(
        {PROFILE: QueueProfile(HintTable(hints, observer), pre_enqueue or {})},
        clock=clock or Clock(),
        sort_key=priority_sort,
        is_pending=lambda pod: True,
        backoff=backoff,
    )


def pop(queue: SchedulingQueue[Pod]) -> QueuedPod[Pod]:
    """The next pod; there must be one."""
    queued = queue.pop()
    assert queued is not None
    return queued


def reject(queue: SchedulingQueue[Pod], pod: Pod, *plugins: str, pending: Iterable[str] = ()) -> QueuedPod[Pod]:
    """Add a pod, try it, and let these plugins reject it."""
    queue.add(pod)
    queued = pop(queue)
    assert queued.pod is pod
    queue.add_unschedulable_if_not_present(queued, set(plugins), set(pending))
    return queued
