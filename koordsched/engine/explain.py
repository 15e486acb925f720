"""The same evaluation as in scheduling, with its reasons: every plugin's verdict and score on every node.

Changes nothing. The schema of `Explanation` is stable; it is documented in docs/explain.md.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import numpy as np

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.engine.attempt import Attempt, gated_by, internal_error
from koordsched.engine.jobexplanation import JobExplanation, Jobs, explain_job
from koordsched.framework.explaining import ExplainsNodes, ExplainsPods, ExplainsRefusals, ExplainsVerdicts
from koordsched.framework.profile import Profile
from koordsched.framework.scoring import PluginScores, ScoringFailed
from koordsched.framework.status import PASS
from koordsched.framework.verdicts import Verdicts

_log = logging.getLogger(__name__)

NOT_LOOKED_AT = "not looked at"
"""The reason of a node where a preferred or nominated one was tried first and passed."""


class Score(msgspec.Struct):
    """One plugin's score for one node: raw, 0..100 after normalising, weight, and the product."""

    raw: int
    normalized: int
    weight: int
    weighted: int


class NodeVerdict(msgspec.Struct, rename="camel"):
    """One node: whether the pod fits and what each plugin scores it, or which plugin refuses it and why.

    `details`: plugin -> the numbers that decide, of the plugin that refuses the node, or of all if none does.
    """

    name: str
    feasible: bool
    plugin: str = ""
    reasons: tuple[str, ...] = ()
    status: str = ""
    scores: dict[str, Score] = {}
    total: int | None = None
    details: dict[str, list[str]] = {}


class Explanation(msgspec.Struct, rename="camel"):
    """What the scheduler would do with a pod right now.

    `any_of`: the nodes of maximal total, any of which is right; empty if there is none. `message`: the text
    of the PodScheduled condition if the pod does not fit. `rejected_by`: set if a plugin rejected the pod
    before any node was looked at, or `gated_by` if one keeps it out of the queue; `refusal` has what that plugin can
    say about it. `nominated_node` and `victims`: what preemption would do. `virtual`: `pod` is no pod, but another
    object that is scheduled as one. `notes`: plugin -> what it says about the pod, whatever the node, in lines of text.
    `job`: the pods that are placed together with it, None if it is placed alone; the rest is about the pod as if it
    were.
    """

    pod: str
    profile: str
    nodes: list[NodeVerdict]
    any_of: list[str]
    message: str = ""
    reason: str = ""
    rejected_by: str = ""
    refusal: Any = None
    gated_by: str = ""
    nominated_node: str | None = None
    victims: list[str] = []
    scored: bool = False
    virtual: bool = False
    notes: dict[str, list[str]] = {}
    job: JobExplanation | None = None


def explain(profile: Profile, cluster: ClusterState, pod: Pod, jobs: Jobs | None = None) -> Explanation:
    """Evaluates the pod on the cluster as it is. `jobs`: None leaves out those that are placed together with it."""
    result = Explanation(pod.title, profile.name, [], [], virtual=pod.virtual)
    try:
        _evaluate(result, profile, cluster, pod, jobs)
    except Exception as error:  # a bug of a plugin is what the attempt would end with
        _log.exception("explaining %s failed", pod.title)
        result.message, result.reason = internal_error(error), "SchedulerError"
    return result


