"""How a job is spread over the nodes of a domain (coscheduling spec 3.5, step 7).

From the domain down each child takes as much as is left and it has room for, rounded down to the multiple of its
layer; children with most room come first. If every domain can pass on all that it takes, which is so unless multiples
of several layers do not go together, that is a running sum per layer. Otherwise the domains are visited one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from koordsched.plugins.coscheduling.topology.tree import Amounts, Positions, Tree


def distribute(
    tree: Tree,
    level: int,
    position: int,
    desired: int,
    multiples: Sequence[int],
    room: Sequence[Amounts],
    near: Sequence[Amounts] | None = None,
    good: Sequence[Amounts] | None = None,
) -> tuple[Positions, Amounts] | None:
    """(the leaves that get pods, in order, how many each gets); None if that is fewer than desired.

    The domain has room for `desired`, which is a multiple of that of its layer. `room`, `near`, `good`: per level, of
    each domain.
    """
    domains = np.array([position], dtype=np.intp)
    takes = np.array([desired], dtype=np.int64)
    for below in range(level + 1, len(tree.levels)):
        children, parents = _children(tree, below, domains)
        order = _most_room_first(below, children, parents, room, near, good)
        children, parents = children[order], parents[order]
        found = _shares(room[below][children], parents, takes, multiples[below])
        passed_on = np.zeros(len(takes), dtype=np.int64)
        np.add.at(passed_on, parents, found)
        if not np.array_equal(passed_on, takes):
            return _one_by_one(tree, level, position, desired, multiples, room, near, good)
        some = np.flatnonzero(found)
        domains, takes = children[some], found[some]
    return domains, takes


def _children(tree: Tree, level: int, above: Positions) -> tuple[Positions, Positions]:
    """(the domains of the level below these, the position in `above` of the parent of each), by parent, then name."""
    if len(above) == 1:
        first, end = np.searchsorted(tree.levels[level].parents, (above[0], above[0] + 1)).tolist()
        return np.arange(first, end), np.zeros(end - first, dtype=np.intp)
    place = np.full(len(tree.levels[level - 1]), -1, dtype=np.intp)
    place[above] = np.arange(len(above))
    parents = place[tree.levels[level].parents]
    children = np.flatnonzero(parents >= 0)
    return children, parents[children]


def _most_room_first(
    level: int,
    children: Positions,
    parents: Positions,
    room: Sequence[Amounts],
    near: Sequence[Amounts] | None,
    good: Sequence[Amounts] | None,
) -> Positions:
    """By parent; among siblings, which have all ancestors in common, by pods with the selector, room, score, name.

    Positions are in the order of the names of siblings, and the sort is stable.
    """
    keys = [] if good is None else [-good[level][children]]
    keys.append(-room[level][children])
    if near is not None:
        keys.append(-near[level][children])
    keys.append(parents)
    return np.lexsort(keys)


def _shares(room: Amounts, parents: Positions, takes: Amounts, multiple: int) -> Amounts:
    """What each child gets of what its parent takes. Rooms are multiples, so only the last share is rounded down."""
    before = np.cumsum(room) - room
    first = np.ones(len(parents), dtype=np.bool_)
    first[1:] = parents[1:] != parents[:-1]
    before -= before[np.flatnonzero(first)][np.cumsum(first) - 1]
    left = takes[parents]
    if multiple > 1:
        left = left // multiple * multiple
    shares: Amounts = np.clip(left - before, 0, room)
    return shares


def _one_by_one(
    tree: Tree,
    level: int,
    position: int,
    desired: int,
    multiples: Sequence[int],
    room: Sequence[Amounts],
    near: Sequence[Amounts] | None,
    good: Sequence[Amounts] | None,
) -> tuple[Positions, Amounts] | None:
    leaves: list[int] = []
    takes: list[int] = []

    def take(level: int, position: int, wanted: int) -> int:
        share = min(int(room[level][position]), wanted) // multiples[level] * multiples[level]
        if share == 0:
            return 0
        if level == len(tree.levels) - 1:
            leaves.append(position)
            takes.append(share)
            return share
        children, parents = _children(tree, level + 1, np.array([position], dtype=np.intp))
        left = share
        for child in children[_most_room_first(level + 1, children, parents, room, near, good)].tolist():
            if left:
                left -= take(level + 1, child, left)
        return share - left

    if take(level, position, desired) < desired:
        return None
    return np.array(leaves, dtype=np.intp), np.array(takes, dtype=np.int64)
