"""The plugin at the extension points: which pods go together, when there are enough, and why there are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.events import ASSIGNED_POD_DELETE, POD, ActionType, ClusterEvent, EventResource
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.framework.diagnosis import refusals
from koordsched.framework.handle import Handle
from koordsched.framework.interface import (
    AfterPostFilter,
    BeforePreFilter,
    CycleState,
    FindOneNode,
    PodScore,
    PostBind,
    PostFilter,
    PostFilterResult,
    PreBind,
    PreEnqueue,
    PreFilter,
    PreFilterResult,
    QueueSort,
    Reserve,
    Scores,
)
from koordsched.framework.jobs import GroupJob, Job, JobScheduling
from koordsched.framework.status import SKIP, SUCCESS, Code, Codes, Status
from koordsched.framework.turns import Turns, at_once
from koordsched.plugins.coscheduling import messages
from koordsched.plugins.coscheduling.args import CoschedulingArgs
from koordsched.plugins.coscheduling.cache import GangCache
from koordsched.plugins.coscheduling.gang import Gang, GangGroup
from koordsched.plugins.coscheduling.kinds import (
    BIND_GANG_GROUP_ID,
    BIND_GANG_GROUP_ID_DEPRECATED,
    BIND_GANG_MEMBER_COUNT,
    BIND_GANG_MEMBER_COUNT_DEPRECATED,
    WRITTEN,
)
from koordsched.plugins.coscheduling.planning import TopologyPlans
from koordsched.plugins.coscheduling.preemption import JobPreemption
from koordsched.plugins.coscheduling.round import Round
from koordsched.plugins.coscheduling.topology import waking
from koordsched.plugins.coscheduling.topology.members import in_order, member_of
from koordsched.plugins.coscheduling.topology.picture import TopologyPicture, lines
from koordsched.plugins.coscheduling.topology.selectorscore import SelectorScore
from koordsched.plugins.coscheduling.topology.service import NO_TOPOLOGY, network_topology
from koordsched.queue.hints import GroupBy, HintRegistration, NominatedTo, QueueingHint, Scope
from koordsched.queue.item import QueuedPod

GANG_CHANGED = ClusterEvent(EventResource("Gang"), ActionType.UPDATE)
"""Never announced: gangs are activated. Its registration says what tells pods apart."""


class Coscheduling(
    QueueSort,
    PodScore,
    PreEnqueue,
    BeforePreFilter,
    PreFilter,
    FindOneNode,
    PostFilter,
    AfterPostFilter,
    Reserve,
    JobScheduling,
    PreBind,
    PostBind,
):
    """Source: upstream `pkg/scheduler/plugins/coscheduling`; coscheduling spec.

    All pods of a group are placed in one attempt (`framework.jobs`), so no member waits on Permit between attempts.
    """

    name = "Coscheduling"
    only_patches = True
    on_plain_table = True

    def __init__(self, args: CoschedulingArgs, handle: Handle) -> None:
        self.args = args
        self.handle = handle
        self.cache = GangCache.shared(args, handle)
        self.topology = network_topology(handle.cluster, handle.features)
        self._selector = SelectorScore(self.topology)
        self._plans = TopologyPlans(self.name, handle, self.topology, args)
        self._preemption = JobPreemption(
            self.name, handle, self.cache, self._plans, honors_budgets=args.honor_disruption_budgets
        )

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Pods of different gangs are different. A gang that asks to be gathered waits for another tree, too, and each
        pod for a change of its own that makes it a member of another gang.
        """
        alike = GroupBy(self.cache.gang_id)
        # Each gang is a group of its own: thousands would be asked about each node that comes.
        gathers = self.args.aware_network_topology
        return [
            HintRegistration(self.name, GANG_CHANGED, None, alike),
            HintRegistration(self.name, ASSIGNED_POD_DELETE, self._after_room_was_left, NominatedTo(_node_left)),
            HintRegistration(self.name, ClusterEvent(POD, ActionType.UPDATE), self._after_own_change, Scope.OWN_POD),
            *(waking.registrations(self.name, self._gathers, alike) if gathers else ()),
        ]

    def _gathers(self, pod: Pod) -> bool:
        gang = self.cache.of(pod)
        return gang is not None and self._plans.gathering(gang) is not None

    def _after_own_change(self, pod: Pod, old: Any, new: Any) -> QueueingHint:
        changed = isinstance(old, Pod) and isinstance(new, Pod) and self.cache.gang_id(old) != self.cache.gang_id(new)
        return QueueingHint.QUEUE if changed and new.uid == pod.uid else QueueingHint.SKIP

    def _after_room_was_left(self, pod: Pod, old: Any, new: Any) -> QueueingHint:
        """The last victim has gone: what keeps the group from being tried may be another member.

        If the group still has no place, its members are promised nothing any more.
        """
        gang = self.cache.of(pod)
        if gang is None or gang.group.represented or gang.group.admits_singly(gang):
            return QueueingHint.SKIP
        waits = any(map(self._preemption.waits_for_victims, gang.group.pending()))
        return QueueingHint.SKIP if waits else QueueingHint.QUEUE

    def sort_key(self, queued: QueuedPod[Pod]) -> tuple[Any, ...]:
        """As PrioritySort: gangs do not change the order (coscheduling spec 2.5)."""
        return (-queued.pod.priority, queued.timestamp, queued.sequence)

    # --- the queue -----------------------------------------------------------------------------------

    def pre_enqueue(self, pod: Pod) -> Status:
        """Of a group that is to be placed, one pod is let in for all (coscheduling spec 3.3)."""
        gang = self._goes_with_others(pod)
        if gang is None or isinstance(gang, Status):
            return gang or SUCCESS
        group = gang.group
        around = self.cache.round
        if around is not None and around.group is group and pod.uid not in around.attempted:
            return Status(Code.WAIT, (messages.not_attempted(group),))
        if pod.uid not in gang.pending:
            return _unresolvable(messages.not_pending(pod))
        if group.represented and group.representative != pod.uid:
            return Status(Code.WAIT, (messages.represented(group, self.cache.key_of(group.representative)),))
        return SUCCESS

    def reworded(self) -> Iterator[Pod]:
        """Members of groups that cannot be tried, and of late for another reason."""
        return self.cache.shortcomings.reworded()

    def admitted(self, pod: Pod) -> None:
        """The pod represents its group."""
        gang = self.cache.of(pod)
        if gang is not None and not gang.group.admits_singly(gang):
            gang.group.representative, gang.group.at_rest = pod.uid, False
            gang.group.kept_out = False

    def gated(self, pod: Pod) -> None:
        """If the pod represents its group, or would because it is not bound after all, another one has to; but not if
        all others are known to be kept out as well: what each waits for brings it back.
        """
        gang = self.cache.of(pod)
        if gang is None:
            return
        group = gang.group
        if group.representative == pod.uid or not (group.representative or group.kept_out):
            self.cache.replace_representative(group)

    def _goes_with_others(self, pod: Pod) -> Gang | Status | None:
        """The gang of a pod that is placed with others, or why it must not be tried; None if it is placed alone."""
        gang_id = self.cache.gang_id(pod)
        if gang_id is None:
            return None
        gang = self.cache.gangs.get(gang_id)
        if gang is None:
            return _unresolvable(messages.unknown(gang_id, pod))
        if gang.options is None:
            return _unresolvable(messages.undefined(gang, pod))
        if gang.group.admits_singly(gang):
            return None
        if problem := self.cache.why_not(gang.group):
            return _unresolvable(messages.basic_check(gang.group, problem, gang, pod))
        return gang

    # --- a group as a job ----------------------------------------------------------------------------

    def taken_up(self, pod: Pod) -> None:
        """See JobScheduling."""
        gang = self.cache.of(pod)
        if gang is None:
            return
        if gang.group.representative == pod.uid:
            gang.group.at_rest = True
        if self._goes_together(gang):
            gang.group.representative = ""

    def begin_job(self, pod: Pod) -> Job | None:
        """See JobScheduling."""
        gang = self.cache.of(pod)
        if gang is None:
            return None
        self._plans.complain(gang, pod)
        if not self._goes_together(gang):
            return None
        members, now = self._members(gang.group, pod), self.handle.clock.monotonic()
        self.cache.round = Round(gang.group, pod, members, self._preemption.waits_for_victims, now)
        return self.cache.round

    def _goes_together(self, gang: Gang) -> bool:
        return not (
            gang.options is None
            or gang.group.admits_singly(gang)
            or self.cache.why_not(gang.group)
            or self._lacks_topology(gang)
        )

    def _members(self, group: GangGroup, first: Pod) -> Sequence[Pod]:
        """The pending pods of the group in the order in which they are placed: by index, then by name.

        Those come first that kept the group from being placed after pods had been evicted for others. Where some may be
        left when there are enough, the first comes first, and as many of each gang as it needs come before all others;
        of a gang those come last that had no place.
        """
        if group.order is None:
            members = [pod for pod in group.pending() if self.cache.placeable(pod)]
            order = [members[at] for at in in_order([member_of(pod) for pod in members])]
            group.order = sorted(order, key=lambda pod: pod.uid not in group.tried_first)
        if not group.has_surplus:
            return group.order
        demoted = group.demoted_shapes()
        needed = {gang.id: gang.missing for gang in group.gangs.values()}
        enough: list[Pod] = []
        surplus: list[Pod] = []
        early = group.tried_first
        for pod in sorted(
            group.order, key=lambda pod: (pod.shape in demoted, pod.uid not in early, pod.uid != first.uid)
        ):
            gang = self.cache.of(pod)
            if gang is not None and needed.get(gang.id, 0) > 0:
                needed[gang.id] -= 1
                enough.append(pod)
            else:
                surplus.append(pod)
        return enough + surplus

    def end_job(self, job: Job | GroupJob, placed: Iterable[Pod], resting: Iterable[Pod]) -> None:
        """See JobScheduling."""
        gang, stays = self.cache.of(job.first), next(iter(placed), None) is not None
        if gang is not None and stays:
            gang.group.changed()
        waits = next(iter(resting), None)
        if self.cache.round is not None:
            self.cache.round.decided = stays or waits is not None
        if gang is not None and waits is not None and not gang.group.representative and len(gang.children) > 1:
            gang.group.representative, gang.group.at_rest = waits.uid, True
        self.cache.end_round(placed=stays)

    def explain_job(self, job: Job) -> list[str]:
        """What the network has to offer a gang that asks to be gathered."""
        gang = self.cache.of(job.first)
        shown = self._plans.explained(gang) if gang is not None else None
        return lines(shown) if shown is not None else []

    def network_of(self, gang: Gang) -> TopologyPicture | None:
        """The same as a struct."""
        return self._plans.explained(gang)

    def _round_of(self, pod: Pod) -> Round | None:
        around, gang = self.cache.round, self.cache.of(pod)
        return around if around is not None and gang is not None and around.group is gang.group else None

    # --- one member ----------------------------------------------------------------------------------

    def before_pre_filter(self, cycle: CycleState, pod: Pod) -> Status:
        """Coscheduling spec 3.4."""
        around = self.cache.round
        if around is not None and not around.failed_message and pod.uid in around.attempted:
            return SUCCESS  # the group was looked at when the round began
        gang = self._goes_with_others(pod)
        if gang is None or isinstance(gang, Status):
            return gang or SUCCESS
        around = self._round_of(pod)
        if around is not None and around.failed_message:
            return _unresolvable(around.failed_message)
        return _unresolvable(NO_TOPOLOGY) if self._lacks_topology(gang) else SUCCESS

    def _lacks_topology(self, gang: Gang) -> bool:
        return self._plans.gathering(gang) is not None and self._plans.missing

    def pre_filter(self, cycle: CycleState, pod: Pod) -> PreFilterResult | Status:
        """Restricts a member to the node that was planned for it."""
        around = self.cache.round
        node = around.planned.get(pod.uid) if around is not None else None
        return PreFilterResult(frozenset((node,))) if node is not None else SKIP

    def find_one_node(self, cycle: CycleState, pod: Pod, names: frozenset[str] | None) -> PreFilterResult | Status:
        """Plans the whole group with the first pod that is tried (coscheduling spec 3.4)."""
        around = self.cache.round
        if around is None or around.failed_message or around.plan_asked or pod.uid not in around.attempted:
            return SKIP
        around.plan_asked = True
        gathering = self._plans.gathering(self.cache.gangs[self.cache.gang_id(pod) or ""])
        if gathering is None:
            return SKIP
        table = self.handle.cluster.table
        if names is None:
            rows = np.flatnonzero(table.alive.data[: table.size])
        else:
            rows = np.array(sorted(table.row_of[name] for name in names if name in table.row_of), dtype=np.intp)
        status = self._plans.plan(gathering, around.pending(), rows, around)
        return PreFilterResult(frozenset((around.planned[pod.uid],))) if status.ok else status

    def post_filter(self, cycle: CycleState, pod: Pod, codes: Codes) -> PostFilterResult:
        """Job preemption (coscheduling spec 3.7, 3.8)."""
        return at_once(self.post_filter_in_turns(cycle, pod, codes))

    def post_filter_in_turns(self, cycle: CycleState, pod: Pod, codes: Codes) -> Turns[PostFilterResult]:
        """The same in steps."""
        if not self.args.enable_preemption:
            return PostFilterResult(Status(Code.UNSCHEDULABLE))
        around, gang = self._round_of(pod), self.cache.of(pod)
        gathering = self._plans.gathering(gang) if gang is not None and around is not None else None
        if around is not None:
            around.fail(pod, self._fit_error(codes))
        return (yield from self._preemption.post_filter(cycle, around, gathering, codes))

    def _fit_error(self, codes: Codes) -> str:
        return f"0/{self.handle.cluster.table.count} nodes are available:{refusals(codes, self.handle.reasons)}"

    def after_post_filter(self, cycle: CycleState, pod: Pod, codes: Codes, result: PostFilterResult) -> None:
        """The first member that has no place is why the group is rejected (coscheduling spec 3.7)."""
        around = self._round_of(pod)
        if around is not None:
            around.fail(pod, self._fit_error(codes))
            around.preempts = result.status.ok
            result.refused_by |= self._plans.refused_by(around)

    def abstains(self, cycle: CycleState, pod: Pod) -> bool:
        """Whether the pod is pulled to no others."""
        return self._selector.abstains(cycle, pod)

    def pre_score(self, cycle: CycleState, pod: Pod, rows: RowArray) -> Status:
        """Coscheduling spec 3.6."""
        return self._selector.pre_score(cycle, pod, rows)

    def score(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Scores:
        """Nodes near pods with the same selector come first."""
        return self._selector.score(cycle, pod, table, rows)

    def normalize(self, cycle: CycleState, pod: Pod, scores: Scores) -> Scores:
        """The first gets 100."""
        return self._selector.normalize(cycle, pod, scores)

    def reserve(self, cycle: CycleState, pod: Pod, row: int) -> Status:
        """Nothing to do: Permit counts the pod."""
        return SUCCESS

    def unreserve(self, cycle: CycleState, pod: Pod, row: int) -> None:
        """The pod has lost its place; so have those that wait with it, unless the group is satisfied."""
        gang = self.cache.of(pod)
        if gang is None:
            # The pod is gone, and leaves the others alone.
            gang = self.cache.gangs.get(self.cache.gang_id(pod) or "")
        elif pod.uid in gang.waiting:
            gang.move(pod.uid, gang.pending)
        else:
            return
        if gang is None:
            return
        group, around = gang.group, self.cache.round
        group.end_binding()
        if around is not None and around.group is group:
            return  # the others of the round lose their places as well
        group.changed()
        if gang.options is not None and gang.options.strict and not group.admits_singly(gang):
            self._reject(group, messages.rejected_in_unreserve(gang, pod))

    def _reject(self, group: GangGroup, text: str) -> None:
        """Those that wait lose their places, but for those that go on alone. Each is told once, though each comes to
        `unreserve` after that.
        """
        for gang in group.gangs.values():
            if len(gang.rejected) == len(gang.waiting) or group.admits_singly(gang):
                continue
            for uid in [uid for uid in gang.waiting if uid not in gang.rejected]:
                gang.rejected.add(uid)
                if (waiting := self.handle.waiting.get(uid)) is not None:
                    waiting.reject(self.name, text)

    def permit(self, cycle: CycleState, pod: Pod, row: int) -> tuple[Status, float]:
        """WAIT until every gang of the group has enough members (coscheduling spec 3.9).

        A pod that goes on alone is not part of an attempt, in which others would complete the group. It waits for none.
        """
        gang = self.cache.of(pod)
        if gang is None:
            alone = self.cache.gang_id(pod) is None
            return SUCCESS if alone else Status(Code.UNSCHEDULABLE, (messages.NOT_FOUND,)), 0.0
        gang.move(pod.uid, gang.waiting)
        group = gang.group
        alone = group.admits_singly(gang) and self._round_of(pod) is None
        if alone:
            gang.alone.add(pod.uid)
        if not self._enough(group):
            if alone:
                return SUCCESS, 0.0
            return _WAIT, gang.options.waiting_time if gang.options is not None else 0.0
        if not group.binding_members:
            group.binding_members = frozenset(each.uid for each in group.together())
        for each in group.together() if len(self.handle.waiting) else ():
            if (waiting := self.handle.waiting.get(each.uid)) is not None:
                waiting.allow(self.name)
        return SUCCESS, 0.0

    def _enough(self, group: GangGroup) -> bool:
        """Whether every gang has enough members. Begins with the one that had too few: each member asks."""
        for _ in group.named:
            gang = self.cache.gangs.get(group.named[group.lacking])
            if gang is None or not gang.valid:
                return False
            group.lacking = (group.lacking + 1) % len(group.named)
        return True

    # --- binding ---------------------------------------------------------------------------------------

    def pre_bind_pre_flight(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """SKIP for pods that are bound alone, and say so."""
        return SUCCESS if self._written(pod) else SKIP

    async def pre_bind(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """Writes with how many others the pod is bound."""
        for key, value in self._written(pod).items():
            cycle.patch.annotate(key, value)
        return SUCCESS

    def _written(self, pod: Pod) -> dict[str, str | None]:
        """The annotations to write, None for one to be taken away."""
        gang = self.cache.of(pod)
        members = gang.group.binding_members if gang is not None else frozenset()
        if gang is not None and pod.uid in members and len(members) > 1:
            group, count = gang.group.id, str(len(members))
            return {
                BIND_GANG_GROUP_ID: group,
                BIND_GANG_MEMBER_COUNT: count,
                BIND_GANG_GROUP_ID_DEPRECATED: group,
                BIND_GANG_MEMBER_COUNT_DEPRECATED: count,
            }
        shown = pod.wire.metadata.annotations if pod.wire is not None else {}
        return {key: None for key in WRITTEN if key in shown}

    def post_bind(self, cycle: CycleState, pod: Pod, node: str) -> None:
        """The group is satisfied by its first pod."""
        gang = self.cache.of(pod)
        if gang is None:
            return
        gang.move(pod.uid, gang.bound)
        gang.group.end_binding()
        self.cache.satisfy(gang.group)


_WAIT = Status(Code.WAIT)


def _node_left(old: Any, new: Any) -> str:
    return old.node if isinstance(old, Pod) else ""


def _unresolvable(text: str) -> Status:
    return Status(Code.UNRESOLVABLE, (text,))
