"""What a configuration makes of a pod: read only, as far as comparing needs it."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.diagnosis import NO_NODES, first_error, fit_error
from koordsched.framework.interface import CycleState
from koordsched.framework.profile import Profile
from koordsched.framework.scoring import InvalidScore, PreScoreFailed, score


class Verdict(Struct):
    """`nodes`: the best, equally good; empty with a refusal, whose `message` says why.

    `victims`: uids of pods that would have to leave `nominated`.
    """

    nodes: frozenset[str] = frozenset()
    message: str = ""
    nominated: str = ""
    victims: frozenset[str] = frozenset()


def verdict_on(profile: Profile, cluster: ClusterState, pod: Pod) -> Verdict:
    """Evaluates a pending pod on the cluster as it is."""
    for gate in profile.pre_enqueue:
        status = gate.pre_enqueue(pod)
        if not status.ok:
            return Verdict(message=f"held back by {gate.name}: {status.message}")
    table, reasons = cluster.table, profile.handle.reasons
    if not table.count:
        return Verdict(message=NO_NODES)
    cycle = CycleState(pod)
    verdicts = profile.filtering.filter(cycle)
    error = first_error(verdicts, reasons)
    if error is not None:
        return Verdict(message=error.message)
    if verdicts.feasible:
        rows = verdicts.rows
        if verdicts.feasible > 1:
            try:
                totals = score(cycle, table, verdicts).totals()
            except (InvalidScore, PreScoreFailed) as failed:
                return Verdict(message=str(failed))
            rows = rows[np.flatnonzero(totals == totals.max())]
        return Verdict(nodes=frozenset(table.names[row] for row in rows.tolist()))
    outcome = profile.run_post_filter(cycle, verdicts.codes)
    text = "" if outcome.status.ok else outcome.status.message
    return Verdict(
        message=fit_error(table.count, verdicts, reasons, text),
        nominated=outcome.nominated_node or "",
        victims=frozenset(victim.uid for victim in outcome.victims),
    )
