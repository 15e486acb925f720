"""The expected result of the demonstration, as data, and how the actual one differs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import yaml

from koordsched.cli.demo.observation import Tally


class PendingExpectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pods that must be pending, with the reason and message of their PodScheduled condition."""

    count: int
    reason: str
    message: str


class WorkloadExpectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One workload. `nodes` (how many different ones) and `zones` (zone -> pods) count only where they are given."""

    workload: str
    running: int = 0
    succeeded: int = 0
    nodes: int | None = None
    zones: dict[str, int] | None = None
    pending: list[PendingExpectation] = []

    @property
    def pods(self) -> int:
        """All pods of the workload."""
        return self.running + self.succeeded + sum(pending.count for pending in self.pending)


class Expectations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome on a cluster of this many nodes."""

    nodes: int
    workloads: list[WorkloadExpectation]

    @property
    def pods(self) -> int:
        """All pods."""
        return sum(workload.pods for workload in self.workloads)


def load_expectations(path: Path) -> Expectations:
    """Reads the file. Raises ValueError with the place that is wrong."""
    try:
        return msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), Expectations)
    except (msgspec.ValidationError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {error}") from error


def differences(expected: Expectations, tallies: Mapping[str, Tally]) -> list[str]:
    """A text for everything that is not as expected; empty if all is well."""
    found: list[str] = []
    for workload in expected.workloads:
        tally = tallies.get(workload.workload)
        found += [f"{workload.workload}: {text}" for text in _workload(workload, tally or Tally())]
    known = {workload.workload for workload in expected.workloads}
    found += [f"{name}: was not expected" for name in sorted(tallies.keys() - known)]
    return found


def _workload(expected: WorkloadExpectation, tally: Tally) -> list[str]:
    found = []
    for what in ("running", "succeeded"):
        wanted, there = getattr(expected, what), getattr(tally, what)
        if wanted != there:
            found.append(f"{there} {what}, not {wanted}")
    if expected.nodes is not None and len(tally.nodes) != expected.nodes:
        found.append(f"on {len(tally.nodes)} nodes, not {expected.nodes}")
    if expected.zones is not None and dict(tally.zones) != expected.zones:
        found.append(f"in zones {_listed(tally.zones)}, not {_listed(expected.zones)}")
    wanted_pending = {(pending.reason, pending.message): pending.count for pending in expected.pending}
    for key in wanted_pending.keys() | tally.pending.keys():
        wanted, there = wanted_pending.get(key, 0), tally.pending.get(key, 0)
        if wanted != there:
            found.append(f"{there} pending, not {wanted}, because of {key[0]}: {key[1]}")
    return found


def _listed(zones: Mapping[str, int]) -> str:
    return ", ".join(f"{zone} {count}" for zone, count in sorted(zones.items())) or "none"
