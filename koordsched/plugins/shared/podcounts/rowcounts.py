"""Counts per node, and per domain of the topology keys that were asked for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.columns import ABSENT
from koordsched.plugins.shared.podcounts.topology import EligibleNodes, Topology

Counts = npt.NDArray[np.int64]

_NONE = int(np.iinfo(np.int64).max)
"""More than any count."""

_OBJECT_BYTES = 2 << 10
"""What one set of counts takes besides its arrays: itself, its queries or its term."""

_ROW_BYTES = 100
"""What a row takes that is kept by itself."""

_MAX_DOMAINS = 16
"""Distinct (key, eligible nodes) that one set of counts follows; pods of one workload need one or two."""


class DomainCounts:
    """Sums of row counts per value of one label key, over the eligible nodes.

    `counts[id]`: by value id of the label column; `counts[ABSENT]` means nothing. `present`: the ids that an
    eligible node has. An id may come to stand for another value when a node changes: valid after `refresh`, which
    adds up again then, until the next change.
    """

    def __init__(self, topology: Topology, key: str, eligible: EligibleNodes) -> None:
        self._topology = topology
        self._key = key
        self._eligible = eligible
        self._version = (-1, -1)
        self._domain_of: npt.NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self.counts: Counts = np.zeros(1, dtype=np.int64)
        self.present: npt.NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._lowest: int | None = None
        self._at_lowest = 0  # how many domains have the lowest count, as long as that is known
        self._next_lowest: int | None = None  # the lowest count of all domains but one that has the lowest

    def refresh(self, by_row: Counts) -> None:
        """Adds up again if nodes changed; `Topology.refresh` comes first."""
        eligible = self._eligible
        eligible.refresh()
        if eligible.version == self._version:
            return
        self._version = eligible.version
        column = self._topology.table.label_column(self._key)
        size = len(eligible.mask)
        # A copy: what is added until the next refresh goes where these sums believe the node to be.
        self._domain_of = np.where(eligible.mask, column.ids.data[:size], ABSENT)
        sums = np.bincount(self._domain_of, weights=by_row[:size], minlength=len(column.values))
        self.counts = sums.astype(np.int64)
        nodes = np.bincount(self._domain_of, minlength=len(column.values))
        nodes[ABSENT] = 0
        self.present = np.flatnonzero(nodes)
        self._lowest = self._next_lowest = None

    def add(self, row: int, count: int) -> None:
        """Pods appeared on (or, if negative, went from) a row."""
        domain = self._domain_of.item(row) if row < len(self._domain_of) else ABSENT
        if domain == ABSENT:
            return
        before = self.counts.item(domain)
        after = before + count
        self.counts[domain] = after
        self._next_lowest = None
        lowest = self._lowest
        if lowest is None or min(before, after) > lowest:
            return
        if after < lowest:
            self._lowest, self._at_lowest = after, 1
        elif after == lowest:
            self._at_lowest += 1
        else:
            self._at_lowest -= 1
            if not self._at_lowest:
                self._lowest = None

    @property
    def lowest(self) -> int:
        """The smallest count of any domain; 0 if there is none."""
        if self._lowest is None:
            if not len(self.present):
                return 0
            counts = self.counts.take(self.present)
            self._lowest = int(counts.min())
            self._at_lowest = int(np.count_nonzero(counts == self._lowest))
        return self._lowest

    def in_dry_runs(self, ids: npt.NDArray[np.int32], rows: RowArray, changes: Counts) -> tuple[Counts, Counts]:
        """(the count of each row's domain, the lowest count of any domain) in dry runs that differ from what is by so
        many on that row. `ids`: the value numbers of the rows.
        """
        counted = self._domain_of.take(rows) != ABSENT
        own = self.counts.take(ids) + np.where(counted, changes, 0)
        lowest = self.lowest
        if self._next_lowest is None:
            if self._at_lowest > 1 or len(self.present) < 2:
                self._next_lowest = lowest if len(self.present) > 1 else _NONE
            else:
                self._next_lowest = int(np.partition(self.counts.take(self.present), 1)[1])
        others = np.where(self.counts.take(ids) == lowest, self._next_lowest, lowest)
        return own, np.where(counted, np.minimum(own, others), lowest)

    @property
    def any(self) -> bool:
        """Whether any domain, eligible or not, counts something."""
        return bool(self.counts[ABSENT + 1 :].any())

    @property
    def nbytes(self) -> int:
        """What the arrays take."""
        return self.counts.nbytes + self._domain_of.nbytes + self.present.nbytes


class RowCounts:
    """How many there are on each row. `total` is their sum.

    Until all rows are asked for, only those that have any are kept: most counts that pods make are of very few.
    """

    __slots__ = ("__weakref__", "_by_row", "_domains", "_few", "_topology", "total")

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._by_row: Counts | None = None
        self._few: dict[int, int] = {}  # by row, until there is an array
        self._domains: dict[tuple[str, EligibleNodes], DomainCounts] = {}
        self.total = 0

    def add(self, row: int, count: int) -> None:
        """So many more on a row (fewer if negative)."""
        self.total += count
        by_row = self._by_row
        if by_row is None:
            few = self._few
            there = few.get(row, 0) + count
            if there:
                few[row] = there
            else:
                few.pop(row, None)
            return
        if row >= len(by_row):
            by_row = self._grown(by_row, row + 1)
        by_row[row] += count
        for domains in self._domains.values():
            domains.add(row, count)

    def _grown(self, by_row: Counts, size: int) -> Counts:
        larger = self._by_row = np.zeros(max(size, 2 * len(by_row)), dtype=np.int64)
        larger[: len(by_row)] = by_row
        return larger

    @property
    def by_row(self) -> Counts:
        """int64[at least as many as there are rows]."""
        by_row, size = self._by_row, self._topology.table.size
        if by_row is None:
            few, self._few = self._few, {}
            by_row = self._by_row = np.zeros(size, dtype=np.int64)
            by_row[list(few)] = list(few.values())
        return by_row if size <= len(by_row) else self._grown(by_row, size)

    def domains(self, key: str, eligible: EligibleNodes) -> DomainCounts:
        """The sums for a label key, up to date; `Topology.refresh` comes first."""
        found = self._domains.get((key, eligible))
        by_row = self.by_row
        if found is None:
            if len(self._domains) >= _MAX_DOMAINS:
                del self._domains[next(iter(self._domains))]
            found = self._domains[(key, eligible)] = DomainCounts(self._topology, key, eligible)
        found.refresh(by_row)
        return found

    @property
    def nbytes(self) -> int:
        """About what it takes."""
        rows = len(self._few) * _ROW_BYTES if self._by_row is None else self._by_row.nbytes
        return _OBJECT_BYTES + rows + sum(domains.nbytes for domains in self._domains.values())

    def clear(self) -> None:
        """Gives the arrays up; the counts must not be used any more."""
        self._by_row = None
        self._few.clear()
        self._domains.clear()
        self.total = 0
