"""Pods that are placed together, as text: where they go, or which of them has no place and what would help."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from koordsched.cli.output import counted, table
from koordsched.engine.jobexplanation import JobExplanation

_FEW_MEMBERS = 10
_EXAMPLES = 3
_FEW_NOTES = 30


def print_job(out: Console, job: JobExplanation, *, wide: bool) -> None:
    """All of it: the members with a place, too."""
    if not job.complete:
        print_refused_job(out, job, wide=wide)
    else:
        out.print(f"Placed together as {job.name}: all that are needed have a place.", soft_wrap=True)
    members = list(job.nodes.items()) if wide else list(job.nodes.items())[:_FEW_MEMBERS]
    if members:
        out.print()
        rows = table("MEMBER", "WOULD GO TO")
        for member, node in members:
            rows.add_row(member, node)
        out.print(rows)
    if len(job.nodes) > len(members):
        out.print(f"… and {len(job.nodes) - len(members)} more that have a place (-o wide lists them)")


def print_refused_job(out: Console, job: JobExplanation, *, wide: bool) -> None:
    """Which member has no place, how many have one, and what would help."""
    number = len(job.nodes) + len(job.untried) + bool(job.refused)
    out.print(f"pending together: {job.name} ({counted(number, 'pod')})", style="bold")
    others = f"{len(job.nodes)} of the pods {'has' if len(job.nodes) == 1 else 'have'} a place"
    if job.untried:
        others += f", {len(job.untried)} {'was' if len(job.untried) == 1 else 'were'} not tried"
    if job.refused:
        out.print(f"  {job.refused} has none; {others}.", soft_wrap=True)
    else:
        out.print(f"  {others}; that is not enough.", soft_wrap=True)
    out.print(f"  {job.message}", soft_wrap=True)
    for refusal in job.refusals:
        nodes, named = counted(refusal.nodes, "node"), _some(refusal.examples, refusal.nodes)
        out.print(f"  {nodes} ({named}), {refusal.plugin}: {', '.join(refusal.reasons)}", soft_wrap=True)
    if job.remedy:
        out.print(f"  {job.remedy}", soft_wrap=True)
    if job.victims:
        named = _some(job.victims[:_EXAMPLES], len(job.victims))
        out.print(f"  Preemption would evict {named}.", soft_wrap=True)
    shown = job.notes if wide else job.notes[:_FEW_NOTES]
    for line in shown:
        out.print(f"  {line}", soft_wrap=True)
    if len(job.notes) > len(shown):
        out.print(f"  … and {len(job.notes) - len(shown)} lines more (-o wide shows them)")


def _some(names: Sequence[str], number: int) -> str:
    rest = number - len(names)
    return ", ".join(names) + (f" and {rest} more" if rest > 0 else "")
