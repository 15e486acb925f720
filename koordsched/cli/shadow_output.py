"""The report of a trial beside another scheduler, as tables."""

from __future__ import annotations

from rich.console import Console

from koordsched.cli.dumptime import time_text
from koordsched.cli.output import counted, table
from koordsched.shadow.judgement import ELSEWHERE, EQUAL, FAILED, REFUSED, SAME
from koordsched.shadow.shadow import PATIENCE
from koordsched.shadow.tally import Difference, Reason, Report, Times, Waited

_KINDS = {
    SAME: "the same node",
    EQUAL: "a node of equal score",
    ELSEWHERE: "another node scores higher here",
    REFUSED: "the node is refused here",
    FAILED: "no answer",
}
_MOST_REASONS = 10
_MOST_WAITED = 10


def print_report(out: Console, report: Report, top: int) -> None:
    """Prints it, with the scores of the `top` latest differences."""
    began, ended = time_text(report.began), time_text(report.ended)
    out.print(f"Beside {report.scheduler} on {counted(report.nodes, 'node')}, {began} to {ended}", style="bold")
    out.print()
    rows = table("DECISIONS", "SHARE", "", right=["DECISIONS", "SHARE"])
    for kind, count in report.kinds.items():
        if count:
            rows.add_row(str(count), f"{100 * count / report.decisions:.1f} %", _KINDS[kind])
    rows.add_row(str(report.decisions), "", "pods placed by the other scheduler")
    out.print(rows)
    if report.unseen:
        out.print(f"{counted(report.unseen, 'pod')} more had a node when first seen.")
    if report.decisions:
        out.print()
        out.print(f"Time of a decision here: {_times(report.deciding)}")
        out.print(f"Time from a pod's appearance to its binding there: {_times(report.binding)}")
    if report.reasons:
        out.print()
        _print_reasons(out, report.reasons)
    _print_differences(out, [one for one in report.differences if one.judgement.ours is not None][:top])
    out.print()
    _print_waited(out, report)


def _times(times: Times) -> str:
    if times.median is None or times.most is None:
        return "none measured"
    return f"{_seconds(times.median)} (median), {_seconds(times.most)} (99 of 100 are shorter)"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.1f} s"


def _print_reasons(out: Console, reasons: list[Reason]) -> None:
    rows = table("PODS", "WHY", "EXAMPLE", right=["PODS"])
    for reason in reasons[:_MOST_REASONS]:
        rows.add_row(str(reason.pods), _why(reason), _example(reason.example))
    out.print(rows)
    if len(reasons) > _MOST_REASONS:
        out.print(f"(and {counted(len(reasons) - _MOST_REASONS, 'more reason')}; -o json has all)")


def _why(reason: Reason) -> str:
    if reason.kind == ELSEWHERE:
        return f"{reason.plugin} prefers another node" if reason.plugin else reason.reason
    text = f"{reason.plugin}: {reason.reason}" if reason.plugin else reason.reason
    return f"refused: {text}" if reason.kind == REFUSED else f"no answer: {text}"


def _example(example: Difference) -> str:
    judgement = example.judgement
    if judgement.instead:
        return f"{example.pod}: {judgement.instead} instead of {judgement.node}"
    return f"{example.pod}: not {judgement.node}" + (", nor any other node" if judgement.kind == REFUSED else "")


def _print_differences(out: Console, differences: list[Difference]) -> None:
    """The weighted scores of both nodes, by the plugins that tell them apart."""
    for difference in differences:
        theirs, ours = difference.judgement.theirs, difference.judgement.ours
        if theirs is None or ours is None:
            continue
        differing = [name for name in ours.scores if ours.scores[name] != theirs.scores[name]]
        rows = table("NODE", "", "TOTAL", *differing, right=["TOTAL", *differing])
        for ranked, where in ((ours, "here"), (theirs, "there")):
            rows.add_row(ranked.node, where, str(ranked.total), *(str(ranked.scores[name]) for name in differing))
        out.print()
        feasible = counted(difference.judgement.feasible, "node")
        out.print(f"{difference.pod}, {time_text(difference.time)}: {feasible} feasible", soft_wrap=True)
        out.print(rows)


def _print_waited(out: Console, report: Report) -> None:
    if not report.waited:
        out.print(
            f"{counted(report.waiting, 'pod')} waiting. None waited longer than {PATIENCE:.0f} s while there was a "
            "node for it here."
        )
        return
    rows = table("WAITED WITHOUT NEED", "SINCE", "NODE HERE", "FROM", "THERE", "THE OTHER SCHEDULER SAID")
    for waited in report.waited[:_MOST_WAITED]:
        rows.add_row(
            waited.pod,
            time_text(waited.since),
            waited.node,
            time_text(waited.placeable),
            _ending(waited),
            waited.message or "-",
        )
    out.print(rows)
    rest = len(report.waited) - _MOST_WAITED
    out.print(
        f"{counted(report.waiting, 'pod')} waiting. {len(report.waited)} waited although there was a node here"
        + (" (-o json has all)." if rest > 0 else ".")
    )


def _ending(waited: Waited) -> str:
    if waited.seconds is None:
        return "waits"
    return f"{waited.placed or 'gone'} after {_seconds(waited.seconds)}"
