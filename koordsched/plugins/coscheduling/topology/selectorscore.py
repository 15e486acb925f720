"""Pods with the same selector near each other: PreScore and Score (coscheduling spec 3.6).

Feasible nodes are ordered by how many pods with the selector there are on them, in their domain, in the next larger
one, and so on; then by how few feasible nodes there are in these domains; then by name. The first gets 100.
"""

from __future__ import annotations

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.framework.interface import MAX_SCORE, CycleState, Scores
from koordsched.framework.status import SKIP, SUCCESS, Status
from koordsched.plugins.coscheduling.topology.selected import selector_of
from koordsched.plugins.coscheduling.topology.service import NetworkTopology
from koordsched.plugins.coscheduling.topology.tree import Amounts, Tree


class SelectorScore:
    """What a plugin's PodScore does for these pods; all others are skipped, and everything is without a tree (D14)."""

    def __init__(self, topology: NetworkTopology) -> None:
        self._topology = topology

    def abstains(self, cycle: CycleState, pod: Pod) -> bool:
        """Whether `pre_score` would say SKIP whatever rows are feasible."""
        return not selector_of(pod.shape) or self._topology.tree() is None

    def pre_score(self, cycle: CycleState, pod: Pod, rows: RowArray) -> Status:
        """SKIP without a selector or a tree."""
        tree = self._topology.tree()
        existing = self._topology.existing(selector_of(pod.shape))
        if tree is None or existing is None:
            return SKIP
        cycle.state[self] = places(tree, existing, rows, self._topology.names)
        return SUCCESS

    def score(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Scores:
        """The place of each row in the order, the best is 0."""
        found: Amounts = cycle.state[self][rows]
        return found

    def normalize(self, cycle: CycleState, pod: Pod, scores: Scores) -> Scores:
        """100 for the best, 0 for the last."""
        highest = scores if isinstance(scores, int) else int(scores.max(initial=0))
        if highest == 0:
            return MAX_SCORE
        return MAX_SCORE - scores * MAX_SCORE // highest


def places(tree: Tree, existing: Amounts, rows: RowArray, names: list[str]) -> Amounts:
    """int64[rows of the table]: the place of each of these rows, 0 the first; rows outside the tree are last (D14)."""
    offers = np.zeros(len(existing), dtype=np.int64)
    offers[rows] = 1
    room, near = tree.sums(offers[tree.rows]), tree.sums(existing[tree.rows])
    leaves = np.flatnonzero(offers[tree.rows])
    nodes = tree.levels[-1]
    above = range(len(tree.levels) - 1, 0, -1)
    keys = [nodes.ranks[leaves]]
    keys.extend(room[level][tree.levels[level].of_leaf[leaves]] for level in reversed(above))
    keys.extend(-near[level][tree.levels[level].of_leaf[leaves]] for level in reversed(above))
    order = np.lexsort(keys)
    found = np.zeros(len(existing), dtype=np.int64)
    found[tree.rows[leaves[order]]] = np.arange(len(leaves))
    inside = np.zeros(len(existing), dtype=np.bool_)
    inside[tree.rows] = True
    others = sorted(rows[~inside[rows]].tolist(), key=names.__getitem__)
    found[others] = np.arange(len(leaves), len(leaves) + len(others))
    return found
