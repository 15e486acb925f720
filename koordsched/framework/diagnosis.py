"""Why no node fits: the text users read, counted over all nodes.

Source: core spec 5.1, upstream `framework/types.go` FitError.
"""

from __future__ import annotations

from collections import Counter

from koordsched.framework.status import Code, Codes, ReasonTable, Status
from koordsched.framework.verdicts import Verdicts

NO_NODES = "no nodes available to schedule pods"
"""The message when the cluster is empty."""


def fit_error(nodes: int, verdicts: Verdicts, reasons: ReasonTable, post_filter: str = "") -> str:
    """`0/<nodes> nodes are available: …`, with the text of the PostFilter plugins at the end if there is one."""
    pre_filter = verdicts.pre_filtered.status
    text = f"0/{nodes} nodes are available:"
    if pre_filter.code.rejects:
        text += f" {pre_filter.message}."
    else:
        text += refusals(verdicts.codes, reasons)
    return f"{text} {post_filter}" if post_filter else text


def refusals(codes: Codes, reasons: ReasonTable) -> str:
    """The reasons that occur, counted, as a message goes on with them: " 3 Insufficient cpu."; "" if there are none."""
    counts: Counter[str] = Counter()
    for code, count in reasons.counted(codes):
        for reason in reasons[code].texts:
            counts[reason] += count
    return f" {_counted(counts)}." if counts else ""


def _counted(reasons: Counter[str]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))


def one_node_error(status: Status) -> str:
    """The same for a pod that a Reserve or Permit plugin rejected on the one node chosen for it."""
    return f"0/1 nodes are available: {_counted(Counter(status.reasons))}."


def rejecting_plugins(verdicts: Verdicts, reasons: ReasonTable) -> tuple[frozenset[str], frozenset[str]]:
    """The plugins that rejected any node, and those of them that are waiting for something (Pending)."""
    plugins: set[str] = set()
    pending: set[str] = set()
    status = verdicts.pre_filtered.status
    if status.code.rejects:
        plugins.add(status.plugin)
        if status.code is Code.PENDING:
            pending.add(status.plugin)
    plugins.update(verdicts.pre_filtered.named_by)
    for code, _ in reasons.counted(verdicts.codes):
        reason = reasons[code]
        if reason.plugin:
            plugins.add(reason.plugin)
            if reason.code is Code.PENDING:
                pending.add(reason.plugin)
    return frozenset(plugins), frozenset(pending)


def first_error(verdicts: Verdicts, reasons: ReasonTable) -> Status | None:
    """The first ERROR that a plugin gave, for the pod or for a node: it ends the cycle."""
    if verdicts.pre_filtered.status.code is Code.ERROR:
        return verdicts.pre_filtered.status
    if not reasons.has_errors:
        return None
    for code, _ in reasons.counted(verdicts.codes):
        reason = reasons[code]
        if reason.code is Code.ERROR:
            return Status(Code.ERROR, reason.texts).of(reason.plugin, f'running "{reason.plugin}" filter plugin')
    return None
