"""The loads of nodes as columns of the node table: what decides about a row.

Two classes of pods see a node differently where thresholds or scores for production are in force: [PROD] holds for
pods of production, [PLAIN] for all others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from koordsched.cluster.columns import Column
from koordsched.cluster.nodetable import NodeTable
from koordsched.plugins.loadaware.estimation import Vector

PLAIN, PROD = 0, 1

PASSES, CHECKED, EXPIRED = 0, 1, 2
"""What Filter does with a row: it lets every pod pass, compares usage with limits, refuses every pod."""


class View(NamedTuple):
    """What Filter and Score read of a node for one class of pods.

    `used`: what is compared with `limits`, in percent of what the node has, 0 for none. `aggregated`: whether that is a
    statistic, which the reason says. `scored`: what is scored, None for a node that scores 0.
    """

    gate: int
    used: Vector
    limits: Vector
    aggregated: bool
    scored: Vector | None


class Reading(NamedTuple):
    """What decides whether a node is refused to pods of one class."""

    gate: int
    used: list[int]
    limits: list[int]
    total: list[int]

    def refuses(self, amounts: Vector | None) -> bool:
        """Whether a pod that is expected to use this is refused; None: that uses nothing."""
        return self.gate == EXPIRED or (self.gate == CHECKED and self.first_exceeded(amounts) >= 0)

    def first_exceeded(self, amounts: Vector | None) -> int:
        """The first resource of which the pod would make the node use too much; -1 if there is none."""
        for at, (used, limit, total) in enumerate(zip(self.used, self.limits, self.total, strict=True)):
            if limit > 0 and total > 0:
                expected = used + amounts[at] if amounts is not None else used
                # Rounded to the nearest percent, halves up, it is above the limit from half a percent above it on.
                if float(expected) / float(total) * 100 >= limit + 0.5:
                    return at
        return -1

    def eases(self, before: Reading) -> bool:
        """Whether some pod may pass that did not before."""
        if before.gate == PASSES or self.gate == EXPIRED:
            return False
        return (
            self.gate != before.gate
            or self.limits != before.limits
            or self.total != before.total
            or any(now < then for now, then in zip(self.used, before.used, strict=True))
        )


class LoadColumns:
    """`total`, `used`, `limits`, `scored`: int64[rows, resources], the last three by class; `gate`: int8[rows]."""

    def __init__(self, table: NodeTable, width: int) -> None:
        def both(dtype: type[np.generic], width: int = 0) -> tuple[Column, Column]:
            return table.column(dtype, width=width), table.column(dtype, width=width)

        self.facet = table.add_facet()
        self.total = table.column(np.int64, width=width)
        self.used = both(np.int64, width)
        self.limits = both(np.int64, width)
        self.gate = both(np.int8)
        self.aggregated = both(np.bool_)
        self.scored = both(np.int64, width)
        self.scorable = table.column(np.bool_)
        self._table = table

    def write(self, row: int, total: Vector, views: tuple[View, View]) -> None:
        """Stores what a node is like."""
        self.total.data[row] = total
        for kind, view in enumerate(views):
            self.used[kind].data[row] = view.used
            self.limits[kind].data[row] = view.limits
            self.gate[kind].data[row] = view.gate
            self.aggregated[kind].data[row] = view.aggregated
            if view.scored is not None:
                self.scored[kind].data[row] = view.scored
        self.scorable.data[row] = views[PLAIN].scored is not None
        self._table.touch(row, self.facet)

    def add(self, row: int, amounts: Vector) -> None:
        """A pod adds so much to what the node uses, for both classes."""
        for used, scored in zip(self.used, self.scored, strict=True):
            used_here, scored_here = used.data[row], scored.data[row]
            for i, amount in enumerate(amounts):
                used_here[i] += amount
                scored_here[i] += amount
        self._table.touch(row, self.facet)

    def reading(self, row: int, kind: int) -> Reading:
        """What decides about a row for a class of pods."""
        return Reading(
            self.gate[kind].data.item(row),
            self.used[kind].data[row].tolist(),
            self.limits[kind].data[row].tolist(),
            self.total.data[row].tolist(),
        )
