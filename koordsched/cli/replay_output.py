"""What `koordsched replay` prints for people: the result, and how much was replayed."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Console

from koordsched.cli.output import counted, table
from koordsched.journal.comparingreplay import SAME, Comparison
from koordsched.journal.repeatingreplay import Repetition
from koordsched.journal.tally import Tally

MOST_ROWS = 20
"""Differences in the table; -o json lists all."""


def when(time: float) -> str:
    """A time as in RFC 3339, to the millisecond."""
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def print_repetition(out: Console, repetition: Repetition, seconds: float) -> None:
    """The outcome of a replay that took this many seconds."""
    tally, found = repetition.tally, repetition.divergence
    print_tally(out, tally, seconds)
    out.print()
    if found is None:
        ties = f"; {counted(repetition.ties, 'choice')} between equals taken from the record" if repetition.ties else ""
        out.print(f"Every decision is the same{ties}.", style="bold")
        return
    out.print(f"Decision {found.at.number} differs: {found.at.pod}, {when(found.at.time)}", style="bold")
    out.print(f"  recorded: {found.recorded}", soft_wrap=True)
    out.print(f"  now:      {found.repeated}", soft_wrap=True)


def print_comparison(out: Console, comparison: Comparison, seconds: float) -> None:
    """What another configuration would have decided."""
    tally, changed = comparison.tally, comparison.changed
    print_tally(out, tally, seconds)
    out.print()
    if changed:
        rows = table("DECISION", "POD", "RECORDED", "INSTEAD", right=["DECISION"])
        for one in changed[:MOST_ROWS]:
            rows.add_row(str(one.at.number), one.at.pod, one.recorded, one.instead)
        out.print(rows)
        if len(changed) > MOST_ROWS:
            out.print(f"(and {len(changed) - MOST_ROWS} more; -o json lists all)")
        out.print()
    same = comparison.kinds.get(SAME, 0)
    others = [f"{count} {kind}" for kind, count in sorted(comparison.kinds.items()) if kind != SAME]
    out.print(f"{same} of {counted(same + len(changed), 'decision')} the same; {', '.join(others) or 'no other'}.")


def print_tally(out: Console, tally: Tally, seconds: float) -> None:
    """The summary."""
    rate = f" ({tally.decisions / tally.span:.1f} decisions/s)" if tally.span else ""
    runs = f" of {tally.runs} runs" if tally.runs > 1 else ""
    out.print(
        f"{counted(tally.decisions, 'decision')}{runs} on {counted(tally.inputs, 'input')}, {tally.span:.1f} s{rate}"
    )
    out.print(f"  from {when(tally.first)} to {when(tally.last)}")
    failed = f", {counted(tally.unbound, 'binding')} failed" if tally.unbound else ""
    parts = [f"{tally.placed} placed ({tally.bound} bound{failed})", f"{tally.unschedulable} unschedulable"]
    if tally.errors:
        parts.append(counted(tally.errors, "error"))
    if tally.preemptions:
        parts.append(f"{counted(tally.preemptions, 'preemption')} ({counted(tally.victims, 'victim')})")
    out.print(f"  {', '.join(parts)}")
    if tally.resumed:
        out.print("  from a checkpoint on: pods are tried in the order of the journal")
    if seconds:
        out.print(f"  replayed in {seconds:.2f} s ({tally.decisions / seconds:.0f} decisions/s)")
