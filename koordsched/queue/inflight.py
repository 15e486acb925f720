"""In-flight pods, and what happened since each of them was popped.

A pod that is being scheduled is in no queue, so an event that would wake it does not find it. The events are therefore
kept until every pod that was in flight at the time was requeued or is done, and replayed to those that are requeued.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, Generic, NamedTuple

from koordsched.cluster.events import ClusterEvent
from koordsched.queue.item import P, QueuedPod

#: A pod waiting for minutes would otherwise pin every object that changed meanwhile.
MAX_EVENTS = 16_384


class RecordedEvent(NamedTuple):
    """An event with the objects it was about, as the watch delivered them."""

    event: ClusterEvent
    old: Any
    new: Any


class InFlightPod(Generic[P]):
    """A popped pod."""

    __slots__ = ("gone", "latest", "own_events", "queued", "start")

    def __init__(self, queued: QueuedPod[P], start: int) -> None:
        self.queued = queued
        #: Number of the first event since it was popped.
        self.start = start
        #: Changes of the pod itself and forced activations; they concern no other pod.
        self.own_events: Sequence[RecordedEvent] = ()
        #: The newest version of the pod, if it changed.
        self.latest: P | None = None
        #: Deleted, or bound, meanwhile.
        self.gone = False


class InFlight(Generic[P]):
    """The popped pods in order of popping, and one shared record of events.

    Everything is O(1) per pod and event. At most `max_events` are kept: for pods popped before the oldest one kept
    `events_since` returns None, and they are treated as if an event had concerned them.
    """

    __slots__ = ("_counts", "_events", "_first", "_flights", "_max_events")

    def __init__(self, max_events: int = MAX_EVENTS) -> None:
        self._flights: OrderedDict[str, InFlightPod[P]] = OrderedDict()
        self._events: deque[RecordedEvent] = deque()
        #: Number of the oldest event kept; numbers grow by one per event.
        self._first = 0
        self._max_events = max_events
        self._counts: Counter[str] = Counter()

    def start(self, queued: QueuedPod[P]) -> None:
        """A pod was popped."""
        self._flights[queued.pod.uid] = InFlightPod(queued, self._first + len(self._events))

    def get(self, uid: str) -> InFlightPod[P] | None:
        """The flight of a pod; None if it is not in flight."""
        return self._flights.get(uid)

    def record(self, event: ClusterEvent, old: Any, new: Any) -> None:
        """Something happened that concerns every pod in flight."""
        if not self._flights:
            return
        self._events.append(RecordedEvent(event, old, new))
        self._counts[event.label] += 1
        if len(self._events) > self._max_events:
            self._drop_first()

    def record_own(self, flight: InFlightPod[P], event: ClusterEvent, old: P | None, new: P) -> None:
        """Something happened that concerns one pod in flight only."""
        flight.own_events = (*flight.own_events, RecordedEvent(event, old, new))
        self._counts[event.label] += 1

    def events_since(self, flight: InFlightPod[P]) -> Sequence[RecordedEvent] | None:
        """The shared events since the pod was popped, oldest first; None if some of them were dropped."""
        if flight.start < self._first:
            return None
        return list(islice(self._events, flight.start - self._first, None))

    def done(self, uid: str) -> InFlightPod[P] | None:
        """The pod came back or needs no replay any more. Returns its flight; None if it is not in flight."""
        flight = self._flights.pop(uid, None)
        if flight is None:
            return None
        for own in flight.own_events:
            self._uncount(own)
        if self._events:
            oldest = next(iter(self._flights.values())).start if self._flights else self._first + len(self._events)
            while self._first < oldest:
                self._drop_first()
        return flight

    def _drop_first(self) -> None:
        self._uncount(self._events.popleft())
        self._first += 1

    def _uncount(self, recorded: RecordedEvent) -> None:
        label = recorded.event.label
        self._counts[label] -= 1
        if not self._counts[label]:
            del self._counts[label]

    def event_counts(self) -> dict[str, int]:
        """Entries kept by event label; popped pods count as `PodPopped`."""
        return {**self._counts, "PodPopped": len(self._flights)}

    def pods(self) -> list[P]:
        """The pods in flight, in the order they were popped."""
        return [flight.queued.pod for flight in self._flights.values()]

    def __len__(self) -> int:
        return len(self._flights)