def _evaluate(result: Explanation, profile: Profile, cluster: ClusterState, pod: Pod, jobs: Jobs | None) -> None:
    result.job = explain_job(profile, cluster, pod, jobs) if jobs is not None else None
    gate = gated_by(profile, pod)
    if not gate.ok:
        result.gated_by, result.message, result.reason = gate.plugin, gate.message, "SchedulingGated"
        result.refusal = _refusal(profile, gate.plugin, pod)
        return
    attempt = Attempt(profile, cluster, pod)
    if not attempt.has_nodes:
        result.message, result.reason = attempt.message(), "Unschedulable"
        return
    verdicts = attempt.filter()
    result.nodes = _nodes(profile, cluster, verdicts)
    _add_details(result.nodes, profile, cluster, attempt)
    result.notes = {
        name: lines
        for name, plugin in profile.plugins.items()
        if isinstance(plugin, ExplainsPods) and (lines := plugin.explain_pod(attempt.cycle))
    }
    error = attempt.error()
    if error is not None:
        result.message, result.reason = error.message, "SchedulerError"
        return
    rejection = verdicts.pre_filtered.status
    if rejection.code.rejects:
        result.rejected_by = rejection.plugin
        result.refusal = _refusal(profile, rejection.plugin, pod)
    if not verdicts.feasible:
        outcome = attempt.post_filter()
        result.message, result.reason = attempt.message(outcome), "Unschedulable"
        result.nominated_node = outcome.nominated_node
        result.victims = [victim.title for victim in outcome.victims]
        return
    try:
        _score(result, attempt)
    except ScoringFailed as failed:
        result.message, result.reason = str(failed), "SchedulerError"


def _nodes(profile: Profile, cluster: ClusterState, verdicts: Verdicts) -> list[NodeVerdict]:
    table, reasons = cluster.table, profile.handle.reasons
    rejection = verdicts.pre_filtered.status
    nodes = []
    for name, row in sorted(table.row_of.items()):
        code = int(verdicts.codes[row])
        if rejection.code.rejects:
            nodes.append(NodeVerdict(name, False, rejection.plugin, rejection.reasons, rejection.code.text))
        elif code == PASS:
            nodes.append(NodeVerdict(name, True))
        else:
            reason = reasons[code]
            if verdicts.alone and not reason.plugin:
                nodes.append(NodeVerdict(name, False, reasons=(NOT_LOOKED_AT,)))
                continue
            nodes.append(NodeVerdict(name, False, reason.plugin, reason.texts, reason.code.text))
    return nodes


def _refusal(profile: Profile, name: str, pod: Pod) -> Any:
    """What the plugin that rejected the pod can say about it; None if nothing."""
    plugin = profile.plugins.get(name)
    return plugin.explain_refusal(pod) if isinstance(plugin, ExplainsRefusals) else None


def _add_details(nodes: list[NodeVerdict], profile: Profile, cluster: ClusterState, attempt: Attempt) -> None:
    for plugin in profile.plugins.values():
        if not isinstance(plugin, ExplainsNodes | ExplainsVerdicts):
            continue
        asked = [node for node in nodes if node.feasible or node.plugin == plugin.name]
        if not asked:
            continue
        rows = np.array([cluster.table.row_of[node.name] for node in asked], dtype=np.intp)
        if isinstance(plugin, ExplainsNodes):
            said = plugin.explain_nodes(attempt.pod.shape, rows)
        else:
            said = plugin.explain_verdicts(attempt.cycle, rows)
        for node, lines in zip(asked, said, strict=True):
            if lines:
                node.details[plugin.name] = lines


def _score(result: Explanation, attempt: Attempt) -> None:
    names, verdicts = attempt.cluster.table.names, attempt.verdicts
    if verdicts.feasible == 1:
        result.any_of = [names[int(verdicts.rows[0])]]  # chosen without scoring
        return
    scored = attempt.score().by_plugin(attempt.profile.chains)
    by_name = {node.name: node for node in result.nodes}
    totals: dict[str, int] = {}
    for position, row in enumerate(verdicts.rows.tolist()):
        node = by_name[names[row]]
        node.scores = {column.plugin: _one(column, position) for column in scored}
        node.total = totals[node.name] = sum(of.weighted for of in node.scores.values())
    best = max(totals.values())
    result.any_of = sorted(name for name, total in totals.items() if total == best)
    result.scored = True


def _one(column: PluginScores, position: int) -> Score:
    normalized = int(column.normalized[position])
    return Score(int(column.raw[position]), normalized, column.weight, normalized * column.weight)
