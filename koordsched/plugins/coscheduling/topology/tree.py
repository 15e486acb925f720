"""The tree of the network: domains as arrays, layer by layer, and the nodes as leaves (coscheduling spec 3.11).

A domain is known by its path: racks with the same name in different halls are different racks (D19). The domains of a
layer are in the order of their paths, so those of one parent follow one another, by name. A tree is a function of the
layers and of the nodes with their labels, in whatever order these came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.columns import ABSENT
from koordsched.cluster.nodetable import NodeTable
from koordsched.plugins.coscheduling.topology.layers import Layers

Amounts = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]


class Level(NamedTuple):
    """The domains of one layer.

    `names`: of each; `parents`: the position of each one's parent in the layer above; `ranks`: the order of the names
    within the layer, equal for equal names; `leaves`: the position of the first leaf of each. `of_leaf`: the domain of
    each leaf.
    """

    layer: str
    names: Sequence[str]
    parents: Positions
    ranks: Positions
    leaves: Positions
    of_leaf: Positions

    def __len__(self) -> int:
        return len(self.names)


class Tree(NamedTuple):
    """`levels`: from the root (one domain, named "") to the nodes. `rows`: the row of each leaf.

    `outside`: rows of nodes that are not in the tree, and `lacking`, the level of the topmost layer that each of them
    has no label for. `size`: rows of the node table when the tree was made.
    """

    levels: tuple[Level, ...]
    rows: RowArray
    outside: RowArray
    lacking: Positions
    size: int

    @property
    def layers(self) -> tuple[str, ...]:
        """Their names, from the root to the nodes."""
        return tuple(level.layer for level in self.levels)

    def level_of(self, layer: str) -> int | None:
        """The level of a layer; None if it is no layer of the tree."""
        return next((at for at, level in enumerate(self.levels) if level.layer == layer), None)

    def sums(self, of_leaves: Amounts) -> list[Amounts]:
        """Per level the sum over the leaves of each domain."""
        if not len(of_leaves):
            return [np.zeros(len(level), dtype=np.int64) for level in self.levels]
        return [np.add.reduceat(of_leaves, level.leaves) for level in self.levels]

    def domains(self, level: int) -> npt.NDArray[np.int32]:
        """int32[rows of the table]: the domain of each row at a level, -1 for rows that are not in the tree."""
        found = np.full(self.size, -1, dtype=np.int32)
        found[self.rows] = self.levels[level].of_leaf
        return found

    def path(self, level: int, position: int) -> tuple[str, ...]:
        """The names of a domain and of those above it, topmost first, the root left out."""
        names: list[str] = []
        while level > 0:
            names.append(self.levels[level].names[position])
            position = int(self.levels[level].parents[position])
            level -= 1
        return tuple(reversed(names))


def build(layers: Layers, table: NodeTable) -> Tree:
    """The tree of the nodes that there are.

    A node without a label for the layer right above the nodes gets a domain of its own there, with the name of the
    node. One that lacks a label of any other layer is not in the tree.
    """
    rows = np.flatnonzero(table.alive.data[: table.size])
    rows = rows[np.argsort(np.array([table.names[row] for row in rows.tolist()], dtype=object), kind="stable")]
    inner = [_labelled(keys, table, rows) for keys in layers.keys[1:-1]]
    lacking = np.full(len(rows), -1, dtype=np.intp)
    for level in range(len(inner) - 1, 0, -1):
        lacking[inner[level - 1].values < 0] = level
    kept = lacking < 0
    leaves = rows[kept]
    values = [_Values(found.values[kept], found.names) for found in inner]
    if values:
        values[-1] = _with_virtual(values[-1], [table.names[row] for row in leaves.tolist()])
    # Stable: the leaves of one domain stay in the order of their names.
    order = np.lexsort([found.values for found in reversed(values)]) if values else np.arange(len(leaves))
    leaves = leaves[order]
    levels = [_root(layers.names[0], len(leaves))]
    for layer, found in zip(layers.names[1:-1], values, strict=True):
        levels.append(_below(levels[-1], layer, found.values[order], found.names))
    node_names = [table.names[row] for row in leaves.tolist()]
    by_name = np.argsort(np.array(node_names, dtype=object), kind="stable")
    ranks = np.empty(len(leaves), dtype=np.intp)
    ranks[by_name] = np.arange(len(leaves))
    everyone = np.arange(len(leaves))
    levels.append(Level(layers.names[-1], node_names, levels[-1].of_leaf, ranks, everyone, everyone))
    return Tree(tuple(levels), leaves, rows[~kept], lacking[~kept], table.size)


class _Values(NamedTuple):
    """`values`: per node a position in `names`, which are sorted; -1 without a label."""

    values: Positions
    names: list[str]


def _labelled(keys: Sequence[str], table: NodeTable, rows: RowArray) -> _Values:
    """The value of the first of the labels that is not empty."""
    texts: dict[str, int] = {}
    found = np.full(len(rows), -1, dtype=np.intp)
    for key in keys:
        column = table.label_column(key)
        ids = column.ids.data[rows]
        new = (found < 0) & (ids != ABSENT)
        if "" in column.index:
            new &= ids != column.index[""]
        distinct, numbers = np.unique(ids[new], return_inverse=True)
        of_id = [texts.setdefault(column.values[number] or "", len(texts)) for number in distinct.tolist()]
        found[new] = np.array(of_id, dtype=np.intp)[numbers]
    return _sorted(found, list(texts))


def _with_virtual(found: _Values, node_names: list[str]) -> _Values:
    """Nodes without a value get a domain that has their name."""
    lacking = np.flatnonzero(found.values < 0)
    if not len(lacking):
        return found
    numbers = {name: number for number, name in enumerate(found.names)}
    values = found.values.copy()
    values[lacking] = [numbers.setdefault(node_names[at], len(numbers)) for at in lacking.tolist()]
    return _sorted(values, list(numbers))


def _sorted(values: Positions, names: list[str]) -> _Values:
    order = sorted(range(len(names)), key=names.__getitem__)
    new = np.empty(len(names) + 1, dtype=np.intp)
    new[order] = np.arange(len(names))
    new[-1] = -1
    return _Values(new[values], [names[at] for at in order])


def _root(layer: str, leaves: int) -> Level:
    none = np.zeros(1, dtype=np.intp)
    return Level(layer, ("",), none, none, none, np.zeros(leaves, dtype=np.intp))


def _below(above: Level, layer: str, values: Positions, names: list[str]) -> Level:
    """`values`: per leaf a position in `names`; leaves are in the order of paths."""
    first = np.ones(len(values), dtype=np.bool_)
    first[1:] = (values[1:] != values[:-1]) | (above.of_leaf[1:] != above.of_leaf[:-1])
    leaves = np.flatnonzero(first)
    found = values[leaves]
    return Level(
        layer, [names[at] for at in found.tolist()], above.of_leaf[leaves], found, leaves, np.cumsum(first) - 1
    )
