"""What the queue holds: a pending pod with its history of attempts, and the place where it is."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from koordsched.queue.equivalence import EquivalentPods
    from koordsched.queue.hintgroups import HintGroup


class PodShape(Hashable, Protocol):
    """What placement depends on in a pod's spec; equivalent pods share one object, and with it profile and priority."""

    @property
    def scheduler_name(self) -> str: ...


class SchedulablePod(Protocol):
    """What the queue reads of a pod (`cluster.pod.Pod` is one)."""

    @property
    def uid(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str:
        """`namespace/name`."""

    @property
    def title(self) -> str:
        """What users know it by."""

    @property
    def priority(self) -> int: ...
    @property
    def shape(self) -> PodShape: ...
    @property
    def nominated_node(self) -> str:
        """status.nominatedNodeName, "" if unset."""


P = TypeVar("P", bound=SchedulablePod)


class Place(Enum):
    """Where a pod is; it is never in two places."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    #: Backing off after an error rather than a rejection: never popped early.
    ERROR_BACKOFF = "error-backoff"
    UNSCHEDULABLE = "unschedulable"
    #: Among the unschedulable pods, but refused by a PreEnqueue plugin.
    GATED = "gated"
    IN_FLIGHT = "in-flight"
    #: Not in the queue: never was, or done, or deleted.
    NOWHERE = "nowhere"


NO_PLUGINS: Final[frozenset[str]] = frozenset()


@dataclass(slots=True, eq=False)
class QueuedPod(Generic[P]):
    """A pending pod and what the scheduler knows of its attempts (core spec 3.3, `QueuedPodInfo`).

    Times are seconds of the injected clock. The scheduling cycle reads it after `pop`; only the queue writes.
    """

    pod: P
    #: `namespace/name`, kept because building it is not free.
    key: str
    #: When it last came to the queue; PrioritySort orders equal priorities by it.
    timestamp: float
    #: Order of arrival, unique: the last tie-break.
    sequence: int
    place: Place = Place.NOWHERE
    #: Times popped.
    attempts: int = 0
    #: Attempts that ended in a rejection.
    unschedulable_count: int = 0
    #: The node it is nominated to, if that was still occupied in its last attempt; otherwise "".
    waits_for_node: str = ""
    #: Attempts since the last rejection that ended in an error.
    consecutive_errors: int = 0
    #: First entry into the active queue; None before.
    initial_attempt_timestamp: float | None = None
    #: Plugins that rejected the pod's own last attempt, and those of them that are pending; see the properties.
    rejected_by: frozenset[str] = NO_PLUGINS
    waits_for: frozenset[str] = NO_PLUGINS
    #: The PreEnqueue plugin that keeps it out, "" if none.
    gating_plugin: str = ""
    gating_reason: str = ""
    #: Whether its back-off is waited out, though it was rejected.
    waits_out: bool = False
    #: Seconds for which it rests after an attempt that took long, whatever happens.
    rest: float = 0.0
    #: Whether it left the unschedulable pods because it sat there too long; reset by the next failure.
    flushed: bool = False
    # Positions in the structures that hold it; written by those structures.
    order: tuple[Any, ...] = ()
    backoff_expiry: float | None = None
    group: HintGroup[P] | None = None
    index_keys: tuple[Hashable, ...] = ()
    #: The equivalent pods it rests among.
    equivalents: EquivalentPods[P] | None = None
    #: The equivalent pods that rest while it is tried for them.
    probes_for: EquivalentPods[P] | None = None

    @property
    def unschedulable_plugins(self) -> frozenset[str]:
        """The plugins that it waits for: they rejected the last attempt, of its own or of an equivalent pod for it.

        Pending ones and the gating one included.
        """
        equivalents = self.equivalents
        return self.rejected_by if equivalents is None else equivalents.refusal.plugins

    @unschedulable_plugins.setter
    def unschedulable_plugins(self, plugins: frozenset[str]) -> None:
        self.rejected_by = plugins

    @property
    def pending_plugins(self) -> frozenset[str]:
        """Those of them that wait for something that they started."""
        equivalents = self.equivalents
        return self.waits_for if equivalents is None else equivalents.refusal.pending

    @pending_plugins.setter
    def pending_plugins(self, plugins: frozenset[str]) -> None:
        self.waits_for = plugins

    @property
    def profile(self) -> str:
        """The profile that schedules it: spec.schedulerName."""
        return self.pod.shape.scheduler_name

    @property
    def gated(self) -> bool:
        """Whether a PreEnqueue plugin keeps it out."""
        return self.gating_plugin != ""

    def __repr__(self) -> str:
        return f"QueuedPod({self.key}, {self.place.value}, attempts={self.attempts})"
