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

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle, Hypothesis, OnBehalf
from koordsched.framework.interface import PostFilterResult
from koordsched.framework.jobs import GroupPreemption
from koordsched.framework.status import PASS, SUCCESS
from koordsched.framework.turns import STEP, Turns, batches, ordered
from koordsched.plugins.gangscheduling import messages
from koordsched.plugins.gangscheduling.cache import PodGroupCache
from koordsched.plugins.shared.podgroups import POD_GROUPS, PodGroup
from koordsched.plugins.shared.preemption.budgets import Budgets
from koordsched.plugins.shared.preemption.candidates import started_at
from koordsched.plugins.shared.preemption.namespacebudgets import Left
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


@dataclass(slots=True, eq=False)
class _Candidates:
    """Units that may be evicted: `groups`, and `single` pods by row. `of_groups`: uids of pods that are no units
    themselves.
    """

    groups: list[Unit] = field(default_factory=list)
    single: dict[int, list[Pod]] = field(default_factory=dict)
    of_groups: set[str] = field(default_factory=set)

    def pods(self) -> list[Pod]:
        """All that may be evicted."""
        return [*_pods(self.groups), *chain.from_iterable(self.single.values())]

    def units(self, pods: Iterable[Pod]) -> list[Unit]:
        """Single pods as units."""
        return [Unit(pod.key, (pod,), pod.priority) for pod in pods]

    def everywhere(self, wanted: Callable[[Pod], bool] | None = None) -> Turns[list[Unit]]:
        """All units, or those with a pod that is wanted."""
        found: list[Unit] = []
        for some in batches(self.groups):
            found.extend(unit for unit in some if wanted is None or any(map(wanted, unit.pods)))
            yield
        for rows in batches(self.single.values()):
            pods = chain.from_iterable(rows)
            found.extend(self.units(pods if wanted is None else filter(wanted, pods)))
            yield
        return found

    def on(self, rows: set[int]) -> Turns[list[Unit]]:
        """The units that have a pod on one of these rows."""
        found = [unit for unit in self.groups if not rows.isdisjoint(unit.rows)]
        for some in batches(sorted(rows)):
            found.extend(self.units(chain.from_iterable(self.single.get(row, ()) for row in some)))
            yield
        return found


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
        return RoomForGroup(self._handle, group, first, partial(self._candidates, group), self.settle, self._budgets)

    def is_being_made(self, group_id: str) -> bool:
        """Whether pods are being evicted for the group."""
        return any(self._cache.is_member(uid, group_id) for uid in self._handle.evictions.running)

    def _candidates(self, preemptor: PodGroup) -> Turns[_Candidates]:
        """What is less important than the group, and may be evicted."""
        found = yield from self._groups(preemptor)
        rows, now = self._rows(), self._handle.clock.wall()
        for at in range(0, len(rows), STEP):
            some = rows[at : at + STEP]
            for row, pods in zip(some.tolist(), self._victims.pods_of(some, preemptor.priority, now), strict=True):
                if single := [pod for pod in pods if pod.uid not in found.of_groups]:
                    found.single[row] = single
            yield
        return found

    def settle(self) -> Turns[None]:
        """Reads again the pods of all nodes."""
        return self._victims.read(self._rows(), self._handle.clock.wall())

    def _rows(self) -> RowArray:
        """All nodes."""
        table = self._handle.cluster.table
        return np.flatnonzero(table.alive.data[: table.size])

    def _groups(self, preemptor: PodGroup) -> Turns[_Candidates]:
        """Of these the groups; pods that do not go by themselves."""
        assigned, may_leave = self._handle.cluster.assigned, self._victims.may_leave
        found = _Candidates()
        for group_id, members in self._cache.members.items():
            group = self._cache.group(group_id)
            if group is None or (group_id != preemptor.id and not group.goes_as_a_whole):
                continue
            pods = [pod for uid in members.placed if (pod := assigned.get(uid)) is not None and pod.row >= 0]
            found.of_groups.update(pod.uid for pod in pods)
            if pods and group_id != preemptor.id and group.priority < preemptor.priority and all(map(may_leave, pods)):
                pods.sort(key=lambda pod: pod.name)
                found.groups.append(Unit(group_id, pods, group.priority, is_group=True))
            yield
        return found


