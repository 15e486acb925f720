"""Which resources each node offers, as one number per distinct set: most nodes of a cluster have the same few sets."""

from __future__ import annotations

from koordsched.api.core import Node
from koordsched.api.quantity import QuantityError, nano_value
from koordsched.cluster.columns import ValueColumn
from koordsched.cluster.resources import FIRST_SCALAR
from koordsched.cluster.state import ClusterState
from koordsched.config.qualified_names import is_scalar_resource


class OfferedResources:
    """`sets`: per row, the names of which the node has some to allocate.

    Also of resources that no pod requests, which the node table does not keep.
    """

    def __init__(self, cluster: ClusterState) -> None:
        table = cluster.table
        self._read = table.resource_names.read
        self._native = frozenset(table.resource_names.names[:FIRST_SCALAR])
        self.sets: ValueColumn[frozenset[str]] = table.value_column(frozenset())
        table.on_node(self._node_changed)

    def _node_changed(self, row: int, node: Node) -> None:
        written = self._read(node.status.allocatable)
        self.sets.set(row, frozenset(name for name, quantity in written.items() if self._counts(name, quantity)))

    def _counts(self, name: str, quantity: str | int | float) -> bool:
        try:
            return nano_value(quantity) > 0 and (name in self._native or is_scalar_resource(name))
        except QuantityError:
            return False
