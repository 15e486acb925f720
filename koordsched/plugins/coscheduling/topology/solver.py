"""Where in the tree a job goes (coscheduling spec 3.5, steps 3 to 9).

The search is a pass over arrays per layer: what each domain offers, which domains have enough, the best of the deepest
of them, and how the job is spread over its nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.plugins.coscheduling.topology.distribution import distribute
from koordsched.plugins.coscheduling.topology.gathering import Gathering
from koordsched.plugins.coscheduling.topology.tree import Amounts, Positions, Tree

ABSENT = -1
"""Instead of a level: the layer that has to hold the job is no layer of the tree."""


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """`level`, `position`: the domain that holds the job. `rows`: a row for each member, in the order of the nodes."""

    level: int
    position: int
    rows: RowArray


def solve(
    tree: Tree,
    gathering: Gathering,
    desired: int,
    offers: Amounts,
    existing: Amounts | None = None,
    scores: Amounts | None = None,
) -> Solution | None:
    """The placement of `desired` members, of which there is at least one; None if there is none.

    All arrays are int64[rows of the table]: how many members in a row each row has room for; how many pods with the
    selector of the job are there; and how good a row is. Of domains alike the one with the higher sum of scores wins.
    """
    start = start_level(tree, gathering)
    multiples = multiples_of(tree, gathering)
    # The job is a sum of multiples in the layers below its domain, and lies as a whole in one domain of others (D21).
    if start == ABSENT or any(desired % multiple for multiple in multiples):
        return None
    room = constrained(tree, multiples, offers)
    level, candidates = _candidates(tree, room, start, desired)
    if not len(candidates):
        return None
    near = tree.sums(existing[tree.rows]) if existing is not None else None
    good = tree.sums(scores[tree.rows]) if scores is not None else None
    for position in _best_first(tree, level, candidates, room, near, good).tolist():
        found = distribute(tree, level, position, desired, multiples, room, near, good)
        if found is not None:
            leaves, takes = found
            return Solution(level, position, np.repeat(tree.rows[leaves], takes))
    return None


def start_level(tree: Tree, gathering: Gathering) -> int:
    """The level of whose domains one has to hold the job: the root's, unless there is a MustGather layer; of several
    the one closest to the nodes. ABSENT if none of them is in the tree.
    """
    if not gathering.must:
        return 0
    levels = [tree.level_of(layer) for layer in gathering.must]
    return max(ABSENT if level is None else level for level in levels)


def multiples_of(tree: Tree, gathering: Gathering) -> list[int]:
    """Per level, what the number of pods in a domain is a multiple of; 1 without a condition."""
    return [gathering.multiples.get(layer, 1) for layer in tree.layers]


def constrained(tree: Tree, multiples: Sequence[int], offers: Amounts) -> list[Amounts]:
    """Per level what each domain offers, rounded down to the multiples from the nodes on up; the root is a sum."""
    of_leaves = _floor(offers[tree.rows], multiples[-1])
    if all(multiple == 1 for multiple in multiples[:-1]):
        return tree.sums(of_leaves)
    found = [of_leaves]
    for level in range(len(tree.levels) - 2, -1, -1):
        sums = np.zeros(len(tree.levels[level]), dtype=np.int64)
        np.add.at(sums, tree.levels[level + 1].parents, found[-1])
        found.append(_floor(sums, multiples[level]))
    return found[::-1]


def _floor(amounts: Amounts, multiple: int) -> Amounts:
    return amounts // multiple * multiple if multiple > 1 else amounts


def _candidates(tree: Tree, room: Sequence[Amounts], start: int, desired: int) -> tuple[int, Positions]:
    """(level, its domains with enough room): the deepest level that has any, reached through domains with enough."""
    enough: npt.NDArray[np.bool_] = room[start] >= desired
    level, found = start, np.flatnonzero(enough)
    for below in range(start + 1, len(tree.levels)):
        enough = (room[below] >= desired) & enough[tree.levels[below].parents]
        deeper = np.flatnonzero(enough)
        if not len(deeper):
            break
        level, found = below, deeper
    return level, found


def _best_first(
    tree: Tree,
    level: int,
    candidates: Positions,
    room: Sequence[Amounts],
    near: Sequence[Amounts] | None,
    good: Sequence[Amounts] | None,
) -> Positions:
    """More pods with the selector, then less room, each compared from the domain itself up to the root; then the
    higher score, and the name.
    """
    if len(candidates) == 1:
        return candidates
    keys = [tree.levels[level].ranks[candidates]]
    if good is not None:
        keys.append(-good[level][candidates])
    keys.extend(reversed(_upwards(tree, level, candidates, room)))
    if near is not None:
        keys.extend(-amounts for amounts in reversed(_upwards(tree, level, candidates, near)))
    return candidates[np.lexsort(keys)]


def _upwards(tree: Tree, level: int, positions: Positions, amounts: Sequence[Amounts]) -> list[Amounts]:
    """The amounts of the domains, of their parents, and so on; all have the root in common, which is left out."""
    found = []
    while level > 0:
        found.append(amounts[level][positions])
        positions = tree.levels[level].parents[positions]
        level -= 1
    return found
