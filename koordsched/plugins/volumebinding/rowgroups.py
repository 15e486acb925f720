"""Rows that a set of node selectors cannot tell apart, so that what depends on them is computed once per group.

The volumes of a zone make one group of its nodes; local volumes make each node its own.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from koordsched.api.core import NodeSelector
from koordsched.cluster.changelog import Facet, RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.plugins.shared.matching.nodeselector import NodeSelectors, NodeTerms

Ids = npt.NDArray[np.intp]

_TOKEN_SEED = 20
"""Any fixed number: tokens only have to differ from each other."""

_encode = msgspec.json.Encoder().encode


class RowGroups:
    """The groups. Valid after `refresh`, until labels change or a selector is added.

    `count`: how many groups; `of_row`: intp[rows], the group of each row; `matches`: two arrays, a group and the
    number of a selector that selects it, for all such pairs; `version` grows when any of these changed.
    """

    def __init__(self, table: NodeTable, selectors: NodeSelectors) -> None:
        self._table = table
        self._compiler = selectors
        self._numbers: dict[bytes, int] = {}
        self._selectors: list[_Pin | NodeTerms] = []
        self._rows: list[RowArray] = []
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

    def add(self, selector: NodeSelector) -> int:
        """The number of a selector; equal ones share a number."""
        key = _encode(selector)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._selectors)
            self._selectors.append(_pin_of(selector) or self._compiler.terms(selector))
            self._token.append(int(self._tokens.integers(1 << 63)))
        return number

    def refresh(self) -> None:
        """Brings the groups up to date with the labels of the nodes."""
        table = self._table
        log = table.log
        if log.serial != self._serial:
            if self._serial < 0 or len(log.since(self._serial, Facet.LABELS, table.size)):
                self._rows.clear()
            self._serial = log.serial
        if len(self._rows) == len(self._selectors) and len(self.of_row) == table.size and self.version:
            return
        by_value: dict[str, _RowsByValue] = {}
        for selector in self._selectors[len(self._rows) :]:
            if isinstance(selector, _Pin):
                rows_of = by_value.get(selector.key)
                if rows_of is None:
                    rows_of = by_value[selector.key] = _RowsByValue(table, selector.key)
                self._rows.append(rows_of.any_of(selector.values))
            else:
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


class _Pin(msgspec.Struct, frozen=True):
    """A selector of the commonest kind: one label must have one of these values. Needs no pass over the rows."""

    key: str
    values: tuple[str, ...]


def _pin_of(selector: NodeSelector) -> _Pin | None:
    if len(selector.node_selector_terms) != 1:
        return None
    term = selector.node_selector_terms[0]
    if term.match_fields or len(term.match_expressions) != 1 or term.match_expressions[0].operator != "In":
        return None
    requirement = term.match_expressions[0]
    return _Pin(requirement.key, tuple(sorted(set(requirement.values))))


class _RowsByValue:
    """The rows of each value of a label key."""

    __slots__ = ("_column", "_order", "_starts")

    def __init__(self, table: NodeTable, key: str) -> None:
        self._column = table.label_column(key)
        ids = self._column.ids.data[: table.size]
        self._order = np.argsort(ids, kind="stable")
        self._starts = np.searchsorted(ids[self._order], np.arange(len(self._column.values) + 1)).tolist()

    def any_of(self, values: tuple[str, ...]) -> RowArray:
        """The rows where the label has one of the values."""
        index, starts, order = self._column.index, self._starts, self._order
        found = [order[starts[n] : starts[n + 1]] for value in values if (n := index.get(value)) is not None]
        return found[0] if len(found) == 1 else np.concatenate([order[:0], *found])
