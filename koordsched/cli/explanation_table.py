"""An explanation as tables: readable for five nodes and for five thousand.

Feasible nodes are listed best first, with a column per plugin whose scores differ; plugins that score all of them alike
are named below. Refused nodes are grouped by plugin and reasons. For the first nodes of each group, the numbers that
plugins report are shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from koordsched.cli.job_table import print_job
from koordsched.cli.output import counted, table
from koordsched.cli.refusal_table import print_refusal
from koordsched.engine.explain import NOT_LOOKED_AT, Explanation, NodeVerdict, Score
from koordsched.scheduling.advice import WAITS, Advice

_EXAMPLES = 3


def print_explanation(
    out: Console, explanation: Explanation, advice: Advice | None, top: int, *, wide: bool = False
) -> None:
    """Prints all of it; of the feasible nodes the `top` best. `wide`: the scores of all plugins, all refused nodes."""
    feasible = [node for node in explanation.nodes if node.feasible]
    refused = [node for node in explanation.nodes if not node.feasible]
    out.print(f"{titled(explanation)}, profile {explanation.profile}", style="bold")
    out.print(_headline(explanation, len(feasible)), soft_wrap=True)
    if explanation.job is not None:
        out.print()
        print_job(out, explanation.job, wide=wide)
    for plugin, lines in explanation.notes.items():
        out.print()
        out.print(f"{plugin}:")
        for line in lines:
            out.print(f"  {line}", soft_wrap=True)
    if explanation.refusal is not None:
        out.print()
        print_refusal(out, explanation.rejected_by or explanation.gated_by, explanation.refusal)
    if explanation.any_of:
        out.print()
        _print_scores(out, explanation, feasible, top, wide=wide)
        _print_details(out, sorted(feasible, key=lambda node: (-(node.total or 0), node.name)))
    if refused:
        out.print()
        _print_refusals(out, refused, wide=wide)
    if advice is not None and not explanation.any_of and not explanation.gated_by and explanation.job is None:
        out.print()
        _print_advice(out, explanation, advice)


def titled(explanation: Explanation) -> str:
    """What the explanation is of."""
    return explanation.pod if explanation.virtual else f"Pod {explanation.pod}"


def _headline(explanation: Explanation, feasible: int) -> str:
    if explanation.gated_by:
        return f"Not evaluated: {explanation.gated_by}: {explanation.message}"
    if explanation.any_of:
        names = _some(explanation.any_of)
        chosen = names if len(explanation.any_of) == 1 else f"any of {names}"
        if explanation.job is not None and not explanation.job.complete:
            return f"Pending: it is placed together with others. Alone it could go to {chosen}."
        return f"Goes to {chosen}: {feasible} of {counted(len(explanation.nodes), 'node')} feasible."
    reason = explanation.reason or "Pending"
    return f"{reason}: {explanation.message}"


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _EXAMPLES
    return ", ".join(names[:_EXAMPLES]) + (f" and {rest} more" if rest > 0 else "")


def _print_scores(out: Console, explanation: Explanation, feasible: list[NodeVerdict], top: int, *, wide: bool) -> None:
    if not explanation.scored:
        name = feasible[0].name
        if any(NOT_LOOKED_AT in node.reasons for node in explanation.nodes):
            out.print(f"{name} is preferred or nominated: it was tried before others and is taken without scoring.")
        else:
            out.print(f"{name} is the only feasible node and is taken without scoring.")
        return
    plugins = list(feasible[0].scores)
    differing = [name for name in plugins if wide or len({_same(node.scores[name]) for node in feasible}) > 1]
    weights = {name: feasible[0].scores[name].weight for name in plugins}
    titles = [f"{name} x{weights[name]}" for name in differing]
    rows = table("NODE", "TOTAL", *titles, right=["TOTAL", *titles])
    ranked = sorted(feasible, key=lambda node: (-(node.total or 0), node.name))
    for node in ranked[:top]:
        cells = [_cell(node.scores[name]) for name in differing]
        rows.add_row(node.name, str(node.total), *cells)
    out.print(rows)
    if len(ranked) > top:
        last = ranked[-1]
        out.print(f"… and {len(ranked) - top} more, down to a total of {last.total} ({last.name})")
    alike = [
        f"{name} {score.weighted}"
        for name in plugins
        if name not in differing and (score := feasible[0].scores[name]) is not None
    ]
    if differing:
        out.print("(score = normalised x weight; the raw score in brackets if it is different)")
    if alike:
        out.print(f"The same on all of them: {', '.join(alike)}")


def _same(score: Score) -> tuple[int, int]:
    return score.raw, score.weighted


def _cell(score: Score) -> str:
    return f"{score.weighted}" if score.raw == score.normalized else f"{score.weighted} ({score.raw})"


def _print_refusals(out: Console, refused: list[NodeVerdict], *, wide: bool) -> None:
    groups: dict[tuple[str, str, tuple[str, ...]], list[NodeVerdict]] = {}
    for node in refused:
        groups.setdefault((node.plugin, node.status, tuple(node.reasons)), []).append(node)
    rows = table("REFUSED", "PLUGIN", "REASONS", "NODES", right=["REFUSED"])
    largest_first = sorted(groups.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    for (plugin, status, reasons), nodes in largest_first:
        text = ", ".join(reasons)
        if status == "Unschedulable":
            text += " (fewer pods may help)"
        names = [node.name for node in nodes]
        rows.add_row(str(len(nodes)), plugin or "-", text, ", ".join(names) if wide else _some(names))
    out.print(rows)
    _print_details(out, *(nodes for _, nodes in largest_first))


def _print_details(out: Console, *groups: list[NodeVerdict]) -> None:
    """What plugins report about nodes of each group: about all of which they say the same at once, and the first of
    these."""
    shown: list[tuple[list[str], dict[str, list[str]]]] = []
    for nodes in groups:
        alike: dict[tuple[tuple[str, tuple[str, ...]], ...], list[NodeVerdict]] = {}
        for node in nodes:
            if node.details:
                alike.setdefault(tuple((name, tuple(lines)) for name, lines in node.details.items()), []).append(node)
        shown += [([node.name for node in found], found[0].details) for found in list(alike.values())[:_EXAMPLES]]
    if shown:
        out.print()
    for names, details in shown:
        for plugin, lines in details.items():
            out.print(f"{_some(names)}, {plugin}:", soft_wrap=True)
            for line in lines:
                out.print(f"  {line}", soft_wrap=True)


def _print_advice(out: Console, explanation: Explanation, advice: Advice) -> None:
    out.print(advice.text, style="bold", soft_wrap=True)
    if advice.remedies:
        title = "IT WOULD TAKE" if advice.verdict == WAITS else "IT WOULD NEED"
        rows = table("NODES", "CLOSEST", title, right=["NODES"])
        for remedy in advice.remedies:
            changes = "; ".join(change.text for change in remedy.changes)
            rows.add_row(str(remedy.nodes), remedy.node, changes)
        out.print(rows)
    if explanation.victims:
        out.print(
            f"Preemption would evict from {explanation.nominated_node}: {_some(explanation.victims)}", soft_wrap=True
        )
