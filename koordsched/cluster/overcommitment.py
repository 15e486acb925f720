"""Nodes whose pods request more than the node has.

We never do that, but others may: another scheduler that binds to the same nodes, a kubelet that reports less than
before, a user who sets spec.nodeName. It is found while accounting, by looking at nothing but what the pod or node
that changed has to do with; nodes are never searched for it.

Virtual pods run nowhere: what they hold is taken out. Others may use it on purpose (owners of reservations while they
are placed, pods that ignore reservations).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.cluster.ports import WILDCARD, shape_ports

PODS = "pods"
"""How the number of pods is named among resources, as in a node's allocatable."""

_SLOTS = -1
_Key = int | tuple[str, int]
"""What is over-committed: a resource by its index, the number of pods (_SLOTS), or a host port (protocol, port)."""


class Excess(NamedTuple):
    """`used` of a resource (milli-CPU, bytes, counts) where only `available` is; a host port is available once."""

    resource: str
    used: int
    available: int

    @property
    def label(self) -> str:
        """The resource as a metric's label has it: one for all host ports."""
        return "hostPort" if self.resource.startswith("hostPort ") else self.resource

    def __str__(self) -> str:
        unit = "m" if self.resource == "cpu" else ""
        return f"{self.resource} {self.used}{unit} of {self.available}{unit}"


class Overcommitments:
    """The nodes that are over-committed now, kept up by `ClusterState`. What-ifs do not come here."""

    def __init__(self, table: NodeTable, pods_on: Callable[[int], Mapping[str, Pod]]) -> None:
        """`pods_on`: the pods on a row, by uid."""
        self._table = table
        self._pods_on = pods_on
        self._ignores: Callable[[str], bool] = lambda resource: False
        self._exceeded: dict[int, set[_Key]] = {}
        self._changed: dict[str, None] = {}

    def __len__(self) -> int:
        """Nodes that are over-committed."""
        return len(self._exceeded)

    def ignore(self, ignores: Callable[[str], bool]) -> None:
        """Leaves out resources of these names from now on: those that the configuration tells us not to count."""
        self._ignores = ignores

    def nodes(self) -> Iterator[str]:
        """The names of the nodes that are over-committed."""
        return (self._table.names[row] for row in self._exceeded)

    def on(self, name: str) -> list[Excess]:
        """What there is too much of on the node of that name, in order of names; nothing for a node that is gone."""
        row = self._table.row_of.get(name, -1)
        return sorted(self._excess(row, key) for key in self._exceeded.get(row, ()))

    def take_changed(self) -> list[str]:
        """The nodes whose state changed, perhaps there and back, since this was asked last."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    # --- told by the cluster state ---------------------------------------------------------------

    def pod_added(self, row: int, pod: Pod) -> None:
        """A pod counts against the node on this row."""
        if pod.virtual:
            return
        table = self._table
        for index, _ in pod.requests.amounts:
            if table.requested[index].data[row] > table.allocatable[index].data[row]:
                self._check(row, index)
        if table.pods_count.data[row] > table.pods_allocatable.data[row]:
            self._check(row, _SLOTS)
        for _, protocol, port in shape_ports(pod.shape):
            self._check(row, (protocol, port))

    def pod_removed(self, row: int) -> None:
        """A pod does not count against it any more."""
        exceeded = self._exceeded.get(row)
        if exceeded is not None:
            for key in list(exceeded):
                self._check(row, key)

    def node_changed(self, row: int, resources: Iterable[str]) -> None:
        """The node's amounts of these resources, or of pods, changed."""
        index = self._table.resource_names.index
        for name in resources:
            if (number := index.get(name)) is not None:
                self._check(row, number)
        self._check(row, _SLOTS)

    def resource_changed(self, index: int) -> None:
        """The resource of this index is served otherwise from now on, or is not any more (`NodeTable`)."""
        table = self._table
        rows = table.all_rows
        for row in np.flatnonzero(table.requested[index].data[rows] > table.allocatable[index].data[rows]).tolist():
            self._check(row, index)

    def _check(self, row: int, key: _Key) -> None:
        excess = self._excess(row, key)
        over = excess.used > excess.available and not self._ignores(excess.resource)
        if over and not excess.available and excess.resource in self._table.served_otherwise:
            over = False
        exceeded = self._exceeded.get(row)
        if over == (exceeded is not None and key in exceeded):
            return
        self._changed[self._table.names[row]] = None
        if over:
            self._exceeded.setdefault(row, set()).add(key)
        elif exceeded is not None:
            exceeded.discard(key)
            if not exceeded:
                del self._exceeded[row]

    def _excess(self, row: int, key: _Key) -> Excess:
        table = self._table
        if key == _SLOTS:
            slots = int(table.pods_count.data[row])
            return Excess(PODS, slots - len(self._virtual(row)), int(table.pods_allocatable.data[row]))
        if isinstance(key, int):
            name = table.resource_names.names[key]
            held = sum(amount for pod in self._virtual(row) for index, amount in pod.requests.amounts if index == key)
            return Excess(name, int(table.requested[key].data[row]) - held, int(table.allocatable[key].data[row]))
        protocol, port = key
        claimed = table.ports.claimed(row, protocol, port)
        if claimed > 1 and self._virtual(row):
            claimed = self._claimed(row, protocol, port)
        return Excess(f"hostPort {protocol}/{port}", claimed, 1)

    def _virtual(self, row: int) -> list[Pod]:
        return [pod for pod in self._pods_on(row).values() if pod.virtual]

    def _claimed(self, row: int, protocol: str, port: int) -> int:
        """The same as `HostPorts.claimed`, of pods that are not virtual."""
        claims = Counter(
            ip
            for pod in self._pods_on(row).values()
            if not pod.virtual
            for ip, *rest in shape_ports(pod.shape)
            if rest == [protocol, port]
        )
        everywhere = claims.pop(WILDCARD, 0)
        return everywhere + max(claims.values(), default=0)
