"""What a Reservation holds on its node, and what its owners use of it (reservation spec 3.2).

The reserve pod counts in the node table what is left: so all other pods see the sum of what is reserved and used, and
nothing twice. Amounts are in the units of the node table, by the index of the resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from koordsched.cluster.facts import PodFact, PodFacts
from koordsched.cluster.pod import Pod
from koordsched.cluster.ports import HostPort, shape_ports
from koordsched.cluster.resources import CPU, DEFAULT_MEMORY, DEFAULT_MILLI_CPU, MEMORY, Requests
from koordsched.plugins.reservation.kinds import ALIGNED, AVAILABLE, RESTRICTED, Reservation
from koordsched.plugins.reservation.owners import Owners

Amounts = dict[int, int]
"""Resource index -> milli-CPU, bytes or a count."""


class Terms:
    """What a Reservation says of itself, read once.

    `slots`: how many pods it holds room for, None for any number. `inner`: what owners never get. `names`: the
    resources that owners use of it: those that it holds, or some of them by restricted options. `order`: None if it has
    none. `problem`: why no pod may use it, "" if pods may.
    """

    __slots__ = ("inner", "names", "order", "owners", "problem", "slots")

    def __init__(
        self,
        owners: Owners | None,
        names: frozenset[int],
        inner: Mapping[int, int],
        slots: int | None,
        order: int | None,
        problem: str = "",
    ) -> None:
        self.owners = owners
        self.names = names
        self.inner = inner
        self.slots = slots
        self.order = order
        self.problem = problem


class ReservationInfo:
    """A Reservation that holds room, or waits for it.

    `reservation`: the newest object; `full`, `full_facts`: what the reserve pod would count if nothing was in use.
    `owners`: by uid, the pods on the row of the reserve pod that use it. `counted`: whether the reserve pod counts
    against its row at the moment, hypotheses included.
    """

    def __init__(
        self,
        reservation: Reservation,
        pod: Pod,
        terms: Terms,
        known: Mapping[str, ReservationInfo],
    ) -> None:
        """`known`: all by uid; an owner that acts as a Reservation itself uses what it would count if nothing of it was
        in use."""
        self.owners: dict[str, Pod] = {}
        self._known = known
        self._allocated: Amounts | None = None
        self.counted = False
        self.acts = not pod.virtual
        """Whether it is a pod, which runs beside those who use another Reservation."""
        self.taken = False
        """Whether it is used up, whatever owners say: a pod that acts as a Reservation names one itself."""
        self.renew(reservation, pod, terms)

    def renew(self, reservation: Reservation, pod: Pod, terms: Terms) -> None:
        """Takes over a new version; `pod`: the reserve pod as read from it."""
        self.say(reservation, terms)
        self.priority = pod.priority
        self.full: Requests = pod.requests
        self.full_facts: tuple[object, ...] = pod.facts
        self.ports: tuple[HostPort, ...] = shape_ports(pod.shape)
        self.allocatable: Amounts = dict(pod.requests.amounts)
        self.owners_changed()

    def say(self, reservation: Reservation, terms: Terms) -> None:
        """Takes over what a new version says, but for what it holds.

        `uid`: of the reserve pod as well; `once`: whether the first owner consumes it; `available`: whether it has a
        node, by the API server's word; `unschedulable`: whether it takes no new owners but those that tolerate it;
        `bound_policy`: whether owners are bound to a policy: Reservations that are do not share a node with others;
        `key`: the order of equals, by creation, then name.
        """
        meta, spec, status = reservation.metadata, reservation.spec, reservation.status
        self.reservation = reservation
        self.terms = terms
        self.uid: str = meta.uid
        self.name: str = meta.name
        self.once: bool = spec.once
        self.available = status.phase == AVAILABLE and bool(status.node_name)
        self.unschedulable = spec.unschedulable or meta.deletion_timestamp is not None
        self.restricted = spec.allocate_policy == RESTRICTED
        self.bound_policy = spec.allocate_policy in (ALIGNED, RESTRICTED)
        self.key = (meta.creation_timestamp or "", meta.name)

    @property
    def matchable(self) -> bool:
        """Whether a pod may use it now."""
        return self.available and not self.terms.problem and not (self.once and (self.owners or self.taken))

    # --- what is in use ----------------------------------------------------------------------------

    def owners_changed(self) -> None:
        """To be called after `owners` changed, or what one of them uses."""
        self._allocated = None

    def join(self, pod: Pod) -> None:
        """The pod, or a newer version of it, is an owner from now on: counted by itself if it was none before."""
        known = pod.uid in self.owners
        self.owners[pod.uid] = pod
        if known:
            self.owners_changed()
        elif self._allocated is not None:
            self._use(pod, self._allocated)

    @contextmanager
    def used_by(self, pods: Sequence[Pod]) -> Iterator[None]:
        """Inside, these are owners, too."""
        more = [pod for pod in pods if pod.uid not in self.owners]
        for pod in more:
            self.join(pod)
        try:
            yield
        finally:
            for pod in more:
                del self.owners[pod.uid]
            if more:
                self.owners_changed()

    @property
    def allocated(self) -> Amounts:
        """What owners use of the resources that it gives them; it may be more than there is. Read only."""
        used = self._allocated
        if used is None:
            used = self._allocated = {}
            for pod in self.owners.values():
                self._use(pod, used)
        return used

    def _use(self, pod: Pod, used: Amounts) -> None:
        acting, names = self._known.get(pod.uid), self.terms.names
        for index, amount in (pod.requests if acting is None else acting.full).amounts:
            if index in names:
                used[index] = used.get(index, 0) + amount

    def left(self, index: int) -> int:
        """What the reserve pod counts of a resource."""
        held = self.allocatable.get(index, 0)
        if index not in self.terms.names or (used := self.allocated.get(index, 0)) <= 0:
            return held
        return held - used if held > used else 0

    def available_to_owners(self, index: int) -> int:
        """What an owner may still get of a resource."""
        used = self.allocated.get(index, 0)  # of what restricted options leave out, owners count as using nothing
        return max(0, self.allocatable.get(index, 0) - used - self.terms.inner.get(index, 0))

    def remaining(self, facts: PodFacts) -> tuple[Requests, tuple[object, ...]]:
        """What is left for the reserve pod to count: requests, and facts (allocations of devices and the like)."""
        if not self.owners:
            return self.full, self.full_facts
        full, used = self.full, self.allocated
        amounts = tuple([(index, left) for index, _ in full.amounts if (left := self.left(index))])
        # Of what they do not request, owners count a default for themselves.
        cpu = max(0, full.nonzero[CPU] - used.get(CPU, DEFAULT_MILLI_CPU))
        memory = max(0, full.nonzero[MEMORY] - used.get(MEMORY, DEFAULT_MEMORY))
        return Requests(amounts, (cpu, memory), full.names), self._facts_left(facts)

    def _whole(self, pod: Pod, fact: PodFact[Any]) -> Any:
        acting = self._known.get(pod.uid)
        if acting is None:
            return fact.of(pod)
        return acting.full_facts[fact.index] if acting.full_facts else None

    def _facts_left(self, facts: PodFacts) -> tuple[object, ...]:
        if not self.full_facts:
            return ()
        left: list[Any] = list(self.full_facts)
        for fact in facts:
            held = left[fact.index]
            if held is None or fact.less is None:
                continue
            used = [value for pod in self.owners.values() if (value := self._whole(pod, fact)) is not None]
            if used:
                left[fact.index] = fact.shared(fact.less(held, used))
        return tuple(left) if any(value is not None for value in left) else ()