class RoomForGroup(GroupPreemption):
    """Room for one group, in one attempt."""

    def __init__(
        self,
        handle: Handle,
        group: PodGroup,
        first: Pod,
        find: Callable[[], Turns[_Candidates]],
        settle: Callable[[], Turns[None]],
        budgets: Budgets,
    ) -> None:
        """`find()`: what is less important and may be evicted. `settle()`: see GroupPreemption. `first`: the member in
        whose name pods are evicted.
        """
        self._handle = handle
        self._group = group
        self._first = first
        self._find = find
        self._settle = settle
        self._budgets = budgets
        self._candidates = _Candidates()
        self._broken: set[str] = set()
        self._members: Sequence[Pod] = ()

    def victims(self, members: Sequence[Pod], *, enabled: bool) -> Turns[Sequence[Pod] | str]:
        """See GroupPreemption."""
        self._members = members
        if refusal := self._refusal(enabled):
            return refusal
        self._candidates = yield from self._find()
        return self._candidates.pods() or messages.NO_VICTIMS

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

    def settle(self) -> Turns[None]:
        """See GroupPreemption."""
        return self._settle()

    # --- what may stay ------------------------------------------------------------------------------

    def choose(self, places: Places) -> Turns[PostFilterResult]:
        """See GroupPreemption."""
        self._broken = yield from self._breaking()
        found = yield from self._going(places)
        going = yield from ordered(found, Unit.importance)
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

    def _breaking(self) -> Turns[set[str]]:
        """uids of the pods whose eviction breaks a disruption budget, counted down from the most important unit on."""
        broken: set[str] = set()
        if not self._budgets:
            return broken
        protected = yield from self._candidates.everywhere(self._budgets.protects)
        left: Left = {}
        for some in batches((yield from ordered(protected, Unit.importance))):
            pods = _pods(some)
            broken.update(
                pod.uid for pod, breaks in zip(pods, self._budgets.broken_by(pods, left), strict=True) if breaks
            )
            yield
        return broken

    def _in_order(self, units: list[Unit]) -> Turns[list[Unit]]:
        """The units in the order in which they come back: first those whose eviction breaks a disruption budget."""
        found = yield from ordered(units, Unit.importance)
        return sorted(found, key=lambda unit: self._broken.isdisjoint(pod.uid for pod in unit.pods))

    def _going(self, places: Places) -> Turns[list[Unit]]:
        near = yield from self._in_order((yield from self._candidates.on({row for _, row in places})))
        with self._handle.hypothesis() as trial:
            trial.withdraw(self._members)
            attempt = _Trial(trial, places)
            if (yield from attempt.fits(near)):
                yield from attempt.begin_again()
                going: list[Unit] = []
                for some, of_these in (yield from _apart(near, places)):
                    part = _Trial(trial, of_these)
                    left = yield from _left(some, part.fits)
                    yield from part.fits(left)
                    going.extend(left)
                if (yield from attempt.fits(going)):
                    yield from attempt.begin_again()
                    return going
            units = yield from self._in_order((yield from self._candidates.everywhere()))
            found = yield from _left(units, attempt.fits)
            yield from attempt.begin_again()
            return found


class _Trial:
    """Whether members fit, from some point of a hypothesis on."""

    def __init__(self, trial: Hypothesis, places: Places) -> None:
        self._trial = trial
        self._start = trial.checkpoint()
        self._places = places

    def begin_again(self) -> Turns[None]:
        """All units are there, and no member is placed."""
        return self._trial.roll_back(self._start)

    def fits(self, going: Iterable[Unit]) -> Turns[bool]:
        """Whether the members fit with just these units gone; they are placed, and the units gone, afterwards."""
        yield from self.begin_again()
        yield from self._trial.evict_all(_pods(going))
        for pod, row in self._places:
            if self._trial.place(pod, row) != PASS:
                return False
            yield
        return True


def _left(units: Sequence[Unit], fits: Callable[[Sequence[Unit]], Turns[bool]]) -> Turns[list[Unit]]:
    """Those that do not come back, if all others come back in their order as far as members fit beside them.

    Halves are tried before single units: what fits beside all of them fits beside some.
    """
    left: list[Unit] = []

    def settle(some: Sequence[Unit], later: Sequence[Unit]) -> Turns[None]:
        if (yield from fits([*left, *later])):
            return
        if len(some) == 1:
            left.append(some[0])
            return
        middle = len(some) // 2
        yield from settle(some[:middle], [*some[middle:], *later])
        yield from settle(some[middle:], later)

    if units:
        yield from settle(units, ())
    return left


def _apart(units: Sequence[Unit], places: Places) -> Turns[list[tuple[list[Unit], list[tuple[Pod, int]]]]]:
    """The units in sets that share no row, each in order, with the members on the rows of the set."""
    root: dict[int, int] = {}

    def root_of(row: int) -> int:
        while (above := root.setdefault(row, row)) != row:
            row = above
        return row

    for some in batches(units):
        for unit in some:
            first, *others = unit.rows
            for row in others:
                root[root_of(row)] = root_of(first)
        yield
    found: dict[int, tuple[list[Unit], list[tuple[Pod, int]]]] = {}
    for some in batches(units):
        for unit in some:
            found.setdefault(root_of(min(unit.rows)), ([], []))[0].append(unit)
        yield
    for members in batches(places):
        for pod, row in members:
            if (part := found.get(root_of(row))) is not None:
                part[1].append((pod, row))
        yield
    return list(found.values())


def _pods(units: Iterable[Unit]) -> list[Pod]:
    return list(chain.from_iterable(unit.pods for unit in units))


def _by_node(units: Iterable[Unit], names: Sequence[str]) -> list[tuple[str, list[Pod]]]:
    found: dict[str, list[Pod]] = {}
    for pod in _pods(units):
        found.setdefault(names[pod.row], []).append(pod)
    return list(found.items())
