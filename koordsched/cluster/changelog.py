"""Which rows changed since a reader looked last, in the facets that it reads.

Every change of a row is stamped, per facet, with a serial number, and the most recent ones are also kept as a list. A
reader that looks often reads the tail of the list (a handful of entries, whatever the size of the cluster); one that
has not looked for long compares stamps, a vectorised pass over the rows. Neither can miss a change, and nothing has to
be trimmed in step with the slowest reader.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

RowArray = npt.NDArray[np.intp]
"""Row numbers."""

_TAIL = 32
_FEW = 8
_KEEP = 4096


class Facet:
    """What of a node changed, as bits. Plugins with columns of their own register more (`NodeTable.add_facet`).

    Plain integers: these are combined and tested several times per scheduling cycle, where an enum is too slow.
    """

    RESOURCES: Final = 1
    """Allocatable, requested, number of pods."""
    LABELS: Final = 2
    TAINTS: Final = 4
    """Taints and spec.unschedulable."""
    IMAGES: Final = 8
    PORTS: Final = 16
    CONDITIONS: Final = 32
    FEATURES: Final = 64
    """status.declaredFeatures."""
    ANNOTATIONS: Final = 128
    FACTS: Final = 256
    """What plugins know of the pods on it (`cluster.facts`), whether it counts for the node or not."""


FIRST_FREE_BIT = 9
MAX_FACETS = 31


class ChangeLog:
    """The log. `serial` is the number of the latest change; readers remember it and ask `since`."""

    __slots__ = ("_all_rows", "_base", "_facets", "_latest", "_rows", "_stamps", "facet_count", "serial")

    def __init__(self, capacity: int) -> None:
        self.serial = 0
        self.facet_count = FIRST_FREE_BIT
        self._stamps = np.zeros((MAX_FACETS, capacity), dtype=np.int64)
        self._latest = np.zeros(capacity, dtype=np.int64)
        self._all_rows = _every_row(capacity)
        self._rows: list[int] = []
        self._facets: list[int] = []
        self._base = 0  # serial of the entry before the first one kept

    def grow(self, capacity: int) -> None:
        """Makes room for rows up to `capacity`."""
        wider = np.zeros((MAX_FACETS, capacity), dtype=np.int64)
        wider[:, : self._stamps.shape[1]] = self._stamps
        self._stamps = wider
        self._all_rows = _every_row(capacity)
        self._latest = np.concatenate((self._latest, np.zeros(capacity - len(self._latest), dtype=np.int64)))

    def touch(self, row: int, facets: int) -> None:
        """Records that these facets of a row changed."""
        self.serial += 1
        self._latest[row] = self.serial
        self._rows.append(row)
        self._facets.append(facets)
        if len(self._rows) > 2 * _KEEP:
            del self._rows[:_KEEP], self._facets[:_KEEP]
            self._base += _KEEP
        for bit in _bits_of(facets):
            self._stamps[bit, row] = self.serial

    def touch_rows(self, rows: RowArray, facets: int) -> None:
        """The same for many rows at once: they get one serial number, and readers go by stamps. Few go to the list."""
        if len(rows) <= _FEW:
            for row in rows.tolist():
                self.touch(row, facets)
            return
        self.serial += 1
        self._latest[rows] = self.serial
        for bit in _bits_of(facets):
            self._stamps[bit, rows] = self.serial
        self._rows.clear()
        self._facets.clear()
        self._base = self.serial

    def stamp(self, row: int, facet: int) -> int:
        """The serial number of the latest change of one facet of a row."""
        return int(self._stamps[facet.bit_length() - 1, row])

    def stamps(self, facet: int) -> npt.NDArray[np.int64]:
        """By row, the serial number of the latest change of one facet. Not to be changed by the caller."""
        found: npt.NDArray[np.int64] = self._stamps[facet.bit_length() - 1]
        return found

    @property
    def latest(self) -> npt.NDArray[np.int64]:
        """By row, the serial number of the latest change of whatever facet. Not to be changed by the caller."""
        return self._latest

    def since(self, serial: int, facets: int, rows: int) -> list[tuple[int, int]] | RowArray:
        """What changed after `serial` in any of `facets`, looking at the first `rows` rows.

        Few changes come as a list of (row, facets changed), each row once; many as an array of rows, of
        which any of the facets may have changed. When most rows changed, the array has all of them.
        """
        start = serial - self._base
        count = len(self._rows) - start
        if start >= 0 and count <= _TAIL:
            changed: dict[int, int] = {}
            for i in range(start, len(self._rows)):
                hit = self._facets[i] & facets
                if hit:
                    row = self._rows[i]
                    changed[row] = changed.get(row, 0) | hit
            return list(changed.items())
        first, *others = _bits_of(facets)
        dirty = self._stamps[first, :rows] > serial
        if np.count_nonzero(dirty) * 4 > rows:
            # The caller computes everything anew: no need to look at the other facets.
            return self._all_rows[:rows]
        for bit in others:
            dirty |= self._stamps[bit, :rows] > serial
        return np.flatnonzero(dirty)


def _every_row(capacity: int) -> RowArray:
    rows = np.arange(capacity)
    rows.flags.writeable = False
    return rows


@cache
def _bits_of(facets: int) -> tuple[int, ...]:
    """Called with few combinations: the facets that plugins read, and those that change together."""
    return tuple(bit for bit in range(MAX_FACETS) if facets >> bit & 1)
