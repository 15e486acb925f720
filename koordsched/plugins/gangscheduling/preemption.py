"""Room for a pod group as a whole, with the gate WorkloadAwarePreemption (coscheduling spec, Appendix A).

The group is tried with all less important pods of the cluster gone (`scheduling.groupcycle`). Then as many of these
come back as leave the members their places, the most important first. What is evicted at once is a *unit*: a pod, or
all pods of a group whose disruptionMode is PodGroup.

Upstream tries unit after unit on the whole cluster. Here those far from all members come back at once, the others row
by row, and where a unit is on several rows, with these together. That is the same unless units on other rows decide
whether members fit (spread, anti-affinity, quotas): if the members do not fit in the end, all is done again with the
cluster as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import numpy as np

from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle, Hypothesis, OnBehalf
from koordsched.framework.interface import PostFilterResult
from koordsched.framework.jobs import GroupPreemption
from koordsched.framework.status import PASS, SUCCESS
from koordsched.plugins.gangscheduling import messages
from koordsched.plugins.gangscheduling.cache import PodGroupCache
from koordsched.plugins.shared.podgroups import POD_GROUPS, PodGroup
from koordsched.plugins.shared.preemption.budgets import Budgets
from koordsched.plugins.shared.preemption.candidates import started_at
from koordsched.plugins.shared.preemption.victims import victim_table
from koordsched.plugins.shared.preemption.visibility import why_not

GATE = "WorkloadAwarePreemption"
TOPOLOGY_GATE = "TopologyAwareWorkloadScheduling"

Places = Sequence[tuple[Pod, int]]
"""Members with their rows, in the order in which they are placed."""


@dataclass(slots=True, eq=False)
class Unit:
    """Pods that are evicted at once; `name`: of the pod or group, `namespace/name`; `rows`: where they are."""

    name: str
    pods: Sequence[Pod]
    priority: int
    is_group: bool = False
    rows: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        # In a hypothesis without them they are nowhere.
        self.rows = frozenset(pod.row for pod in self.pods)

    def importance(self) -> tuple[int, bool, int, float, str]:
        """Smaller for what is more important: higher priority, then groups before pods, larger groups before smaller
        ones, then what has run for longer.
        """
        size = len(self.pods) if self.is_group else 0
        return -self.priority, not self.is_group, -size, min(map(started_at, self.pods)), self.name


class RoomsForGroups:
    """Whether, and how, room is made for groups of one profile."""

    def __init__(self, handle: Handle, cache: PodGroupCache) -> None:
        self._handle = handle
        self._cache = cache
        self.as_a_whole = GATE in handle.features
        self._by_placement = TOPOLOGY_GATE in handle.features
        self._budgets = handle.cluster.shared(Budgets)
        self._victims = victim_table(handle.cluster)

    def not_for_members(self, group: PodGroup) -> str:
        """Why no room is made for single members; "" if it is."""
        if self.as_a_whole:
            return messages.AS_A_WHOLE
        return messages.BY_PLACEMENT if self._by_placement and group.topology_key else ""

    def of(self, group: PodGroup, first: Pod) -> RoomForGroup | None:
        """What makes room for the group as a whole; None if nothing does. `first`: see GroupJob."""
        if not self.as_a_whole:
            return None
        return RoomForGroup(self._handle, group, first, partial(self._units, group), self._budgets)

    def is_being_made(self, group_id: str) -> bool:
        """Whether pods are being evicted for the group."""
        return any(self._cache.is_member(uid, group_id) for uid in self._handle.evictions.running)

    def _units(self, preemptor: PodGroup) -> list[Unit]:
        """What is less important than the group, and may be evicted."""
        cluster, priority = self._handle.cluster, preemptor.priority
        may_leave = self._victims.may_leave
        units: list[Unit] = []
        of_groups: set[str] = set()
        for group_id, members in self._cache.members.items():
            group = self._cache.group(group_id)
            if group is None or (group_id != preemptor.id and not group.goes_as_a_whole):
                continue
            pods = [pod for uid in members.placed if (pod := cluster.assigned.get(uid)) is not None and pod.row >= 0]
            of_groups.update(pod.uid for pod in pods)
            if pods and group_id != preemptor.id and group.priority < priority and all(map(may_leave, pods)):
                units.append(Unit(group_id, sorted(pods, key=lambda pod: pod.name), group.priority, is_group=True))
        rows = np.flatnonzero(cluster.table.alive.data[: cluster.table.size])
        now = self._handle.clock.wall()
        for row in rows[self._victims.counts(rows, priority, now) > 0].tolist():
            pods = self._victims.pods(row, priority, now)
            units.extend(Unit(pod.key, (pod,), pod.priority) for pod in pods if pod.uid not in of_groups)
        return units


class RoomForGroup(GroupPreemption):
    """Room for one group, in one attempt."""

    def __init__(
        self, handle: Handle, group: PodGroup, first: Pod, find: Callable[[], list[Unit]], budgets: Budgets
    ) -> None:
        """`find()`: what is less important and may be evicted. `first`: the member in whose name pods are evicted."""
        self._handle = handle
        self._group = group
        self._first = first
        self._find = find
        self._budgets = budgets
        self._units: list[Unit] = []
        self._members: Sequence[Pod] = ()

    def victims(self, members: Sequence[Pod], *, enabled: bool) -> Sequence[Pod] | str:
        """See GroupPreemption."""
        self._members = members
        if refusal := self._refusal(enabled):
            return refusal
        self._units = sorted(self._find(), key=Unit.importance)
        return _pods(self._units) if self._units else messages.NO_VICTIMS

    def _refusal(self, enabled: bool) -> str:
        if not enabled:
            return messages.NOT_ENABLED
        if self._group.topology_key:
            return messages.CONSTRAINED
        if any(pod.shape.never_preempts for pod in self._members):
            return messages.NEVER
        if hidden := why_not(self._handle.cluster):
            return hidden
        return messages.VICTIMS_LEAVE if self._victims_leave() else ""

    def _victims_leave(self) -> bool:
        """Whether pods that were evicted are still on a node that a member is nominated to."""
        cluster, nominations = self._handle.cluster, self._handle.nominations
        nodes = {nominations.node_of(pod.uid) or pod.nominated_node for pod in self._members}
        rows = [row for node in nodes if (row := cluster.table.row_of.get(node)) is not None]
        evicting, priority = self._handle.evictions.evicting, self._group.priority
        return any(
            other.priority < priority and (other.preempted or evicting(other.uid))
            for row in rows
            for other in cluster.pods_on(row).values()
        )

    # --- what may stay ------------------------------------------------------------------------------

    def choose(self, places: Places) -> PostFilterResult:
        """See GroupPreemption."""
        going = sorted(self._going(places), key=Unit.importance)
        names = self._handle.cluster.table.names
        return PostFilterResult(
            SUCCESS,
            victims=tuple(_pods(going)),
            actuate=partial(self._evict, _by_node(going, names)),
            nominations={pod.uid: names[row] for pod, row in places},
        )

    def _evict(self, victims: Iterable[tuple[str, Sequence[Pod]]]) -> None:
        behalf = OnBehalf(POD_GROUPS, self._group.metadata)
        for node, pods in victims:
            self._handle.evictions.start(self._first, node, pods, reason=messages.EVICTED, behalf=behalf)

    def _in_order(self) -> list[Unit]:
        """The units in the order in which they come back: first those whose eviction breaks a disruption budget."""
        pods = _pods(self._units)
        broken = {pod.uid for pod, breaks in zip(pods, self._budgets.broken_by(pods), strict=True) if breaks}
        return sorted(self._units, key=lambda unit: broken.isdisjoint(pod.uid for pod in unit.pods))

    def _going(self, places: Places) -> list[Unit]:
        units, taken = self._in_order(), {row for _, row in places}
        near = [unit for unit in units if not taken.isdisjoint(unit.rows)]
        with self._handle.hypothesis() as trial:
            trial.withdraw(self._members)
            attempt = _Trial(trial, places)
            if attempt.fits(near):
                attempt.begin_again()
                going: list[Unit] = []
                for some, of_these in _apart(near, places):
                    part = _Trial(trial, of_these)
                    left = _left(some, part.fits)
                    part.fits(left)
                    going.extend(left)
                if attempt.fits(going):
                    return going
            return _left(units, attempt.fits)


class _Trial:
    """Whether members fit, from some point of a hypothesis on."""

    def __init__(self, trial: Hypothesis, places: Places) -> None:
        self._trial = trial
        self._start = trial.checkpoint()
        self._places = places

    def begin_again(self) -> None:
        """All units are there, and no member is placed."""
        self._trial.rollback(self._start)

    def fits(self, going: Iterable[Unit]) -> bool:
        """Whether the members fit with just these units gone; they are placed, and the units gone, afterwards."""
        self.begin_again()
        trial = self._trial
        for pod in _pods(going):
            trial.evict(pod)
        return all(trial.place(pod, row) == PASS for pod, row in self._places)


def _left(units: Sequence[Unit], fits: Callable[[Sequence[Unit]], bool]) -> list[Unit]:
    """Those that do not come back, if all others come back in their order as far as members fit beside them.

    Halves are tried before single units: what fits beside all of them fits beside some.
    """
    left: list[Unit] = []

    def settle(some: Sequence[Unit], later: Sequence[Unit]) -> None:
        if fits([*left, *later]):
            return
        if len(some) == 1:
            left.append(some[0])
            return
        middle = len(some) // 2
        settle(some[:middle], [*some[middle:], *later])
        settle(some[middle:], later)

    if units:
        settle(units, ())
    return left


def _apart(units: Sequence[Unit], places: Places) -> Iterable[tuple[list[Unit], list[tuple[Pod, int]]]]:
    """The units in sets that share no row, each in order, with the members on the rows of the set."""
    root: dict[int, int] = {}

    def root_of(row: int) -> int:
        while (above := root.setdefault(row, row)) != row:
            row = above
        return row

    for unit in units:
        first, *others = unit.rows
        for row in others:
            root[root_of(row)] = root_of(first)
    found: dict[int, tuple[list[Unit], list[tuple[Pod, int]]]] = {}
    for unit in units:
        found.setdefault(root_of(min(unit.rows)), ([], []))[0].append(unit)
    for pod, row in places:
        if (part := found.get(root_of(row))) is not None:
            part[1].append((pod, row))
    return found.values()


def _pods(units: Iterable[Unit]) -> list[Pod]:
    return list(chain.from_iterable(unit.pods for unit in units))


def _by_node(units: Iterable[Unit], names: Sequence[str]) -> list[tuple[str, list[Pod]]]:
    found: dict[str, list[Pod]] = {}
    for pod in _pods(units):
        found.setdefault(names[pod.row], []).append(pod)
    return list(found.items())
