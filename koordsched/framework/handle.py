"""What the scheduler offers to its plugins."""

from __future__ import annotations

from collections.abc import Callable, Container, Coroutine, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from koordsched.api.meta import HasMetadata, ObjectMeta
from koordsched.cluster.kinds import Kind
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.nominations import Nominations
from koordsched.framework.permit import WaitingPods
from koordsched.framework.pluginstates import PluginStates
from koordsched.framework.status import ReasonTable
from koordsched.framework.timers import RowDeadlines, Timers
from koordsched.framework.turns import Turns
from koordsched.framework.virtualpods import VirtualPods

if TYPE_CHECKING:
    from koordsched.framework.filtering import Filtering
    from koordsched.framework.reservations import ReservedAllocation
    from koordsched.framework.topologyhints import NUMAAlignment, TopologyHintProvider

T = TypeVar("T", bound=HasMetadata)


NORMAL = "Normal"
WARNING = "Warning"


class WriteFailed(Exception):
    """An API write was not carried out; the message is the server's, or says what went wrong before."""


class WriteConflict(WriteFailed):
    """The object is not of the version, or not the one, that the write was meant for."""


class ObjectGone(WriteFailed):
    """There is no such object any more."""


class Writes(Protocol):
    """The API writes that plugins may ask for. Each raises WriteFailed."""

    async def bind(self, pod: Pod, node: str, annotations: Mapping[str, str] | None = None) -> None:
        """Creates the binding, which sets annotations of the pod; returns when the API server has it, even if the
        response was lost."""

    async def patch(self, kind: Kind[T], thing: T, changes: Mapping[str, Any], *, subresource: str = "") -> T:
        """Merges changes into an object, or a subresource of it, if it still has the given version; returns the
        result. It is carried out once, also if the response was lost. Raises WriteConflict if it has not."""

    async def merge(
        self,
        kind: Kind[T],
        meta: ObjectMeta,
        changes: Mapping[str, Any],
        *,
        subresource: str = "",
        strategic: bool = False,
    ) -> T:
        """Merges changes into the object of that name and uid, or a subresource of it, whatever its version; returns
        the result.

        As urgent as a binding; it may be sent twice. `strategic`: the changes are a strategic merge patch.
        """

    async def create(self, kind: Kind[T], namespace: str, thing: Mapping[str, Any]) -> T:
        """Creates an object (JSON) and returns it. It is sent once: if the response was lost, it may be there."""

    async def delete(self, kind: Kind[Any], meta: ObjectMeta) -> None:
        """Deletes the object of that name and uid; one that is gone is fine."""

    async def read(self, kind: Kind[T], namespace: str, name: str) -> T:
        """The object as the API server has it now."""


class OnBehalf(NamedTuple):
    """An object for which pods are evicted, where that is not a pod: the Events of victims name it."""

    kind: Kind[Any]
    meta: ObjectMeta


class Evictions(Protocol):
    """Evicts pods on behalf of a pod that needs their room. Works in the background."""

    def running_for(self, uid: str) -> bool:
        """Whether victims of this preemptor are still being evicted."""

    @property
    def running(self) -> tuple[str, ...]:
        """The uids of all such preemptors, in the order of uids."""

    def evicting(self, uid: str) -> bool:
        """Whether this pod is being evicted, though the API server may not say so yet."""

    def start(
        self,
        preemptor: Pod,
        node: str,
        victims: Sequence[Pod],
        *,
        reason: str = ...,
        behalf: OnBehalf | None = None,
    ) -> None:
        """Evicts the victims on a node; pods of lower priority lose their nomination to it.

        `reason`: what their condition DisruptionTarget says after the name of the scheduler. `behalf`: the object that
        the preemptor is a part of, if room is made for that as a whole.
        """


class EventRecorder:
    """Events for the owners of objects. `event_type` is NORMAL or WARNING; best effort, never blocks.

    This one drops them. An event that repeats all but the message of an earlier one becomes part of a series, which
    keeps its first message.
    """

    def event(
        self,
        kind: Kind[Any],
        meta: ObjectMeta,
        event_type: str,
        reason: str,
        message: str,
        *,
        action: str = "Scheduling",
        once: bool = False,
    ) -> None:
        """An event on any object, custom ones included. `once`: never part of a series."""

    def pod_event(self, pod: Pod, event_type: str, reason: str, message: str, *, action: str = "Scheduling") -> None:
        """An event on a pod, in the name of its profile."""


class Hypothesis(Protocol):
    """What would be if pods were evicted and others placed: a context, at the end of which all is as before."""

    def withdraw(self, pods: Iterable[Pod]) -> None:
        """The nominations of these pods do not count. To be called first."""

    def evict(self, pod: Pod) -> None:
        """Takes the pod off its row. Raises ValueError if it is on none."""

    def evict_all(self, pods: Iterable[Pod]) -> Turns[None]:
        """The same for many pods, in steps."""

    def place(self, pod: Pod, row: int, without: frozenset[str] = frozenset()) -> int:
        """Places the pod on the row if it fits: PASS. Otherwise the verdict, or -1 if there is none.

        The PreFilter plugins in `without` are not asked.
        """

    def checkpoint(self) -> Any:
        """The point that was reached."""

    def rollback(self, to: Any) -> None:
        """Takes back what was done since."""

    def roll_back(self, to: Any) -> Turns[None]:
        """The same in steps."""


