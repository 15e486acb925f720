"""A job planned as a whole: where all of its pods would go, or which of them has no place (`framework.jobs`).

The same steps as the scheduling cycle of a job, in one piece and without a queue: for `simulate`, explanations and
benchmarks. The caller holds the transaction, and keeps what was planned or takes it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.engine.attempt import Attempt
from koordsched.engine.transaction import Transaction
from koordsched.framework.diagnosis import one_node_error
from koordsched.framework.interface import CycleState, PostFilterResult
from koordsched.framework.jobs import GroupJob, GroupPreemption, Job
from koordsched.framework.placements import Placement, highest, none_fits, totals
from koordsched.framework.profile import Profile
from koordsched.framework.scoring import ScoringFailed
from koordsched.framework.status import Code, Status
from koordsched.framework.turns import at_once


class JobPlan:
    """The plan of one job.

    `cycles`: those of the pods that have a place, in order, and `feasible`: how many nodes each of them could go to.
    `complete`: whether there are enough. If not, `refused` is the pod that has no place, None if all have one, and
    `message` why; `outcome` what its PostFilter plugins would do.
    `refusals`: by `namespace/name`, why members of a GroupJob get no node.
    """

    def __init__(
        self, profiles: Mapping[str, Profile], cluster: ClusterState, transaction: Transaction, rng: Random
    ) -> None:
        self._profiles = profiles
        self._cluster = cluster
        self._transaction = transaction
        self._rng = rng
        self.cycles: list[CycleState] = []
        self.feasible: list[int] = []
        self.complete = False
        self.refused: Pod | None = None
        self.message = ""
        self.outcome: PostFilterResult | None = None
        self.refusals: dict[str, str] = {}
        self._candidates: RowArray | None = None
        self._makes_no_room = ""
        self._job_members: set[str] = set()
        self._victims_are_gone = False

    def place(self, job: Job | GroupJob) -> None:
        """Places the pods of a job that has begun, one after the other, until there are enough (`complete`)."""
        if isinstance(job, GroupJob):
            self._place_group(job)
        else:
            self._place_all(job)

    def _place_all(self, job: Job) -> None:
        self._makes_no_room = job.makes_no_room()
        while (pod := job.next()) is not None:
            message = self._place(pod)
            if message:
                self.refused, self.message = pod, message
                job.fail(pod, message)
                return
            if self.complete:
                return
        job.fall_short()
        self.message = job.rejection()

    def _place_group(self, job: GroupJob) -> None:
        """All members are tried. Where others would have to be evicted, nothing is placed."""
        self.message = job.refusal(job.members)
        if self.message:
            self.refusals = dict.fromkeys((pod.key for pod in job.members), self.message)
            return
        profile = self._profiles[job.first.shape.scheduler_name]
        placements = profile.placements(job)
        if isinstance(placements, Status):
            self.message = placements.message
            self.refusals = dict.fromkeys((pod.key for pod in job.members), self.message)
            return
        self._makes_no_room = job.makes_no_room()
        before = self._transaction.checkpoint()
        self._try(job, profile, placements)
        preemption = job.preemption() if not self.complete and self.outcome is None else None
        if preemption is not None:
            self._transaction.rollback(before)
            room = self._room_for_all(job, profile, preemption)
            self._try(job, profile, placements)
            if isinstance(room, str):
                self.message += room and f", {room}"
            else:
                self.outcome = room
                had_a_place, text = job.unschedulable()[1], job.waiting_on_preemption()
                self.refusals = {key: text if old == had_a_place else old for key, old in self.refusals.items()}

    def _try(self, job: GroupJob, profile: Profile, placements: Sequence[Placement] | None) -> None:
        if placements is None:
            self._try_all(job)
        else:
            self._try_placements(job, profile, placements)

    def _room_for_all(self, job: GroupJob, profile: Profile, preemption: GroupPreemption) -> PostFilterResult | str:
        """What would be evicted for the group as a whole, or why it is not; "" if that would not be enough."""
        before = self._transaction.checkpoint()
        victims = at_once(preemption.victims(job.members, enabled=profile.makes_room_for_groups))
        if isinstance(victims, str):
            return victims
        for victim in victims:
            self._transaction.evict(victim)
        self._victims_are_gone = True
        fits = self._try_all(job)
        self._victims_are_gone = False
        places = [(cycle.pod, cycle.pod.row) for cycle in self.cycles]
        self._transaction.rollback(before)
        return at_once(preemption.choose(places)) if fits else ""

    def _try_placements(self, job: GroupJob, profile: Profile, placements: Sequence[Placement]) -> None:
        """Tries all members on each placement, and again on the best."""
        before, fitting, scores = self._transaction.checkpoint(), list[Placement](), list[list[int]]()
        for placement in placements:
            self._candidates = placement.rows
            if self._try_all(job):
                fitting.append(placement)
                rows = placement.rows
                scores.append([plugin.score_placement(job, rows) for plugin, _ in profile.placement_scorers])
            self._transaction.rollback(before)
        if fitting:
            best = self._rng.choice(highest(totals(profile.placement_scorers, scores)))
            self._candidates = fitting[best].rows
            self._try_all(job)
            return
        self._candidates = placements[0].rows
        self._try_all(job)
        self.message = none_fits(len(placements), job.unschedulable()[0])

    def _try_all(self, job: GroupJob) -> bool:
        self.cycles, self.feasible, self.refusals, self.refused, self.message = [], [], {}, None, ""
        enough = False
        preempting: PostFilterResult | None = None
        for pod in job.members:
            self.outcome, self.complete = None, False
            message = self._place(pod)
            if message:
                self.refusals[pod.key] = message
                self.refused, self.message = self.refused or pod, self.message or message
                if self._make_room(pod):
                    preempting = preempting or self.outcome
            enough |= self.complete
        self.outcome, self.complete = preempting, enough and preempting is None
        if not self.complete:
            text = job.waiting_on_preemption() if enough else job.unschedulable()[1]
            self.refusals.update((cycle.pod.key, text) for cycle in self.cycles)
            self.message = self.message or text
        return self.complete

    def _make_room(self, pod: Pod) -> bool:
        """Tries a member on the node that is nominated for it, as if its victims were gone."""
        outcome = self.outcome
        if outcome is None or not outcome.nominated_node:
            return False
        for victim in outcome.victims:
            if victim.row >= 0:
                self._transaction.evict(victim)
        attempt = self._attempt(pod)
        feasible = attempt.filter().feasible
        self._settle(attempt, self._cluster.table.row_of[outcome.nominated_node], feasible)
        return True

    def _attempt(self, pod: Pod) -> Attempt:
        attempt = Attempt(self._profiles[pod.shape.scheduler_name], self._cluster, pod)
        attempt.cycle.candidates, attempt.cycle.makes_no_room = self._candidates, self._makes_no_room
        self._job_members.add(pod.uid)
        attempt.cycle.job_members = self._job_members
        return attempt

    def _place(self, pod: Pod) -> str:
        attempt = self._attempt(pod)
        if not attempt.has_nodes:
            return attempt.message()
        verdicts = attempt.filter()
        error = attempt.error()
        if error is not None:
            return error.message
        if not verdicts.feasible and self._victims_are_gone:
            return attempt.message()
        if not verdicts.feasible:
            self.outcome = attempt.post_filter()
            return attempt.message(self.outcome)
        try:
            row = attempt.choose(self._rng).row
        except ScoringFailed as failed:
            return str(failed)
        return self._settle(attempt, row, verdicts.feasible)

    def _settle(self, attempt: Attempt, row: int, feasible: int) -> str:
        """Assume, Reserve, Permit."""
        profile, pod = attempt.profile, attempt.pod
        status = self._transaction.place(attempt.cycle, profile, row)
        if status.ok:
            status, waits = profile.run_permit(attempt.cycle, pod, row)
            if status.ok or status.code is Code.WAIT:
                self.cycles.append(attempt.cycle)
                self.feasible.append(feasible)
                self.complete = profile.job_plugin_names.isdisjoint(waits)
                return ""
        return one_node_error(status) if status.code.rejects else status.message
