"""What controllers remember of each node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from koordsched.fakecluster.controllers.ownership import Object
from koordsched.fakecluster.registry import Registry

Taint = tuple[str, str, str]
"""(key, value, effect)"""


class NodeRecord(msgspec.Struct, frozen=True, gc=False):
    """The facts of a node that some controller reads; heartbeats alone do not change it."""

    name: str
    uid: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    conditions: dict[str, str]
    """Status ("True", "False", "Unknown") by condition type."""
    deleting: bool


NodeListener = Callable[[NodeRecord | None, NodeRecord | None], None]
"""Called with (before, after); None stands for absent."""


class NodeIndex:
    """All nodes by name."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeRecord] = {}
        self._listeners: list[NodeListener] = []

    def start(self, registry: Registry) -> Callable[[], None]:
        """Follows the registry's nodes, those that exist first; returns what ends it."""
        return registry.subscribe(registry.resource("", "v1", "nodes"), self._changed)

    def on_change(self, listener: NodeListener) -> None:
        """Calls the listener when facts of a node changed. It must be cheap and must not write."""
        self._listeners.append(listener)

    def get(self, name: str) -> NodeRecord | None:
        """The record of that node, if it exists."""
        return self._nodes.get(name)

    def all(self) -> list[NodeRecord]:
        """Every node, in the order they appeared."""
        return list(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    def _changed(self, kind: str, old: Mapping[str, Any] | None, new: Object) -> None:
        name = new["metadata"]["name"]
        before = self._nodes.get(name)
        after = None if kind == "DELETED" else node_record(new)
        if before == after:
            return
        if after is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = after
        for listener in self._listeners:
            listener(before, after)


def node_record(node: Object) -> NodeRecord:
    """Reads the facts of a node object."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    return NodeRecord(
        name=metadata["name"],
        uid=metadata["uid"],
        labels=metadata.get("labels") or {},
        taints=tuple(
            (taint["key"], taint.get("value") or "", taint.get("effect") or "") for taint in spec.get("taints") or ()
        ),
        unschedulable=bool(spec.get("unschedulable")),
        conditions={entry["type"]: entry.get("status", "Unknown") for entry in status.get("conditions") or ()},
        deleting="deletionTimestamp" in metadata,
    )
