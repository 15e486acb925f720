"""How long events from the cluster and the hints they ask take, for the metrics of core spec 5.3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import Generic, TypeVar

from koordsched.api.meta import HasMetadata
from koordsched.client.sink import ObjectKey, Sink
from koordsched.cluster.events import ActionType, ClusterEvent, EventResource
from koordsched.observability.instruments import Histogram
from koordsched.observability.metrics import Metrics

T = TypeVar("T", bound=HasMetadata)


class HintTimes:
    """`queue.hints.HintObserver` that writes queueing_hint_execution_duration_seconds."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._durations = metrics.queueing_hint_duration
        self._clock = clock

    def clock(self) -> float:
        """Seconds of a clock fit for durations."""
        return self._clock()

    def observe(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        """`hint` is `Queue`, `QueueSkip` or `Error`."""
        self._durations.labels(plugin, event, hint).observe(seconds)


@dataclass(eq=False, repr=False)
class TimedSink(Generic[T]):
    """A sink whose calls are timed (event_handling_duration_seconds), by the event that the object's change is.

    `is_new` tells an addition from an update; `resource_of` names the resource of an object, for pods by whether they
    have a node.
    """

    sink: Sink[T]
    metrics: InitVar[Metrics]
    clock: Callable[[], float]
    _: KW_ONLY
    is_new: Callable[[T], bool]
    resource_of: Callable[[T], EventResource]

    def __post_init__(self, metrics: Metrics) -> None:
        self._durations = metrics.event_handling_duration
        self._bound: dict[tuple[EventResource, ActionType], Histogram] = {}

    def upsert(self, obj: T, anew: bool = False) -> None:
        action = ActionType.ADD if self.is_new(obj) else ActionType.UPDATE
        started = self.clock()
        self.sink.upsert(obj, anew)
        self._of(obj, action).observe(self.clock() - started)

    def delete(self, obj: T) -> None:
        started = self.clock()
        self.sink.delete(obj)
        self._of(obj, ActionType.DELETE).observe(self.clock() - started)

    def delete_key(self, key: ObjectKey) -> None:
        self.sink.delete_key(key)

    def known(self) -> Iterator[ObjectKey]:
        return self.sink.known()

    def _of(self, obj: T, action: ActionType) -> Histogram:
        key = (self.resource_of(obj), action)
        histogram = self._bound.get(key)
        if histogram is None:
            histogram = self._bound[key] = self._durations.labels(ClusterEvent(*key).label)
        return histogram
