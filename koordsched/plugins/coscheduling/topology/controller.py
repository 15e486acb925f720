"""What runs while the scheduler leads: the tree is written to the status of the ClusterNetworkTopology.

What is wrong with the object, or with labels of nodes, is said in Events on it.
"""

from __future__ import annotations

import asyncio
import logging

import numpy as np
import orjson

from koordsched.api.meta import ObjectMeta
from koordsched.framework.controller import ControllerHandle
from koordsched.framework.handle import WARNING, WriteFailed
from koordsched.plugins.coscheduling.topology.kinds import CLUSTER_NETWORK_TOPOLOGIES
from koordsched.plugins.coscheduling.topology.service import NetworkTopology
from koordsched.plugins.coscheduling.topology.status import detail_status
from koordsched.plugins.coscheduling.topology.tree import Tree

_log = logging.getLogger(__name__)

INTERVAL = 10.0
"""Seconds between looks: the status is written at most that often."""

LARGEST_STATUS = 1 << 20
"""Bytes. API servers take objects of 1.5 MiB at most."""

INVALID = "InvalidNetworkTopology"
SUSPICIOUS = "SuspiciousNetworkTopology"
UNLABELLED = "NodesOutsideNetworkTopology"
TOO_LARGE = "NetworkTopologyStatusTooLarge"

_NODES_NAMED = 3


class TopologyController:
    """Writes the status when it is not what the tree says; Events when there is another problem than before."""

    def __init__(self, topology: NetworkTopology, handle: ControllerHandle) -> None:
        self._topology = topology
        self._names = handle.cluster.table.names
        self._writes = handle.writes
        self._reporter = handle.reporter
        self._reported: dict[str, object] = {}
        self._looked: object = None

    async def run(self) -> None:
        """Looks and writes until cancelled; returns at once if the network topology manager is off."""
        while self._topology.enabled:
            await self.look()
            await asyncio.sleep(INTERVAL)

    async def look(self) -> None:
        """Compares and writes once. What could not be written is tried again at the next look."""
        topology = self._topology
        tree, found = topology.tree(), topology.object
        if found is None:
            self._reported.clear()
            return
        meta = found.metadata
        self._report_problems(meta, tree)
        seen = (meta.uid, meta.resource_version, topology.version)
        if tree is None or seen == self._looked:
            return
        details = detail_status(tree)
        if details != found.status.detail_status:
            size = len(orjson.dumps(details))
            if size > LARGEST_STATUS:
                text = f"{len(details)} domains take {size} bytes in the status, which is not written"
                self._report(meta, TOO_LARGE, True, text)
            else:
                try:
                    changes = {"status": {"detailStatus": details}}
                    await self._writes.merge(CLUSTER_NETWORK_TOPOLOGIES, meta, changes, subresource="status")
                except WriteFailed as error:
                    _log.warning("status of ClusterNetworkTopology %s not written: %s", meta.name, error)
                    return
        self._looked = seen

    def _report_problems(self, meta: ObjectMeta, tree: Tree | None) -> None:
        topology = self._topology
        self._report(meta, INVALID, topology.problem, topology.problem)
        self._report(meta, SUSPICIOUS, topology.warnings, "; ".join(topology.warnings))
        lacking = tuple(np.unique(tree.lacking).tolist()) if tree is not None else ()
        self._report(meta, UNLABELLED, lacking, self._unlabelled(tree) if tree is not None and lacking else "")

    def _unlabelled(self, tree: Tree) -> str:
        """How many nodes are not in the tree, and why."""
        texts = []
        for level in np.unique(tree.lacking).tolist():
            rows = tree.outside[tree.lacking == level].tolist()
            names = ", ".join(self._names[row] for row in rows[:_NODES_NAMED])
            more = f" and {len(rows) - _NODES_NAMED} more" if len(rows) > _NODES_NAMED else ""
            texts.append(f"without a label of {tree.levels[level].layer}: {names}{more}")
        return f"nodes that are left out, {'; '.join(texts)}"

    def _report(self, meta: ObjectMeta, reason: str, problem: object, text: str) -> None:
        """An Event if there is a problem, and it is another one than was reported last."""
        key = (meta.uid, problem)
        if not problem:
            self._reported.pop(reason, None)
        elif self._reported.get(reason) != key:
            self._reported[reason] = key
            self._reporter.event(CLUSTER_NETWORK_TOPOLOGIES, meta, WARNING, reason, text, action="Checking", once=True)
