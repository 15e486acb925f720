"""Reserved room that the pod of a cycle may use: what plugins with allocations have to know of it.

Sums (requests, ports) need none of this: the overlay of the cycle takes the reserve pods off their rows. A plugin that
gives out single things (CPUs, devices) is asked about each reservation by itself, because a pod uses one alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState

if TYPE_CHECKING:
    from koordsched.cluster.shape import PodShape
    from koordsched.framework.interface import CycleState
    from koordsched.framework.status import Status


class Reserved(NamedTuple):
    """A reservation that the pod of a cycle may use.

    `pod`: the reserve pod, whose requests and facts are what is left of the reservation; `facts`: those of the whole.
    `restricted`: of what it reserves, the pod may use nothing else. `entire`: the pod must be given all single things
    of it, for it takes them over (pre-allocation, where `pod` is the running pod).
    """

    pod: Pod
    facts: tuple[object, ...]
    restricted: bool
    entire: bool = False

    @property
    def confines(self) -> bool:
        """Whether the pod may be given no other single things of the kinds that it holds: one that takes over what a
        running pod has may have more than that."""
        return self.restricted and not self.entire


class UsableReservations(Protocol):
    """Those that the pod of a cycle may use, by row."""

    required: bool
    """Whether the pod goes nowhere without one."""
    ignored: bool
    """Whether the pod takes what is reserved, whomever for, and uses none."""

    def on(self, row: int) -> Sequence[Reserved]:
        """Those on a row."""

    def chosen(self, row: int) -> Reserved | None:
        """The one that the pod would use on the row; None if none."""

    def alone(self, row: int, reserved: Reserved | None) -> AbstractContextManager[None]:
        """Inside, the row reads as if of all of them this one were away, and no other; None: as if none were."""


class ReservedAllocation(Protocol):
    """A plugin that gives out single things: it registers itself in `Handle.reserved_allocations`.

    Its answers depend on the shape of the pod, on the row and on the reservation alone: they are kept until the row
    changes.
    """

    @property
    def name(self) -> str: ...

    def concerns(self, shape: PodShape, row: int) -> bool:
        """Whether pods of the shape would be given anything on the row; otherwise the plugin is not asked."""

    def allocates_from(self, cycle: CycleState, pod: Pod, row: int, reserved: Reserved | None) -> Status:
        """Whether the pod could be given what it asks for if it used this reservation; None: none.

        Asked inside `UsableReservations.alone`. What the reservation does not hold, the node has to have, beside what
        others reserve.
        """

    def score_reserved(self, cycle: CycleState, pod: Pod, row: int, reserved: Reserved) -> int:
        """How good a use of the reservation the pod is, 0 or more; compared with others on the row. Asked likewise."""

    def confined(self, row: int, reserved: Reserved) -> AbstractContextManager[None]:
        """Inside, and inside of what-ifs, the row reads as if all were in use that a pod must not be given which uses
        this reservation: whatever else there is of the kinds of things that it holds.

        Asked of those that confine, while they are away.
        """


class ScoresReserved(ABC):
    """A score plugin by (shape, row) whose score of a row is another one if the pod uses a reservation there."""

    @abstractmethod
    def score_using(self, cycle: CycleState, pod: Pod, row: int, reserved: Reserved) -> int | None:
        """The raw score of the row if the pod uses this reservation; None: as without. Asked inside
        `UsableReservations.alone`."""


@contextmanager
def away(cluster: ClusterState, row: int, reserved: Iterable[Reserved]) -> Iterator[None]:
    """Inside, the row reads as if these reservations, which are on it, were not."""
    with cluster.what_if() as hypothesis:
        for each in reserved:
            hypothesis.remove(each.pod, row)
        yield


@contextmanager
def confined(allocations: Iterable[ReservedAllocation], row: int, reserved: Reserved | None) -> Iterator[None]:
    """Inside, the row reads as if all were in use that a pod must not be given which uses this reservation."""
    with ExitStack() as stack:
        if reserved is not None and reserved.confines:
            for each in allocations:
                stack.enter_context(each.confined(row, reserved))
        yield


@contextmanager
def as_reserved(cluster: ClusterState, usable: UsableReservations, row: int) -> Iterator[Reserved | None]:
    """Inside, the row reads as a Reserve plugin has to see it: without the reservation that the pod uses, which is
    what it gets; without any for a pod that ignores them."""
    if usable.ignored:
        with away(cluster, row, usable.on(row)):
            yield None
        return
    chosen = usable.chosen(row)
    with usable.alone(row, chosen):
        yield chosen
