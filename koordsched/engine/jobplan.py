"""A job planned as a whole: where all of its pods would go, or which of them has no place (`framework.jobs`).

The same steps as the scheduling cycle of a job, in one piece and without a queue: for `simulate`, explanations and
benchmarks. The caller holds the transaction, and keeps what was planned or takes it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.engine.attempt import Attempt
from koordsched.engine.transaction import Transaction
from koordsched.framework.diagnosis import one_node_error
from koordsched.framework.interface import CycleState, PostFilterResult
from koordsched.framework.jobs import Job, JobScheduling
from koordsched.framework.profile import Profile
from koordsched.framework.scoring import ScoringFailed
from koordsched.framework.status import Code


class JobPlan:
    """The plan of one job.

    `cycles`: those of the pods that have a place, in order. `complete`: whether there are enough. If not, `refused` is
    the pod that has no place, None if all have one, and `message` why; `outcome` what its PostFilter plugins would do.
    """

    def __init__(
        self, profiles: Mapping[str, Profile], cluster: ClusterState, transaction: Transaction, rng: Random
    ) -> None:
        self._profiles = profiles
        self._cluster = cluster
        self._transaction = transaction
        self._rng = rng
        self.cycles: list[CycleState] = []
        self.complete = False
        self.refused: Pod | None = None
        self.message = ""
        self.outcome: PostFilterResult | None = None

    def place(self, plugin: JobScheduling, job: Job) -> bool:
        """Places the pods of a job that has begun, one after the other, until there are enough; False otherwise."""
        while (pod := job.next()) is not None:
            message = self._place(plugin, pod)
            if message:
                self.refused, self.message = pod, message
                job.fail(pod, message)
                return False
            if self.complete:
                return True
        job.fall_short()
        self.message = job.rejection()
        return False

    def _place(self, plugin: JobScheduling, pod: Pod) -> str:
        profile = self._profiles[pod.shape.scheduler_name]
        attempt = Attempt(profile, self._cluster, pod)
        if not attempt.has_nodes:
            return attempt.message()
        verdicts = attempt.filter()
        error = attempt.error()
        if error is not None:
            return error.message
        if not verdicts.feasible:
            self.outcome = attempt.post_filter()
            return attempt.message(self.outcome)
        try:
            row = attempt.choose(self._rng).row
        except ScoringFailed as failed:
            return str(failed)
        status = self._transaction.place(attempt.cycle, profile, row)
        if status.ok:
            status, waits = profile.run_permit(attempt.cycle, pod, row)
            if status.ok or status.code is Code.WAIT:
                self.cycles.append(attempt.cycle)
                self.complete = plugin.name not in waits
                return ""
        return one_node_error(status) if status.code.rejects else status.message
