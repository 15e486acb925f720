"""What the status of the ClusterNetworkTopology shows of the tree (coscheduling spec 3.11)."""

from __future__ import annotations

from typing import Any

import numpy as np

from koordsched.plugins.coscheduling.topology.tree import Tree


def detail_status(tree: Tree) -> list[dict[str, Any]]:
    """`status.detailStatus`: every domain with its parent and children, top down, by name; nodes are counted only."""
    details: list[dict[str, Any]] = []
    # Domains of a layer are in the order of paths, so those below one follow one another.
    numbers = [np.bincount(level.of_leaf, minlength=len(level)).tolist() for level in tree.levels]
    pending = [(0, 0)]
    while pending:
        level, position = pending.pop()
        below = tree.levels[level + 1]
        first, end = np.searchsorted(below.parents, (position, position + 1)).tolist()
        detail: dict[str, Any] = {"topologyInfo": _info(tree, level, position), "nodeNum": numbers[level][position]}
        if level:
            detail["parentTopologyInfo"] = _info(tree, level - 1, int(tree.levels[level].parents[position]))
        if first < end:
            detail["childTopologyLayer"] = below.layer
        if first < end and level + 2 < len(tree.levels):
            detail["childTopologyNames"] = list(below.names[first:end])
            pending.extend((level + 1, child) for child in range(end - 1, first - 1, -1))
        details.append(detail)
    return details


def _info(tree: Tree, level: int, position: int) -> dict[str, str]:
    return {"topologyLayer": tree.levels[level].layer, "topologyName": tree.levels[level].names[position]}
