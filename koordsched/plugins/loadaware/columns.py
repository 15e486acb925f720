"""The loads of nodes as columns of the node table: what decides about a row.

Two classes of pods see a node differently where thresholds or scores for production are in force: [PROD] holds for
pods of production, [PLAIN] for all others.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from koordsched.cluster.nodetable import NodeTable
from koordsched.plugins.loadaware.estimation import Vector

PLAIN, PROD = 0, 1

PASSES, CHECKED, EXPIRED = 0, 1, 2
"""What Filter does with a row: it lets every pod pass, compares usage with limits, refuses every pod."""

_ENDLESS = 1 << 60


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


class LoadColumns:
    """`gate`: int8[rows, classes]; `aggregated`: bool[rows, classes]; `total`: int64[rows, resources].

    `slack`: int64[rows, 2 * classes * resources]: how much more pods of each class may use before the node is refused,
    then what the node has beyond the usage that is scored. Either is far below zero where nothing is admitted, or
    scored, as on rows without a node. A pod that is placed takes the same from all of them.
    """

    def __init__(self, table: NodeTable, width: int) -> None:
        self.facet = table.add_facet()
        self.total = table.column(np.int64, width=width)
        self.slack = table.column(np.int64, fill=-_ENDLESS, width=4 * width)
        self.gate = table.column(np.int8, width=2)
        self.aggregated = table.column(np.bool_, width=2)
        self._table = table
        self._room = tuple(slice(kind * width, (kind + 1) * width) for kind in (PLAIN, PROD))
        self._rooms = slice(2 * width)
        self._left = tuple(slice((2 + kind) * width, (3 + kind) * width) for kind in (PLAIN, PROD))
        self._amounts: dict[Vector, npt.NDArray[np.int64]] = {}

    def write(self, row: int, total: Vector, views: tuple[View, View]) -> None:
        """Stores what a node is like."""
        plain, prod = views
        room, left = _room(plain, total), _left(plain, total)
        if prod is plain:
            slack = [*room, *room, *left, *left]
        else:
            slack = [*room, *_room(prod, total), *left, *_left(prod, total)]
        self.total.data[row] = total
        self.slack.data[row] = slack
        self.gate.data[row] = [view.gate for view in views]
        self.aggregated.data[row] = [view.aggregated for view in views]
        self._table.touch(row, self.facet)

    def add(self, row: int, amounts: Vector) -> None:
        """A pod adds so much to what the node uses, for both classes."""
        found = self._amounts.get(amounts)
        if found is None:
            if len(self._amounts) >= 1024:
                self._amounts.clear()
            found = self._amounts[amounts] = np.array(amounts * 4, dtype=np.int64)
        self.slack.data[row] -= found
        self._table.touch(row, self.facet)

    def room(self, row: int, kind: int) -> list[int]:
        """How much pods of a class may use on a row, by resource: one that is expected to use more is refused."""
        room: list[int] = self.slack.data[row, self._room[kind]].tolist()
        return room

    def both_rooms(self, row: int) -> list[int]:
        """The room for pods of either class, PLAIN first, by resource."""
        room: list[int] = self.slack.data[row, self._rooms].tolist()
        return room

    def rooms(self, rows: slice | npt.NDArray[np.intp], kind: int) -> npt.NDArray[np.int64]:
        """The same for many rows: int64[rows, resources]."""
        found: npt.NDArray[np.int64] = self.slack.data[rows, self._room[kind]]
        return found

    def left(self, row: int, kind: int) -> list[int]:
        """What a row has beyond the usage that is scored, by resource."""
        left: list[int] = self.slack.data[row, self._left[kind]].tolist()
        return left

    def lefts(self, rows: slice | npt.NDArray[np.intp], kind: int) -> npt.NDArray[np.int64]:
        """The same for many rows: int64[rows, resources]."""
        found: npt.NDArray[np.int64] = self.slack.data[rows, self._left[kind]]
        return found


def _room(view: View, total: Vector) -> list[int]:
    if view.gate == EXPIRED:
        return [-_ENDLESS] * len(total)
    if view.gate == PASSES:
        return [_ENDLESS] * len(total)
    return [
        max(-_ENDLESS, min(_ENDLESS, most - used))
        for most, used in zip(room_for(view.limits, total), view.used, strict=True)
    ]


def _left(view: View, total: Vector) -> list[int]:
    if view.scored is None:
        return [-_ENDLESS] * len(total)
    return [max(-_ENDLESS, min(_ENDLESS, whole - used)) for whole, used in zip(total, view.scored, strict=True)]


def room_for(limits: Vector, total: Vector) -> list[int]:
    """How much may be in use of each resource; without a limit, practically unlimited."""
    return [
        _most(whole, limit) if limit > 0 and whole > 0 else _ENDLESS for whole, limit in zip(total, limits, strict=True)
    ]


@lru_cache(maxsize=65536)
def _most(total: int, limit: int) -> int:
    """The largest amount that is, rounded to the nearest percent of `total`, not above `limit`.

    Halves are rounded up: above the limit is what is half a percent above it. In floating point, as upstream computes.
    Source: loadaware spec 3.3, step 9.
    """
    bound = limit + 0.5
    most = int(total * bound / 100)
    if most >= _ENDLESS:
        return _ENDLESS
    while float(most) / float(total) * 100 >= bound:
        most -= 1
    while float(most + 1) / float(total) * 100 < bound:
        most += 1
    return most
