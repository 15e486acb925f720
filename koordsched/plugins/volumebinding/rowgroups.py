"""Rows that a set of node selectors cannot tell apart, so that what depends on them is computed once per group.

The volumes of a zone make one group of its nodes; local volumes make each node its own.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import Facet, RowArray
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.plugins.matching.rows import Mask

Ids = npt.NDArray[np.intp]

_TOKEN_SEED = 20
"""Any fixed number: tokens only have to differ from each other."""


class RowSelector(Protocol):
    """A compiled selector of nodes."""

    def mask(self, table: NodeTable, rows: Rows) -> Mask:
        """Whether it selects the node of each row."""


class RowGroups:
    """The groups. Valid after `refresh`, until labels change or a selector is added.

    `count`: how many groups; `of_row`: intp[rows], the group of each row; `matches`: two arrays, a group and the
    number of a selector that selects it, for all such pairs; `version` grows when any of these changed.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._selectors: list[RowSelector] = []
        self._rows: list[RowArray] = []
        self._numbers: dict[bytes, int] = {}
        self._serial = -1
        self._tokens = np.random.default_rng(_TOKEN_SEED)
        self._token: list[int] = []
        self.version = 0
        self.count = 0
        self.of_row: Ids = np.zeros(0, dtype=np.intp)
        self.matches: tuple[Ids, Ids] = (self.of_row, self.of_row)

    def __len__(self) -> int:
        """How many selectors there are."""
        return len(self._selectors)

    def add(self, key: bytes, selector: RowSelector) -> int:
        """The number of a selector; `key` identifies it, so that equal ones share a number."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._selectors)
            self._selectors.append(selector)
            self._token.append(int(self._tokens.integers(1 << 63)))
        return number

    def refresh(self) -> None:
        """Brings the groups up to date with the labels of the nodes."""
        table = self._table
        serial = table.log.serial
        if serial != self._serial:
            changed = self._serial < 0 or len(table.log.since(self._serial, Facet.LABELS, table.size)) > 0
            self._serial = serial
            if changed or len(self.of_row) != table.size:
                self._rows.clear()
        if len(self._rows) == len(self._selectors) and len(self.of_row) == table.size and self.version:
            return
        for selector in self._selectors[len(self._rows) :]:
            self._rows.append(np.flatnonzero(selector.mask(table, table.all_rows)))
        self._group()

    def _group(self) -> None:
        """Rows selected by the same selectors have the same sum of random tokens, others by all likelihood not."""
        size = self._table.size
        lengths = np.array([len(rows) for rows in self._rows], dtype=np.intp)
        rows = np.concatenate(self._rows) if self._rows else np.zeros(0, dtype=np.intp)
        selectors = np.repeat(np.arange(len(self._rows)), lengths)
        signature = np.zeros(size, dtype=np.uint64)
        np.bitwise_xor.at(signature, rows, np.array(self._token, dtype=np.uint64)[selectors])
        _, representatives, self.of_row = np.unique(signature, return_index=True, return_inverse=True)
        self.count = len(representatives)
        representative = np.zeros(size, dtype=np.bool_)
        representative[representatives] = True
        picked = representative[rows]
        self.matches = (self.of_row[rows[picked]], selectors[picked])
        self.version += 1
