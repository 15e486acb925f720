"""Finds Reservations on nodes by labels that pods select them by (reservation spec 3.2).

Source: koordinator `pkg/scheduler/plugins/reservation/cache.go`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from koordsched.plugins.reservation.args import SelectorIndexConfig

_ByNode = dict[str, dict[str, None]]
"""By node, uids."""
_OFF = SelectorIndexConfig()


class SelectorIndex:
    """Which Reservations have labels whose keys are configured: exact keys by value, prefixes of keys by themselves.

    Pods may also select a Reservation by labels of its node, which are not in here. So the index answers only where
    those do not count.
    """

    __slots__ = ("_by_key", "_by_prefix", "_keys", "_labels_decide", "_places", "_prefixes")

    def __init__(self, config: SelectorIndexConfig | None, *, omit_node_labels: bool) -> None:
        """`omit_node_labels`: gate OmitNodeLabelsForReservation."""
        config = (config or _OFF).normalised()
        self._prefixes = config.key_prefixes if config.enabled else ()
        self._keys = config.keys if config.enabled else ()
        self._labels_decide = omit_node_labels
        self._by_prefix: dict[str, _ByNode] = {}
        self._by_key: dict[str, dict[str, _ByNode]] = {}
        self._places: dict[str, tuple[str, Mapping[str, str]]] = {}

    @property
    def enabled(self) -> bool:
        """Whether any label is indexed."""
        return bool(self._prefixes or self._keys)

    def put(self, uid: str, node: str, labels: Mapping[str, str]) -> None:
        """The Reservation is on this node ("": on none) and has these labels."""
        self.remove(uid)
        indexed = {key: value for key, value in labels.items() if key in self._keys or self._prefix_of(key)}
        if not node or not indexed:
            return
        self._places[uid] = (node, indexed)
        for key, value in indexed.items():
            if key in self._keys:
                self._by_key.setdefault(key, {}).setdefault(value, {}).setdefault(node, {})[uid] = None
            if prefix := self._prefix_of(key):
                self._by_prefix.setdefault(prefix, {}).setdefault(node, {})[uid] = None

    def remove(self, uid: str) -> None:
        """The Reservation is gone. One that is unknown is ignored."""
        node, indexed = self._places.pop(uid, ("", {}))
        for key, value in indexed.items():
            if key in self._keys:
                by_value = self._by_key[key]
                _discard(by_value[value], node, uid)
                if not by_value[value]:
                    del by_value[value]
                if not by_value:
                    del self._by_key[key]
            if (prefix := self._prefix_of(key)) in self._by_prefix:
                _discard(self._by_prefix[prefix], node, uid)
                if not self._by_prefix[prefix]:
                    del self._by_prefix[prefix]

    def candidates(self, selector: Mapping[str, str]) -> Mapping[str, Collection[str]] | None:
        """By node, the uids of all Reservations that have these labels, and of some others; None if none is indexed.

        Those of one label, the one that is on the fewest nodes.
        """
        if not self._labels_decide:
            return None
        found: list[_ByNode] = []
        for key, value in selector.items():
            if key in self._keys:
                found.append(self._by_key.get(key, {}).get(value, {}))
            elif prefix := self._prefix_of(key):
                found.append(self._by_prefix.get(prefix, {}))
        return min(found, key=len, default=None)

    def snapshot(self, *, detail: bool) -> dict[str, Any]:
        """What is indexed, in numbers, as upstream shows it; `detail`: with values, and the uids by node."""
        shown: dict[str, Any] = {"enabled": self.enabled, "prefixes": list(self._prefixes) or None}
        if self._keys:
            shown["keys"] = sorted(self._keys)
        shown["indexedReservations"] = len(self._places)
        if self._by_prefix:
            shown["byPrefix"] = {key: _numbers([nodes], detail) for key, nodes in sorted(self._by_prefix.items())}
        if self._by_key:
            by_key = sorted(self._by_key.items())
            shown["byKey"] = {key: _numbers(by_value.values(), detail) for key, by_value in by_key}
            if detail:
                shown["byKeyValue"] = {
                    key: {value: _numbers([nodes], detail) for value, nodes in sorted(by_value.items())}
                    for key, by_value in by_key
                }
        return shown

    def _prefix_of(self, key: str) -> str:
        """The first of the configured prefixes that the key begins with, or ""."""
        return next((prefix for prefix in self._prefixes if key.startswith(prefix)), "")


def _discard(by_node: _ByNode, node: str, uid: str) -> None:
    """Where several labels have one prefix, the Reservation is gone with the first of them."""
    uids = by_node.get(node, {})
    uids.pop(uid, None)
    if not uids:
        by_node.pop(node, None)


def _numbers(parts: Collection[_ByNode], detail: bool) -> dict[str, Any]:
    by_node: dict[str, list[str]] = {}
    for part in parts:
        for node, uids in part.items():
            by_node.setdefault(node, []).extend(uids)
    shown: dict[str, Any] = {"nodes": len(by_node), "reservations": sum(map(len, by_node.values()))}
    if detail:
        shown["byNode"] = {node: sorted(uids) for node, uids in sorted(by_node.items())}
    return shown
