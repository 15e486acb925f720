"""A configuration's decision on a pod: read only, as far as the comparison needs it."""

from __future__ import annotations

from msgspec import Struct

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.engine.attempt import Attempt, gated_by
from koordsched.framework.profile import Profile
from koordsched.framework.scoring import ScoringFailed
from koordsched.framework.status import Code


class Verdict(Struct):
    """`nodes`: the best, equally good; empty with a refusal, whose `message` says why.

    `victims`: uids of pods that would have to leave `nominated`.
    """

    nodes: frozenset[str] = frozenset()
    message: str = ""
    nominated: str = ""
    victims: frozenset[str] = frozenset()


def verdict_on(profile: Profile, cluster: ClusterState, pod: Pod) -> Verdict:
    """Evaluates a pending pod on the cluster as it is. When its turn comes is not judged, as for any pod."""
    gate = gated_by(profile, pod)
    if not gate.ok and gate.code is not Code.WAIT:
        return Verdict(message=f"held back by {gate.plugin}: {gate.message}")
    attempt = Attempt(profile, cluster, pod)
    if not attempt.has_nodes:
        return Verdict(message=attempt.message())
    verdicts = attempt.filter()
    error = attempt.error()
    if error is not None:
        return Verdict(message=error.message)
    if verdicts.feasible:
        try:
            return Verdict(nodes=frozenset(cluster.table.names[row] for row in attempt.best_rows().tolist()))
        except ScoringFailed as failed:
            return Verdict(message=str(failed))
    outcome = attempt.post_filter()
    return Verdict(
        message=attempt.message(outcome),
        nominated=outcome.nominated_node or "",
        victims=frozenset(victim.uid for victim in outcome.victims),
    )
