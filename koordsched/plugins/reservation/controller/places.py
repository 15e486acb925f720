"""Where Reservations are: which one a uid is, and which ones a node had when it goes."""

from __future__ import annotations

from collections.abc import Callable

from koordsched.cluster.nodetable import NodeTable
from koordsched.plugins.reservation.kinds import Reservation


class Places:
    """Names by uid, and uids by node. `gone` is called with the uid of each Reservation whose node was removed."""

    def __init__(self, table: NodeTable, gone: Callable[[str], None]) -> None:
        self._table = table
        self._gone = gone
        self._names: dict[str, str] = {}
        self._node_of: dict[str, str] = {}
        self._on_node: dict[str, dict[str, None]] = {}
        self._node_at: dict[int, str] = {}
        """The node of each row; a row that is taken out has no name any more."""
        table.on_node(lambda row, node: self._node_at.__setitem__(row, node.metadata.name))
        table.on_removal(self._removed)

    def __contains__(self, uid: object) -> bool:
        return uid in self._names

    def name(self, uid: str) -> str | None:
        """The name of the Reservation of a uid, if there is one."""
        return self._names.get(uid)

    def knows_node_of(self, reservation: Reservation) -> bool:
        """Whether its node is there, or it has none yet."""
        node = reservation.status.node_name
        return not node or node in self._table.row_of

    def set(self, reservation: Reservation) -> None:
        """A Reservation appeared or changed."""
        uid, node = reservation.metadata.uid, reservation.status.node_name
        self._names[uid] = reservation.metadata.name
        if self._node_of.get(uid, "") != node:
            self._leave(uid)
            if node:
                self._node_of[uid] = node
                self._on_node.setdefault(node, {})[uid] = None

    def remove(self, uid: str) -> None:
        """A Reservation is gone."""
        self._names.pop(uid, None)
        self._leave(uid)

    def _leave(self, uid: str) -> None:
        node = self._node_of.pop(uid, None)
        if node is not None:
            rest = self._on_node[node]
            del rest[uid]
            if not rest:
                del self._on_node[node]

    def _removed(self, row: int) -> None:
        for uid in self._on_node.get(self._node_at.pop(row, ""), ()):
            self._gone(uid)
