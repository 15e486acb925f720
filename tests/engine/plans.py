"""A plan: many pods placed one after the other in one transaction, each on the table that the others left.

For what has to be decided as a whole, a gang or all pending pods of a dump. The caller holds the transaction: it keeps
what was planned (`commit`), or takes all of it back (`rollback`), and decides how long a slice may take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.engine.attempt import Attempt
from koordsched.engine.transaction import Transaction
from koordsched.framework.diagnosis import one_node_error
from koordsched.framework.profile import Profile
from koordsched.framework.scoring import ScoringFailed


class Plan:
    """The plan. `nodes`: uid -> node of each pod that was placed; `refused`: uid -> why not, of the others."""

    def __init__(self, cluster: ClusterState, transaction: Transaction, rng: Random) -> None:
        self._cluster = cluster
        self._transaction = transaction
        self._rng = rng
        self.nodes: dict[str, str] = {}
        self.refused: dict[str, str] = {}

    def place(self, profile: Profile, pod: Pod) -> bool:
        """Places one pod on the best node, as a scheduling cycle would; False if it fits nowhere."""
        attempt = Attempt(profile, self._cluster, pod)
        message = self._refusal(attempt)
        if message is None:
            return True
        self.refused[pod.uid] = message
        return False

    def place_all(self, profile: Profile, pods: Sequence[Pod]) -> Iterator[bool]:
        """Places the pods in order, and yields after each whether it has a node: stop, or pause, at any of them."""
        for pod in pods:
            yield self.place(profile, pod)

    def _refusal(self, attempt: Attempt) -> str | None:
        if not attempt.has_nodes:
            return attempt.message()
        verdicts = attempt.filter()
        error = attempt.error()
        if error is not None:
            return error.message
        if not verdicts.feasible:
            return attempt.message()
        try:
            row = attempt.choose(self._rng).row
        except ScoringFailed as failed:
            return str(failed)
        status = self._transaction.place(attempt.cycle, attempt.profile, row)
        if not status.ok:
            return one_node_error(status) if status.code.rejects else status.message
        self.nodes[attempt.pod.uid] = self._cluster.table.names[row]
        return None
