"""What the nodes have to allocate, taken to the quota trees."""

from __future__ import annotations

from collections.abc import Callable

from koordsched.api import core
from koordsched.cluster.nodetable import NodeTable
from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts, parse
from koordsched.plugins.elasticquota.arithmetic.trees import QuotaTrees


class NodeTotals:
    """Keeps the totals of the trees in step with the node table; `changed` is called after every change."""

    def __init__(self, table: NodeTable, trees: QuotaTrees, changed: Callable[[], None]) -> None:
        self._read = table.resource_names.read
        self._trees = trees
        self._changed = changed
        self._on: dict[int, tuple[core.Quantities, Amounts]] = {}
        """By row: what is written, and what it amounts to."""
        table.on_node(self._node_changed)
        table.on_removal(self._node_removed)

    def _node_changed(self, row: int, node: core.Node) -> None:
        # A node that is being deleted offers no resources any more.
        written = self._read(node.status.allocatable) if node.metadata.deletion_timestamp is None else {}
        before = self._on.get(row)
        if before is not None and before[0] == written:
            return
        amounts, _ = parse(written)  # the node handler reports what cannot be read
        self._on[row] = (written, amounts)
        self._trees.nodes_changed(amounts, before[1] if before is not None else {})
        self._changed()

    def _node_removed(self, row: int) -> None:
        before = self._on.pop(row, None)
        if before is not None:
            self._trees.nodes_changed({}, before[1])
            self._changed()
