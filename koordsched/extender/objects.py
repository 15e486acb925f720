"""Pods and nodes as they are sent to extenders: whole, as the API server wrote them, if that is known."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from koordsched.api import core
from koordsched.client.sink import ObjectKey
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.config.wire import Extender
from koordsched.extender.rawobjects import RawObjects
from koordsched.scheduling.snapshot import node_object, pod_object

_encode = msgspec.json.Encoder().encode


class ExtenderObjects:
    """`pods`, `nodes`: the JSON of the objects, None where no extender needs it."""

    def __init__(self, configs: Sequence[Extender], profiles: Collection[str], resource_names: list[str]) -> None:
        """`profiles`: the scheduler names that are ours; `resource_names`: by resource index."""
        asked = [c for c in configs if c.filter_verb or c.prioritize_verb or c.preempt_verb]
        whole = [c for c in asked if (c.filter_verb or c.prioritize_verb) and not c.node_cache_capable]
        self._resource_names = resource_names

        def waits(pod: core.Pod) -> bool:
            return not pod.spec.node_name and pod.spec.scheduler_name in profiles

        self.pods: RawObjects[core.Pod] | None = RawObjects(_uid, waits) if asked else None
        self.nodes: RawObjects[core.Node] | None = RawObjects(_name) if whole else None

    def pod(self, pod: Pod) -> bytes:
        """The JSON of a pod that waits."""
        original = self.pods.get(pod.uid) if self.pods is not None else None
        return original or _encode(pod_object(pod, self._resource_names))

    def node(self, table: NodeTable, row: int) -> bytes:
        """The JSON of the node on a row."""
        original = self.nodes.get(table.names[row]) if self.nodes is not None else None
        if original is not None:
            return original
        node = table.nodes[row]
        assert node is not None, "only rows with nodes are shown"
        return _encode(node_object(node, table.images.on_row(row)))

    def victim(self, pod: Pod) -> dict[str, Any]:
        """A pod on a node, rebuilt: only what decisions depend on is kept of these."""
        return pod_object(pod, self._resource_names)


def _uid(key: ObjectKey) -> str:
    return key.uid


def _name(key: ObjectKey) -> str:
    return key.name
