"""Why the claims of a pod cannot be allocated on a node, for explanations: upstream's text does not say."""

from __future__ import annotations

from koordsched.cluster.nodetable import NodeTable
from koordsched.plugins.dynamicresources.cyclestate import DeviceCycle
from koordsched.plugins.dynamicresources.structured import (
    AllocationError,
    Allocator,
    Deadline,
    InvalidPools,
    SearchExpired,
)


def explained(state: DeviceCycle, allocator: Allocator, table: NodeTable, deadline: Deadline) -> list[str]:
    """For one of the nodes that lack devices: per request what is there and what is against it; pools that are invalid.

    Changes nothing.
    """
    if state.refused is None:
        return []
    demand, row = state.refused
    node = table.names[row]
    lines: list[str] = []
    try:
        lines += [f"node {node}: {each.text}" for each in allocator.explain(demand, row, deadline)]
        allocator.allocate(demand, row, deadline)
    except InvalidPools as pools:
        lines.append(f"node {node}: {pools}")
    except (AllocationError, SearchExpired):
        pass
    return lines
