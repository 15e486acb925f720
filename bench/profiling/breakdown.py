"""Sampled stacks as shares: by package, and by function."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import orjson
from rich.table import Table

from bench.profiling.sampler import Stack

LOOP = "koordsched.cli.starting:start"
"""Innermost where the event loop itself is at work."""

EVENT_LOOP = "event loop: sockets, TLS, timers, tasks"
TOP = 25


class Breakdown:
    """CPU seconds by where they were spent: in a function itself (`own`), or in it and what it calls (`total`)."""

    def __init__(self, stacks: Iterable[tuple[Stack, float]]) -> None:
        self.seconds = 0.0
        self.by_package: defaultdict[str, float] = defaultdict(float)
        self.own: defaultdict[str, float] = defaultdict(float)
        self.total: defaultdict[str, float] = defaultdict(float)
        for stack, seconds in stacks:
            self.seconds += seconds
            innermost = EVENT_LOOP if not stack or stack[0] == LOOP else stack[0]
            self.by_package[_package(innermost)] += seconds
            self.own[innermost] += seconds
            for function in set(stack):
                self.total[function] += seconds

    @classmethod
    def load(cls, path: Path) -> Breakdown:
        """Reads what the sampler saved."""
        return cls((tuple(stack), seconds) for stack, seconds in orjson.loads(path.read_bytes()))

    def packages(self, microseconds: float) -> Table:
        """Time per package, out of so many microseconds of CPU per pod."""
        table = Table(title=f"{microseconds:,.0f} µs of CPU per pod, by package")
        table.add_column("package")
        table.add_column("µs", justify="right")
        table.add_column("share", justify="right")
        for package, seconds in _largest(self.by_package):
            share = seconds / self.seconds
            table.add_row(package, f"{share * microseconds:.1f}", f"{share:.1%}")
        return table

    def functions(self, microseconds: float) -> Table:
        """The functions where most of it goes."""
        table = Table(title="by function")
        for heading in ("function", "µs itself", "µs with callees"):
            table.add_column(heading, justify="left" if heading == "function" else "right", no_wrap=True)
        for function, seconds in _largest(self.own)[:TOP]:
            own = seconds / self.seconds * microseconds
            total = self.total.get(function, seconds) / self.seconds * microseconds
            table.add_row(function.removeprefix("koordsched."), f"{own:.1f}", f"{total:.1f}")
        return table


def _largest(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda entry: -entry[1])


def _package(function: str) -> str:
    if function == EVENT_LOOP:
        return function
    parts = function.partition(":")[0].split(".")
    return ".".join(parts[1:3] if parts[1] == "plugins" else parts[1:2])
