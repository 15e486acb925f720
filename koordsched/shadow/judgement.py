"""What a profile makes of a decision of another scheduler, on the state in which that was made."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.engine.attempt import Attempt, gated_by
from koordsched.framework.profile import Profile
from koordsched.framework.scoring import ScoringFailed
from koordsched.framework.status import PASS
from koordsched.scheduling.decisions import Ranked

SAME = "same"
EQUAL = "equal"
ELSEWHERE = "elsewhere"
REFUSED = "refused"
FAILED = "failed"
KINDS = (SAME, EQUAL, ELSEWHERE, REFUSED, FAILED)

NOMINATED = "the pod is nominated to another node, which is tried first"
UNKNOWN_NODE = "the node was not known here yet"


class Judgement(Struct, rename="camel", omit_defaults=True):
    """A pod was placed on `node`.

    `kind`: `same`, it has the highest score alone; `equal`, so have others; `elsewhere`, `instead` has a higher score,
    and `plugin` makes the largest difference; `refused`, `plugin` refuses the node for this `reason`, and `instead` is
    what we would have taken, empty if no node is feasible; `failed`, there is no answer.

    `theirs` and `ours`: the weighted scores of both nodes by plugin, where both were scored.
    """

    kind: str
    node: str
    instead: str = ""
    plugin: str = ""
    reason: str = ""
    feasible: int = 0
    theirs: Ranked | None = None
    ours: Ranked | None = None

    @property
    def agrees(self) -> bool:
        """Whether we might have decided the same."""
        return self.kind in (SAME, EQUAL)


def judge(profile: Profile, cluster: ClusterState, pod: Pod, node: str) -> Judgement:
    """Judges the placement of a pod that is pending as far as the cluster state says."""
    row = cluster.table.row_of.get(node)
    if row is None:
        return Judgement(FAILED, node, reason=UNKNOWN_NODE)
    gate = gated_by(profile, pod)
    if not gate.ok:
        return Judgement(REFUSED, node, plugin=gate.plugin, reason=gate.message)
    attempt = Attempt(profile, cluster, pod)
    verdicts = attempt.filter()
    error = attempt.error()
    if error is not None:
        return Judgement(FAILED, node, plugin=error.plugin, reason=error.message)
    try:
        if verdicts.codes[row] == PASS:
            return _ranked(attempt, row)
        return _refused(attempt, row)
    except ScoringFailed as failed:
        return Judgement(FAILED, node, reason=str(failed))


def _ranked(attempt: Attempt, row: int) -> Judgement:
    """The node is feasible. Raises ScoringFailed."""
    names, verdicts = attempt.cluster.table.names, attempt.verdicts
    if verdicts.feasible == 1:
        return Judgement(SAME, names[row], feasible=1)
    scored = attempt.score()
    totals = scored.totals()
    at, best = int(np.searchsorted(verdicts.rows, row)), int(totals.argmax())
    if totals[at] == totals[best]:
        others = np.count_nonzero(totals == totals[best]) > 1
        return Judgement(EQUAL if others else SAME, names[row], feasible=verdicts.feasible)
    scores = {of.plugin: of.weight * of.normalized for of in scored.by_plugin(attempt.profile.chains)}
    theirs, ours = (
        Ranked(names[int(verdicts.rows[i])], int(totals[i]), {name: int(column[i]) for name, column in scores.items()})
        for i in (at, best)
    )
    plugin = max(scores, key=lambda name: ours.scores[name] - theirs.scores[name])
    return Judgement(ELSEWHERE, names[row], ours.node, plugin, feasible=verdicts.feasible, theirs=theirs, ours=ours)


def _refused(attempt: Attempt, row: int) -> Judgement:
    """The node is not feasible. Raises ScoringFailed."""
    names, verdicts = attempt.cluster.table.names, attempt.verdicts
    node = names[row]
    if verdicts.alone:
        return Judgement(ELSEWHERE, node, names[int(verdicts.rows[0])], reason=NOMINATED, feasible=1)
    reason = attempt.profile.handle.reasons[int(verdicts.codes[row])]
    rejection = verdicts.pre_filtered.status
    plugin, texts = (rejection.plugin, rejection.reasons) if rejection.code.rejects else (reason.plugin, reason.texts)
    instead = names[int(attempt.best_rows()[0])] if verdicts.feasible else ""
    return Judgement(REFUSED, node, instead, plugin, ", ".join(texts), verdicts.feasible)
