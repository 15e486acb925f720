"""How many nodes of a zone may be restricted at once."""

from __future__ import annotations

import numpy as np

from koordsched.cluster.nodetable import NodeTable

ZONE = "topology.kubernetes.io/zone"


class Zones:
    """The zones of a cluster, of which at most a percentage may be restricted."""

    def __init__(self, table: NodeTable, percentage: int) -> None:
        self._table = table
        self._percentage = percentage

    def of(self, row: int) -> str | None:
        """The zone of a row; None for nodes without one."""
        column = self._table.label_column(ZONE)
        number: int = column.ids.data.item(row)
        return column.values[number]

    def most_in(self, zone: str | None) -> int:
        """How many nodes of a zone may be restricted: a share of it; one at least, unless it is the only node."""
        table, column = self._table, self._table.label_column(ZONE)
        number = column.index.get(zone, -1)
        of_zone = column.ids.data[: table.size] == number
        size = int(np.count_nonzero(of_zone & table.alive.data[: table.size]))
        return max(size * self._percentage // 100, 1 if size > 1 else 0)
