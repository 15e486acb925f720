"""Progress, live on a terminal and line by line elsewhere, and the tables at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from koordsched.cli.demo.observation import Tally
from koordsched.cli.output import table

_BAR = 20
_LINE_EVERY = 1.0
"""Seconds between lines where there is no terminal."""


class Progress:
    """Shows progress. A context manager: inside, `update` may be called at any rate."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._live = Live(console=out, refresh_per_second=8, transient=True) if out.is_terminal else None
        self._last = ("", -_LINE_EVERY)

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def step(self, text: str) -> None:
        """Something has been done."""
        self._out.print(text, soft_wrap=True)

    def update(self, elapsed: float, tallies: Mapping[str, Tally]) -> None:
        """The state of the pods, `elapsed` seconds after the workloads were applied."""
        line = _line(tallies)
        if self._live is not None:
            self._live.update(Group(_bars(tallies), Text(f"{elapsed:5.1f} s  {line}")))
            return
        text, at = self._last
        if line != text and elapsed - at >= _LINE_EVERY:
            self._last = (line, elapsed)
            self._out.print(f"{elapsed:5.1f} s  {line}")


def _line(tallies: Mapping[str, Tally]) -> str:
    pods = sum(tally.pods for tally in tallies.values())
    placed = sum(tally.placed for tally in tallies.values())
    up = sum(tally.running + tally.succeeded for tally in tallies.values())
    pending = sum(tally.pending.total() for tally in tallies.values())
    return f"{placed} of {pods} pods placed, {up} running or done, {pending} pending with a reason"


def _bars(tallies: Mapping[str, Tally]) -> Table:
    rows = table("WORKLOAD", "PLACED", "", "UP", right=["PLACED", "UP"])
    for workload, tally in tallies.items():
        full = _BAR * tally.placed // max(tally.pods, 1)
        bar = Text.assemble(("━" * full, "green"), ("━" * (_BAR - full), "dim"))
        rows.add_row(workload, f"{tally.placed}/{tally.pods}", bar, str(tally.running + tally.succeeded))
    return rows


def placements(tallies: Mapping[str, Tally]) -> RenderableType:
    """What was placed where."""
    numbers = ["PODS", "RUNNING", "DONE", "PENDING", "NODES"]
    rows = table("WORKLOAD", *numbers, "ZONES", right=numbers)
    for workload, tally in tallies.items():
        zones = ", ".join(f"{zone} {count}" for zone, count in sorted(tally.zones.items()))
        waiting = tally.pending.total() + tally.waiting
        counts = (tally.pods, tally.running, tally.succeeded, waiting, len(tally.nodes))
        rows.add_row(workload, *(str(count) if count else "-" for count in counts), zones or "-")
    return rows


def print_pending(out: Console, tallies: Mapping[str, Tally]) -> None:
    """What is pending, and why, with the message of the condition."""
    for workload, tally in tallies.items():
        for (reason, message), count in tally.pending.items():
            out.print(f"pending: {workload}, {count} pod{'s' if count > 1 else ''}", style="bold")
            out.print(f"  {reason}: {message}", soft_wrap=True)
        if tally.waiting:
            out.print(f"pending: {workload}, {tally.waiting} without a reason", style="bold")


def print_differences(out: Console, found: Sequence[str]) -> None:
    """What is not as expected."""
    out.print("Not as expected:", style="bold red")
    for text in found:
        out.print(f"  {text}", soft_wrap=True)
