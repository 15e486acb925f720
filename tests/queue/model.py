"""The scheduling queue of core spec 3.3, written down as plainly as possible: lists, and loops over all pods.

Written from the text of the spec, sharing nothing with `koordsched.queue` but the event vocabulary.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from koordsched.cluster.events import ClusterEvent
from tests.queue.pods import Pod

#: (plugin, registered event, answer(pod, old, new, own)): answer is True for Queue; an exception counts as True.
Rule = tuple[str, ClusterEvent, Callable[[Pod, Any, Any, bool], bool]]


@dataclass(eq=False)
class Item:
    pod: Pod
    timestamp: float
    arrival: int
    place: str = "nowhere"
    attempts: int = 0
    rejections: int = 0
    errors: int = 0
    rejecting: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    gate: str = ""
    first: float | None = None
    flushed: bool = False


@dataclass(eq=False)
class Popped:
    item: Item
    latest: Pod | None = None
    gone: bool = False


@dataclass
class Happened:
    event: ClusterEvent
    old: Any
    new: Any
    #: uid of the only pod concerned, "" for all.
    only: str = ""


class Model:
    def __init__(
        self, rules: list[Rule], gates: list[tuple[str, Callable[[Pod], bool]]], profile: str, start: float
    ) -> None:
        self.rules = rules
        self.gates = gates
        self.profile = profile
        self.now = start
        self.start = start
        self.next_flush = start + 30
        self.items: list[Item] = []
        self.log: list[Popped | Happened] = []
        self.arrivals = 0
        self.incoming: Counter[tuple[str, str]] = Counter()

    # --- looking

    def find(self, pod: Pod) -> Item | None:
        return next((item for item in self.items if item.pod.uid == pod.uid), None)

    def popped(self, uid: str) -> Popped | None:
        return next((e for e in self.log if isinstance(e, Popped) and e.item.pod.uid == uid), None)

    def active(self) -> list[Item]:
        return sorted(
            (item for item in self.items if item.place == "active"),
            key=lambda item: (-item.pod.priority, item.timestamp, item.arrival),
        )

    def backing_off(self, place: str) -> list[Item]:
        return sorted(
            (item for item in self.items if item.place == place),
            key=lambda item: (self.expiry(item), -item.pod.priority, item.timestamp, item.arrival),
        )

    def unschedulable(self) -> list[Item]:
        return [item for item in self.items if item.place in ("unschedulable", "gated")]

    def expiry(self, item: Item) -> int:
        count = item.errors if item.errors else item.rejections
        return math.floor(item.timestamp + [0, 1, 2, 4, 8, 10][min(count, 5)])

    def is_backing_off(self, item: Item) -> bool:
        return item.errors + item.rejections > 0 and self.expiry(item) >= math.floor(self.now)

    def rejected_by(self) -> Counter[str]:
        return Counter(plugin for item in self.items for plugin in item.rejecting)

    def events_in_flight(self) -> Counter[str]:
        return Counter("PodPopped" if isinstance(e, Popped) else e.event.label for e in self.log)

    # --- moving

    def refused(self, item: Item) -> bool:
        in_order = sorted(self.gates, key=lambda gate: gate[0] != item.gate)
        for plugin, lets_in in in_order:
            if not lets_in(item.pod):
                item.gate = plugin
                item.rejecting.add(plugin)
                item.place = "gated"
                return True
        item.gate = ""
        return False

    def to_active(self, item: Item, label: str) -> None:
        item.place = "active"
        item.first = self.now if item.first is None else item.first
        self.incoming["active", label] += 1

    def requeue(self, item: Item, immediately: bool, label: str) -> None:
        if self.refused(item):
            return
        if not immediately and self.is_backing_off(item):
            item.place = "backoff" if item.rejecting else "error-backoff"
            self.incoming["backoff", label] += 1
        else:
            self.to_active(item, label)

    def worth(self, item: Item, event: ClusterEvent, old: Any, new: Any, own: bool) -> str:
        if not item.rejecting or event.is_wildcard:
            return "queue"
        answers = set()
        for plugin, registered, answer in self.rules:
            if plugin in item.rejecting and registered.matches(event):
                try:
                    queue = answer(item.pod, old, new, own)
                except ArithmeticError:
                    queue = True
                if queue:
                    answers.add("at once" if plugin in item.pending else "queue")
        return "at once" if "at once" in answers else "queue" if answers else "skip"

    # --- operations

    def add(self, pod: Pod, label: str = "UnschedulablePodAdd") -> None:
        queued = self.find(pod)
        if queued is not None:
            queued.pod = pod
            return
        popped = self.popped(pod.uid)
        if pod.shape.scheduler_name != self.profile:
            return
        if popped is not None:
            popped.latest, popped.gone = pod, False
            return
        self.arrivals += 1
        item = Item(pod, self.now, self.arrivals)
        self.items.append(item)
        if self.refused(item):
            self.incoming["unschedulable", label] += 1
        else:
            self.to_active(item, label)

    def update(self, old: Pod, new: Pod, events: list[ClusterEvent]) -> None:
        popped = self.popped(new.uid)
        if popped is not None:
            popped.latest = new
            self.log += [Happened(event, old, new, only=new.uid) for event in events]
            return
        item = self.find(new)
        if item is None:
            self.add(new, "UnschedulablePodUpdate")
            return
        item.pod = new
        if item.place not in ("unschedulable", "gated"):
            return
        for event in events:
            worth = self.worth(item, event, old, new, own=True)
            if worth != "skip":
                self.requeue(item, worth == "at once", event.label)
                if item.place != "gated":
                    return

    def delete(self, pod: Pod) -> None:
        popped = self.popped(pod.uid)
        if popped is not None:
            popped.gone = True
        self.items = [item for item in self.items if item.pod.uid != pod.uid]

    def pop(self) -> Item | None:
        candidates = self.active()
        if not candidates:
            candidates = self.backing_off("backoff")
            if not candidates:
                return None
            self.incoming["active", "PopFromBackoffQ"] += 1
        item = candidates[0]
        self.items.remove(item)
        item.place, item.gate, item.rejecting, item.pending = "in-flight", "", set(), set()
        item.attempts += 1
        self.log.append(Popped(item))
        return item

    def done(self, uid: str) -> None:
        popped = self.popped(uid)
        if popped is None:
            return
        popped.item.place = "nowhere"
        self.log.remove(popped)
        self.log = [e for e in self.log if not (isinstance(e, Happened) and e.only == uid)]
        in_flight = [index for index, e in enumerate(self.log) if isinstance(e, Popped)]
        head = in_flight[0] if in_flight else len(self.log)
        self.log = [e for e in self.log[:head] if isinstance(e, Happened) and e.only] + self.log[head:]

    def fail(self, item: Item, rejecting: set[str], pending: set[str]) -> None:
        popped = self.popped(item.pod.uid)
        if self.find(item.pod) is not None or (popped is not None and popped.gone):
            self.done(item.pod.uid)
            return
        if popped is not None and popped.latest is not None:
            item.pod = popped.latest
        item.rejecting, item.pending = rejecting | pending, set(pending)
        if item.rejecting:
            item.rejections += 1
            item.errors = 0
        else:
            item.errors += 1
        item.timestamp = self.now
        item.flushed = False
        worths = {"queue"}
        if popped is not None and item.rejecting:
            worths = {
                self.worth(item, e.event, e.old, e.new, own=bool(e.only))
                for e in self.log[self.log.index(popped) :]
                if isinstance(e, Happened) and e.only in ("", item.pod.uid)
            }
        self.done(item.pod.uid)
        self.items.append(item)
        if worths <= {"skip"}:
            item.place = "unschedulable"
        else:
            self.requeue(item, "at once" in worths, "ScheduleAttemptFailure")
        if item.place in ("unschedulable", "gated"):
            self.incoming["unschedulable", "ScheduleAttemptFailure"] += 1

    def move_all(self, event: ClusterEvent, old: Any, new: Any, max_priority: int | None, exclude: str | None) -> None:
        if not any(registered.matches(event) for _, registered, _ in self.rules):
            return
        for item in self.unschedulable():
            if item.gate and not any(p == item.gate and registered.matches(event) for p, registered, _ in self.rules):
                continue
            if (max_priority is not None and item.pod.priority > max_priority) or item.pod.uid == exclude:
                continue
            worth = self.worth(item, event, old, new, own=False)
            if worth != "skip":
                self.requeue(item, worth == "at once", event.label)
                if item.place == "gated":
                    self.incoming["unschedulable", event.label] += 1
        if any(isinstance(e, Popped) for e in self.log):
            self.log.append(Happened(event, old, new))

    def activate(self, pod: Pod, event: ClusterEvent) -> None:
        item = self.find(pod)
        if item is None:
            if self.popped(pod.uid):
                self.log.append(Happened(event, None, pod, only=pod.uid))
        elif item.place in ("backoff", "error-backoff"):
            self.to_active(item, event.label)
        elif item.place in ("unschedulable", "gated"):
            self.requeue(item, True, event.label)

    def tick(self, now: float, timeout: ClusterEvent) -> None:
        """Time has come to `now`, where the timers run."""
        self.now = now
        for item in self.items:
            if item.place in ("backoff", "error-backoff") and not self.is_backing_off(item):
                self.to_active(item, "BackoffComplete")
        if now < self.next_flush:
            return
        while self.next_flush <= now:
            self.next_flush += 30
        overdue = [item for item in self.items if item.place == "unschedulable" and now - item.timestamp > 300]
        for item in overdue:
            item.flushed = True
            self.requeue(item, False, timeout.label)
            if item.place == "gated":
                self.incoming["unschedulable", timeout.label] += 1
        if overdue and any(isinstance(e, Popped) for e in self.log):
            self.log.append(Happened(timeout, None, None))
