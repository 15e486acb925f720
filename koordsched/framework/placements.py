"""Placements: sets of nodes, on one of which all pods of a group have to be placed.

A `PlacementGenerate` plugin says which there are. The group is tried on each, and that one is taken on which it has its
place and which the `PlacementScore` plugins score highest.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from koordsched.cluster.changelog import RowArray
from koordsched.framework.interface import Plugin
from koordsched.framework.jobs import GroupJob
from koordsched.framework.status import Code, Status

NO_PLACEMENT = Status(Code.UNSCHEDULABLE, ("no feasible placements found",))


def none_fits(placements: int, first: str) -> str:
    """The group has no place on any of so many placements; `first`: what it would read of the first."""
    return f"0/{placements} placements are available, first placement status: {first}"


class Placement(NamedTuple):
    """Nodes. `rows`: in ascending order; `name`: for logs."""

    name: str
    rows: RowArray


class PlacementGenerate(Plugin):
    """Says where the pods of a group may be placed together."""

    @abstractmethod
    def placements(self, group: GroupJob) -> Sequence[Placement] | Status | None:
        """The candidates, None if any nodes will do; a rejection or an ERROR ends the attempt."""


class PlacementScore(Plugin):
    """Prefers placements."""

    @abstractmethod
    def score_placement(self, group: GroupJob, rows: RowArray) -> int:
        """The raw score of these rows; asked while the members are placed there."""

    def normalize_placements(self, scores: Sequence[int]) -> Sequence[int]:
        """Raw scores of all placements to 0..100. Default: they are that already."""
        return scores


def totals(scorers: Sequence[tuple[PlacementScore, int]], raw: Sequence[Sequence[int]]) -> list[int]:
    """The weighted scores of placements. `raw`: per placement the raw scores in the order of the scorers."""
    found = [0] * len(raw)
    for at, (plugin, weight) in enumerate(scorers):
        for number, score in enumerate(plugin.normalize_placements([scores[at] for scores in raw])):
            found[number] += weight * score
    return found


def highest(scores: Sequence[int]) -> list[int]:
    """The numbers of the placements with the highest score."""
    most = max(scores)
    return [number for number, score in enumerate(scores) if score == most]
