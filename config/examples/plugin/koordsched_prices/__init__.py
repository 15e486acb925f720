"""NodePrices: prefers cheap nodes, and keeps pods off nodes that cost more than these pods may.

A node says what it costs in a label (`example.com/price: "120"`), a pod what its node may cost in an annotation
(`example.com/max-price: "100"`). Nodes without a price cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from koordsched.api.core import Node
from koordsched.cluster.changelog import Facet, RowArray
from koordsched.cluster.events import NODE, POD, ActionType, ClusterEvent
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.config.catalog import ArgsKind, entry
from koordsched.config.plugin_args import PluginArgs
from koordsched.framework.declaration import Declaration
from koordsched.framework.explaining import ExplainsNodes
from koordsched.framework.handle import Handle
from koordsched.framework.interface import (
    Normalization,
    PreFilterResult,
    Scores,
    ShapeFilter,
    ShapePreFilter,
    ShapeScore,
)
from koordsched.framework.status import SKIP, SUCCESS, Code, Codes, Status
from koordsched.queue.hints import HintRegistration, Scope

MAX_PRICE = "example.com/max-price"
TOO_EXPENSIVE = "node(s) cost more than the pod may"


class NodePricesArgs(PluginArgs, frozen=True, kw_only=True):
    """`label`: where nodes have their price."""

    label: str = "example.com/price"


class NodePrices(ShapePreFilter, ShapeFilter, ShapeScore, ExplainsNodes):
    """The dearest node that fits the pod scores 0, one that costs nothing 100."""

    name = "NodePrices"
    facets = Facet.LABELS
    normalization = Normalization.MAX_REVERSED

    def __init__(self, args: NodePricesArgs | None, handle: Handle) -> None:
        """`args`: None for the defaults."""
        self._label = (args or NodePricesArgs()).label
        self._prices = handle.cluster.table.column(np.int64)
        handle.cluster.table.on_node(self._node_changed)
        handle.cluster.shape_facts.declare(annotations=[MAX_PRICE])
        self._code = handle.reasons.intern(self.name, Code.UNRESOLVABLE, TOO_EXPENSIVE)

    def _node_changed(self, row: int, node: Node) -> None:
        price = node.metadata.labels.get(self._label, "")
        self._prices.data[row] = int(price) if price.isdecimal() else 0

    def pre_filter_shape(self, shape: PodShape) -> PreFilterResult | Status:
        """SKIP for pods that may cost anything."""
        price = shape.meta.annotations.get(MAX_PRICE)
        if price is None:
            return SKIP
        if not price.isdecimal():
            return Status(Code.UNRESOLVABLE, (f"annotation {MAX_PRICE}: {price!r} is not a number",))
        return SUCCESS

    def filter_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Codes | None:
        """Refuses what costs more."""
        return np.where(self._prices.data[rows] > self._may_cost(shape), self._code, 0).astype(np.int32)

    def score_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Scores:
        """The price; normalising turns it around."""
        return self._prices.data[rows]

    def explain_nodes(self, shape: PodShape, rows: RowArray) -> list[list[str]]:
        """The price of each."""
        return [[f"price {price}"] for price in self._prices.data[rows].tolist()]

    def remedy(self, shape: PodShape, row: int) -> str:
        """What the pod would have to say."""
        return f"a max price of {self._prices.data.item(row)} (this pod has {self._may_cost(shape)})"

    def _may_cost(self, shape: PodShape) -> int:
        return int(shape.meta.annotations[MAX_PRICE])

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """New nodes, other prices, and another maximum."""
        nodes = ClusterEvent(NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)
        return [
            HintRegistration(self.name, nodes, None, Scope.SHAPE),
            HintRegistration(self.name, ClusterEvent(POD, ActionType.UPDATE), None, Scope.OWN_POD),
        ]


DECLARATION = Declaration(
    name=NodePrices.name,
    factory=NodePrices,
    entry=entry("preFilter filter score", ArgsKind(NodePricesArgs)),
    api_version=1,
)