class BeginHypothesis(Protocol):
    """Begins a hypothesis about members of one job."""

    def __call__(self, members: Set[str] = frozenset(), /) -> AbstractContextManager[Hypothesis]:
        """`members`: uids of those that were tried already."""


class Clock(Protocol):
    """A source of time."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    def wall(self) -> float:
        """Seconds since the epoch."""


class Count(Protocol):
    """Counts up a metric."""

    def __call__(self, metric: str, *labels: str) -> None:
        """One more of `metric`, a counter by its full name, with these label values."""


def uncounted(metric: str, *labels: str) -> None:
    """For evaluations without metrics."""


class Observe(Protocol):
    """Observes a value of a metric."""

    def __call__(self, metric: str, value: float, *labels: str) -> None:
        """`metric`: a histogram by its full name."""


def unobserved(metric: str, value: float, *labels: str) -> None:
    """For evaluations without metrics."""


Launch = Callable[[Coroutine[Any, Any, None]], None]
"""Has some work done in the background."""


def left_undone(work: Coroutine[Any, Any, None]) -> None:
    """For evaluations that only repeat decisions."""
    work.close()


def not_shown(kind: Kind[Any], thing: HasMetadata) -> None:
    """For evaluations that write nothing."""


class Pending(Protocol):
    """The pods that wait for a node, as the API server last showed them."""

    def of_uid(self, uid: str) -> Pod | None:
        """The one of this uid."""

    def named(self, namespace: str, name: str) -> Pod | None:
        """The one of this name, if it is in the queue."""

    def of_name(self, name: str) -> Sequence[Pod]:
        """Those of this name in all namespaces, in the order of uids."""


class NonePending:
    """For plugins without a queue."""

    def of_uid(self, uid: str) -> None:
        """None."""

    def named(self, namespace: str, name: str) -> None:
        """None."""

    def of_name(self, name: str) -> Sequence[Pod]:
        """None."""
        return ()


@dataclass(slots=True)
class Handle:
    """Given to every plugin at construction; one per profile.

    `profile` is the schedulerName. `waiting` are the pods that wait on Permit, to be allowed or rejected; `activate`
    has pods tried at once, wherever they wait (unless a PreEnqueue plugin refuses them). Replays repeat both when they
    are called within the steps of the scheduler: not in tasks of a plugin's own, nor in PreBind or Bind. Columns,
    facets and accountants are registered on `cluster` and `cluster.table` in the constructor; reasons are interned in
    `reasons`; `features` are the feature gates that are on, `own_replicas` the scheduler's own pods, never to be
    evicted. What a plugin knows that is more than a function of the objects there are it declares in `states`.
    `live_clock` is for PreBind, Bind and tasks, whose readings journals do not record; `clock` for all else.
    `pending` finds pods that wait, by what other objects say of them; `renounce` has pods that wait lose the room that
    they are promised, if they are. `show` takes in an object that the answer to a write had, as if its watch had
    delivered it; not one that the watch never delivered. `launch` has writes done for which no step waits. `filtering`,
    the profile's own filter chain for dry runs, and `hypothesis`, which begins one by its plugins, are there from the
    first scheduling cycle on.
    """

    profile: str
    cluster: ClusterState
    reasons: ReasonTable
    writes: Writes
    evictions: Evictions
    nominations: Nominations
    clock: Clock
    live_clock: Clock
    rng: Random
    events: EventRecorder
    waiting: WaitingPods
    activate: Callable[[Iterable[Pod]], None]
    timers: Timers
    virtual_pods: VirtualPods
    features: frozenset[str] = frozenset()
    own_replicas: Container[Pod] = ()
    count: Count = uncounted
    observe: Observe = unobserved
    show: Callable[[Kind[Any], Any], None] = not_shown
    launch: Launch = left_undone
    pending: Pending = field(default_factory=NonePending)
    renounce: Callable[[Iterable[Pod]], None] = lambda pods: None
    states: PluginStates = field(default_factory=PluginStates)
    topology_hint_providers: list[TopologyHintProvider] = field(default_factory=list)
    numa_alignment: NUMAAlignment | None = None
    reserved_allocations: list[ReservedAllocation] = field(default_factory=list)
    filtering: Filtering = field(init=False)
    hypothesis: BeginHypothesis = field(init=False)

    def deadlines(self, facet: int, due: Callable[[Sequence[int]], None] | None = None) -> RowDeadlines:
        """Times at which rows are to be touched in a facet; `due` is called with those that were."""
        return self.timers.deadlines(self.cluster.table, facet, due)
