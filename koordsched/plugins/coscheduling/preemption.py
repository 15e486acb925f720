"""Job preemption: room for all pending members of a group at once, or for none (coscheduling spec 3.8).

Members are tried on nodes whose less important pods are gone, in the order of what evicting these costs; each sees
where those before it went. Of the pods of a chosen node as many come back as fit beside the members. A gang that would
be left with fewer than its minimum goes as a whole.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.framework.diagnosis import refusals
from koordsched.framework.handle import Handle, Hypothesis
from koordsched.framework.interface import CycleState, PostFilterResult
from koordsched.framework.status import NO_NODE, PASS, SUCCESS, Code, Codes, Status
from koordsched.framework.turns import Turns, batches
from koordsched.plugins.coscheduling.cache import GangCache
from koordsched.plugins.coscheduling.gang import Gang
from koordsched.plugins.coscheduling.kinds import DISABLE_PREEMPTIBLE, QUOTA_PREEMPTIBLE
from koordsched.plugins.coscheduling.planning import NO_PENDING, TopologyPlans
from koordsched.plugins.coscheduling.round import Round
from koordsched.plugins.coscheduling.topology.gathering import Gathering
from koordsched.plugins.coscheduling.victimcosts import RowCosts, VictimCosts, reprieve_order
from koordsched.plugins.shared.preemption.budgets import Budgets
from koordsched.plugins.shared.preemption.search import Search
from koordsched.plugins.shared.preemption.victims import victim_table
from koordsched.plugins.shared.preemption.visibility import why_not

NEVER = "not eligible due to preemptionPolicy=Never."
TERMINATING = "not eligible due to terminating pod on the nominated node."
NO_NODES = "no nodes available"
NO_VICTIMS = "no potential victims"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
_PREFIX = "preemption: "
SUCCESSFUL, NO_ROOM = "preempt success", "no room for the job"
"""Results in metrics, besides those above."""


def spares(pod: Pod) -> bool:
    """Whether a pod is never a victim, by its labels."""
    labels = pod.labels.labels
    return labels.get(DISABLE_PREEMPTIBLE) == "true" or labels.get(QUOTA_PREEMPTIBLE) == "false"


@dataclass(slots=True)
class _Room:
    """What is made room for on a row: the members that go there, and the pods that leave for them."""

    row: int
    members: list[Pod] = field(default_factory=list)
    victims: list[Pod] = field(default_factory=list)


@dataclass(slots=True)
class _Job:
    """The members that need room. `cycle`: of the one for which none was found, the trigger; `codes`: why, by row."""

    cycle: CycleState
    members: list[Pod]
    codes: Codes
    around: Round | None
    gathering: Gathering | None

    @property
    def trigger(self) -> Pod:
        return self.cycle.pod

    @property
    def name(self) -> str:
        """As messages name it: the group, or the pod of no gang."""
        return self.around.group.id if self.around is not None else self.trigger.key


class _Refused(Exception):
    """No pod is evicted. `final`: the members lose their nominations."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class _Vetoed(Exception):
    """These pods must stay: other members of their gang would have to go with them, and may not."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        super().__init__()
        self.uids = {pod.uid for pod in pods}


class JobPreemption:
    """Preemption for the jobs of one profile; a pod of no gang is a job of one."""

    def __init__(
        self, name: str, handle: Handle, cache: GangCache, plans: TopologyPlans, *, honors_budgets: bool = False
    ) -> None:
        """`name`: of the plugin. `honors_budgets`: whether disruption budgets decide which pods are evicted."""
        self._handle = handle
        self._cluster = handle.cluster
        self._cache = cache
        self._plans = plans
        self._victims = victim_table(handle.cluster, spares)
        self._search = Search(handle, spares)
        self._without = frozenset({name})
        self._budgets = handle.cluster.shared(Budgets) if honors_budgets else None
        self._costs = VictimCosts(handle, cache, self._victims, self._budgets)
        reasons = handle.reasons
        self._no_victims = reasons.intern(name, Code.UNRESOLVABLE, NO_VICTIMS)
        self._not_helpful = reasons.intern(name, Code.UNRESOLVABLE, NOT_HELPFUL)

    def post_filter(
        self, cycle: CycleState, around: Round | None, gathering: Gathering | None, codes: Codes
    ) -> Turns[PostFilterResult]:
        """Once per round, for the first member that has no place; in steps, between which changes must wait."""
        pod = cycle.pod
        if around is not None and around.preempted_by is not None:
            text = f"preemption already attempted by {around.preempted_by.key} with message {around.preemption_message}"
            return PostFilterResult(Status(Code.UNSCHEDULABLE, (_PREFIX + text,)))
        members = around.pending() if around is not None else [pod]
        job = _Job(cycle, members, codes, around, gathering)
        self._cache.preempting("")
        try:
            self._check(job)
            rooms = yield from self._rooms(job)
        except _Refused as refused:
            message = str(refused)
            self._cache.preempting(NO_ROOM if refused.final else message)
            if around is not None:
                around.preempted_by, around.preemption_message = pod, message
                if refused.final:
                    around.rejection_message = message
            cleared = {each.uid: "" for each in members} if refused.final else {}
            status = Status(Code.UNSCHEDULABLE, (_PREFIX + message,))
            return PostFilterResult(status, "" if refused.final else None, nominations=cleared)
        self._cache.preempting(SUCCESSFUL)
        return self._success(job, rooms)

    def _success(self, job: _Job, rooms: Sequence[_Room]) -> PostFilterResult:
        names = self._cluster.table.names
        nominations = {pod.uid: names[room.row] for room in rooms for pod in room.members}
        placed = job.around.placed() if job.around is not None else []
        nominations.update((pod.uid, pod.node) for pod in placed)
        message = f"preempt success, alreadyWaitingForBound: {len(placed)}/{len(placed) + len(job.members)}"
        if job.around is not None:
            job.around.preempted_by, job.around.preemption_message = job.trigger, message
            job.around.rejection_message = message
        victims = tuple(victim for room in rooms for victim in room.victims)
        actuate = partial(self._evict, job, [(names[room.row], room.victims) for room in rooms if room.victims])
        return PostFilterResult(SUCCESS, nominations[job.trigger.uid], victims, actuate, nominations=nominations)

    def _evict(self, job: _Job, victims: Sequence[tuple[str, Sequence[Pod]]]) -> None:
        trigger = job.trigger
        reason = f"preempting to accommodate higher priority pods, preemptor: {job.name}, triggerPod: {trigger.key}"
        for node, pods in victims:
            self._handle.evictions.start(trigger, node, pods, reason=reason)

    # --- whether it may be tried ---------------------------------------------------------------------

    def _check(self, job: _Job) -> None:
        if not job.members:
            raise _Refused(NO_PENDING)
        if job.trigger.shape.never_preempts:
            raise _Refused(NEVER)
        if self._budgets is not None and (hidden := why_not(self._cluster)):
            raise _Refused(hidden)
        if any(self._waits_for_victims(pod, job) for pod in job.members):
            raise _Refused(TERMINATING)
        if not self._cluster.table.count:
            raise _Refused(NO_NODES)

    def _waits_for_victims(self, pod: Pod, job: _Job) -> bool:
        """Whether pods are leaving the node that a member is nominated to."""
        node = self._handle.nominations.node_of(pod.uid) or pod.nominated_node
        row = self._cluster.table.row_of.get(node)
        if row is None:
            return False
        if pod.uid == job.trigger.uid and self._handle.reasons[int(job.codes[row])].code is Code.UNRESOLVABLE:
            return False
        return self._are_leaving(row, job.trigger.priority)

    def waits_for_victims(self, pod: Pod) -> bool:
        """Whether pods of lower priority are leaving the node that a pod is promised."""
        row = self._cluster.table.row_of.get(self._handle.nominations.node_of(pod.uid) or pod.nominated_node)
        return row is not None and self._are_leaving(row, pod.priority)

    def _are_leaving(self, row: int, priority: int) -> bool:
        return any(
            (other.preempted or self._handle.evictions.evicting(other.uid))
            and other.priority < priority
            and not spares(other)
            for other in self._cluster.pods_on(row).values()
        )

    # --- where room can be made ----------------------------------------------------------------------

    def _rooms(self, job: _Job) -> Turns[list[_Room]]:
        # What the members that have a place would give up is no room for the others.
        vetoed = {pod.uid for pod in job.around.placed()} if job.around is not None else set()
        while True:
            try:
                return self._whole_gangs(job, (yield from self._rooms_without(job, vetoed)))
            except _Vetoed as found:
                vetoed |= found.uids

    def _rooms_without(self, job: _Job, vetoed: set[str]) -> Turns[list[_Room]]:
        """`vetoed`: uids of pods that must stay. Raises _Refused."""
        alive = self._cluster.table.alive.data[: self._cluster.table.size]
        yield from self._victims.read(np.flatnonzero(alive), self._handle.clock.wall())
        codes = job.codes
        planned = job.around.refused_plan if job.around is not None else None
        if job.gathering is not None and planned is not None:
            codes = planned.codes
        why = np.where(alive, self._not_helpful, NO_NODE).astype(np.int32)
        rows = self._curable(codes)
        some = self._victims.counts(rows, job.trigger.priority, self._handle.clock.wall()) > 0
        others = rows[~some]
        rows = rows[some]
        if job.around is None and len(others) and not len(rows):
            why[:] = NO_NODE  # of a pod without a gang, upstream names these alone
        why[others] = self._no_victims
        if job.cycle.beyond_nodes or not len(rows):
            raise _Refused(self._text(why), final=True)
        costs = self._costs.of(rows, job.trigger.priority)
        if job.gathering is not None and planned is not None:
            # Nodes without victims may have room for some of the members.
            others = np.concatenate((others, np.flatnonzero(alive & (codes == PASS))))
            return (yield from self._gathered(job, job.gathering, rows, others, costs, why, vetoed))
        return (yield from self._one_by_one(job, rows, costs, why, vetoed))

    def _curable(self, codes: Codes) -> RowArray:
        """The rows where fewer pods may help."""
        reasons = self._handle.reasons
        curable = [
            code
            for code in np.unique(codes).tolist()
            if code not in (PASS, NO_NODE) and reasons[code].code is Code.UNSCHEDULABLE
        ]
        return np.flatnonzero(np.isin(codes, curable))

    def _text(self, why: Codes) -> str:
        return f"0/{self._cluster.table.count} nodes are available:{refusals(why, self._handle.reasons)}"

    def _victims_on(self, row: int, job: _Job, vetoed: set[str]) -> list[Pod]:
        pods = self._victims.pods(row, job.trigger.priority, self._handle.clock.wall())
        return [pod for pod in pods if pod.uid not in vetoed]

    # --- one member after the other ------------------------------------------------------------------

    def _one_by_one(
        self, job: _Job, rows: RowArray, costs: RowCosts, why: Codes, vetoed: set[str]
    ) -> Turns[list[_Room]]:
        """Each member goes to the cheapest node, the first by name, that has room for it beside those before it.

        Once a gang goes as a whole, the other nodes that it is on are cheaper.
        """
        fits: dict[Hashable, Codes] = {}
        names = self._cluster.table.names
        rooms: list[_Room] = []
        left = job.members
        last: dict[int, int] = {}
        going: dict[str, Pod] = {}
        with self._handle.hypothesis(job.cycle.job_members) as trial:
            trial.withdraw(job.members)
            for kind, pod in {_kind(pod): pod for pod in reversed(job.members)}.items():
                fits[kind] = self._fits(pod, job, rows)
                yield
            any_fits = np.logical_or.reduce([codes == PASS for codes in fits.values()])
            rest = np.flatnonzero(any_fits).tolist()
            rest.sort(key=lambda i: (costs.costs[i], names[rows[i]]), reverse=True)
            while rest and left:
                i = rest.pop()
                row = int(rows[i])
                room, left, code = yield from self._fill(trial, row, i, left, fits, self._victims_on(row, job, vetoed))
                last[i] = code
                if room is None:
                    continue
                rooms.append(room)
                going.update((victim.uid, victim) for victim in room.victims)
                if costs.gone(gang for gang, _ in self._torn(room.victims, going)):
                    rest.sort(key=lambda i: (costs.costs[i], names[rows[i]]), reverse=True)
        if left:
            codes = fits[_kind(left[0])].copy()
            for i, code in last.items():
                codes[i] = code if code not in (PASS, _UNKNOWN) else self._not_helpful
            why[rows] = codes
            raise _Refused(self._text(why), final=True)
        return rooms

    def _fits(self, pod: Pod, job: _Job, rows: RowArray) -> Codes:
        """Why the pod does not fit each row with all potential victims gone; PASS where it does."""
        cycle = job.cycle
        if pod is not job.trigger:
            cycle = CycleState(pod, job_members=cycle.job_members)
            if not self._handle.filtering.prepare(cycle, self._without).status.ok:
                return np.full(len(rows), self._not_helpful, dtype=np.int32)
        with self._handle.filtering.overlaid(cycle):
            found, _ = self._search.of(cycle).on(rows)
        codes = np.full(len(rows), self._not_helpful, dtype=np.int32)
        codes[np.searchsorted(rows, found.rows)] = found.verdicts["code"]
        return codes

    def _fill(
        self,
        trial: Hypothesis,
        row: int,
        at: int,
        members: Sequence[Pod],
        fits: Mapping[Hashable, Codes],
        victims: Sequence[Pod],
    ) -> Turns[tuple[_Room | None, list[Pod], int]]:
        """Places as many members on the row as fit; returns those that are left, and why the first of them is."""
        start = trial.checkpoint()
        for victim in victims:
            trial.evict(victim)
        here: list[Pod] = []
        left: list[Pod] = []
        refused: dict[Hashable, int] = {}
        for number, pod in enumerate(members):
            if len(refused) == len(fits):
                left.extend(members[number:])
                break
            kind = _kind(pod)
            if kind not in refused:
                refused_with = int(fits[kind][at])
                if refused_with == PASS:
                    refused_with = trial.place(pod, row, self._without)
                    yield
                if refused_with == PASS:
                    here.append(pod)
                    continue
                refused[kind] = refused_with
            left.append(pod)
        why = refused[_kind(left[0])] if left else PASS
        if not here:
            trial.rollback(start)
            return None, left, why
        going = yield from self._reprieve(trial, start, row, here, victims)
        return _Room(row, here, going), left, why

    def _reprieve(
        self, trial: Hypothesis, start: object, row: int, members: Sequence[Pod], victims: Sequence[Pod]
    ) -> Turns[list[Pod]]:
        """Lets as many of the victims stay as fit beside the members; returns those that go."""
        going = reprieve_order(victims, self._torn(victims), self._budgets)
        for victim in list(going):
            others = [pod for pod in going if pod is not victim]
            trial.rollback(start)
            if (yield from self._fit_beside(trial, row, members, others)):
                going = others
        trial.rollback(start)
        yield from self._fit_beside(trial, row, members, going)
        return going

    def _fit_beside(self, trial: Hypothesis, row: int, members: Sequence[Pod], going: Sequence[Pod]) -> Turns[bool]:
        for pod in going:
            trial.evict(pod)
        for pod in members:
            if trial.place(pod, row, self._without) != PASS:
                return False
            yield
        return True

    # --- gathered in the network ---------------------------------------------------------------------

    def _gathered(
        self,
        job: _Job,
        gathering: Gathering,
        rows: RowArray,
        others: RowArray,
        costs: RowCosts,
        why: Codes,
        vetoed: set[str],
    ) -> Turns[list[_Room]]:
        """The members go where the network has them together. `others`: rows where no pod can be evicted."""
        victims: dict[int, list[Pod]] = {}
        for some in batches(rows.tolist()):
            victims.update((row, self._victims_on(row, job, vetoed)) for row in some)
            yield
        scores = np.zeros(self._cluster.table.size, dtype=np.int64)
        scores[rows] = -costs.costs
        candidates = np.sort(np.concatenate((rows, others)))
        rooms: list[_Room] = []
        with self._handle.hypothesis(job.cycle.job_members) as trial:
            trial.withdraw(job.members)
            start = trial.checkpoint()
            yield from trial.evict_all(chain.from_iterable(victims.values()))
            planned, counted = self._plans.spread(gathering, job.members, candidates, scores)
            if planned is None:
                codes = counted.codes[rows]
                why[rows] = np.where(codes == PASS, self._not_helpful, codes)
                raise _Refused(self._text(why), final=True)
            yield from trial.roll_back(start)
            for row, members in planned.items():
                before = trial.checkpoint()
                if not (yield from self._fit_beside(trial, row, members, victims.get(row, []))):
                    raise _Refused(self._text(why), final=True)
                going = yield from self._reprieve(trial, before, row, members, victims.get(row, []))
                rooms.append(_Room(row, members, going))
        return rooms

    # --- gangs among the victims ---------------------------------------------------------------------

    def _whole_gangs(self, job: _Job, rooms: list[_Room]) -> list[_Room]:
        """Adds the rest of gangs that would be left with fewer than their minimum. Raises _Vetoed if one may not go."""
        going = [victim for room in rooms for victim in room.victims]
        for gang, rest in self._torn(going):
            if not all(self._may_go(pod, job) for pod in rest):
                raise _Vetoed(victim for victim in going if self._cache.of(victim) is gang)
            by_row: dict[int, _Room] = {room.row: room for room in rooms}
            for pod in rest:
                by_row.setdefault(pod.row, _Room(pod.row)).victims.append(pod)
            rooms = list(by_row.values())
        return rooms

    def _torn(self, pods: Sequence[Pod], going: Container[str] = ()) -> list[tuple[Gang, list[Pod]]]:
        """The gangs that these pods would leave with fewer than their minimum, each with its other pods by name, but
        for those that leave anyway. `going`: uids of all pods that leave; of these alone, if there are none.
        """
        by_uid = going or {pod.uid for pod in pods}
        gangs = {gang.id: gang for pod in pods if (gang := self._cache.of(pod)) is not None}
        torn = []
        for gang in gangs.values():
            rest = [pod for pod in gang.placed() if pod.uid not in by_uid and not self._leaves(pod)]
            if rest and gang.options is not None and len(rest) < gang.options.min:
                torn.append((gang, rest))
        return torn

    def _leaves(self, pod: Pod) -> bool:
        return pod.deleting or self._handle.evictions.evicting(pod.uid)

    def _may_go(self, pod: Pod, job: _Job) -> bool:
        return pod.row >= 0 and pod.priority < job.trigger.priority and self._victims.may_leave(pod)


_UNKNOWN = -1
"""The code of a pod that a plugin other than a filter refuses."""


def _kind(pod: Pod) -> Hashable:
    """Pods of one kind fit in the same places."""
    return pod.shape, pod.labels, pod.namespace
