"""Keeps the columns in step with nodes and with the reports of their agents."""

from __future__ import annotations

from typing import Any

import orjson

from koordsched.api import core
from koordsched.cluster.builtinkinds import NODES
from koordsched.cluster.events import ActionType, ClusterEvent, EventResource
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import WARNING, Handle
from koordsched.framework.topologyhints import NUMAPolicy
from koordsched.plugins.nodenumaresource import kinds
from koordsched.plugins.nodenumaresource.allocation import MAX_NUMA_NODES
from koordsched.plugins.nodenumaresource.columns import ABSENT, Layout, NUMAColumns, mode_number
from koordsched.plugins.nodenumaresource.kinds import NODE_RESOURCE_TOPOLOGIES, NodeResourceTopology
from koordsched.plugins.nodenumaresource.podrequest import NUMA_POLICIES
from koordsched.plugins.nodenumaresource.policies import AllocateStrategy, BindPolicy
from koordsched.plugins.nodenumaresource.reportstates import INVALID, NONE, STATES, VALID
from koordsched.plugins.nodenumaresource.topologyoptions import Ratios, TopologyOptions, amplified, read, read_ratios

NUMA_CHANGED = ClusterEvent(
    EventResource("noderesourcetopologies.v1alpha1.topology.node.k8s.io"), ActionType.UPDATE, "NUMAChanged"
)
"""Announced when the CPUs or NUMA nodes of a known node have changed; comes with the row."""

NO_OPTIONS = TopologyOptions()

_BIND_POLICIES = {
    "None": BindPolicy.NONE,
    "FullPCPUsOnly": BindPolicy.FULL_PCPUS,
    "SpreadByPCPUs": BindPolicy.SPREAD_BY_PCPUS,
}
"""Values of the label of nodes."""
_TEXTS_KEPT = 1024


class NUMANode:
    """What is known of a node: the report read, and what its labels and annotations say."""

    __slots__ = ("bind", "given", "node_problem", "numa", "options", "ratios", "report_problems", "strategy", "zones")

    def __init__(self) -> None:
        self.options = NO_OPTIONS
        self.given: tuple[object, ...] = ()
        """What of the node, and the options, the columns were filled from."""
        self.node_problem = ""
        """What is wrong with its labels or annotations."""
        self.report_problems: tuple[str, ...] = ()
        """What of the report could not be used, as an Event of the node has said."""
        self.numa = NUMAPolicy.NONE
        self.bind = BindPolicy.NONE
        self.strategy: AllocateStrategy | None = None
        self.ratios: Ratios = {}
        self.zones: tuple[dict[str, int], ...] = ()


class NUMANodes:
    """One for all profiles."""

    def __init__(self, cluster: ClusterState, handle: Handle) -> None:
        self._cluster = cluster
        self._events = handle.events
        self.columns = cluster.shared(NUMAColumns)
        self._by_name: dict[str, NUMANode] = {}
        self._name_of: dict[int, str] = {}
        """By row, as rows lose their names before they are removed."""
        self._topology_texts: dict[str, str] = {}
        cluster.read_annotations.update((*kinds.OF_NODES, *kinds.OF_TOPOLOGIES))
        cluster.table.on_node(self._node_changed)
        cluster.table.on_removal(self._node_removed)
        cluster.objects.of(NODE_RESOURCE_TOPOLOGIES).subscribe(self._reported)

    def of_row(self, row: int) -> NUMANode | None:
        """What is known of the node on a row."""
        return self._by_name.get(self._cluster.table.names[row])

    def of_node(self, name: str) -> NUMANode | None:
        """What is known of a node; None without node and report."""
        return self._by_name.get(name)

    def manager_policy(self, name: str) -> dict[str, Any]:
        """What the kubelet of a node says about its CPU manager; empty if that cannot be read."""
        report = self._cluster.objects.of(NODE_RESOURCE_TOPOLOGIES).get("", name)
        text = report.metadata.annotations.get(kinds.CPU_MANAGER_POLICY) if report is not None else None
        try:
            found = orjson.loads(text or "{}")
        except orjson.JSONDecodeError:
            return {}
        return found if isinstance(found, dict) else {}

    def _reported(self, old: NodeResourceTopology | None, new: NodeResourceTopology | None) -> None:
        report = new if new is not None else old
        assert report is not None, "one of them is there"
        name = report.metadata.name
        node = self._by_name.setdefault(name, NUMANode())
        if new is not None:
            self._share_topology(new.metadata.annotations)
        node.options = read(new) if new is not None else NO_OPTIONS
        row = self._cluster.table.row_of.get(name)
        if row is not None:
            wire = self._cluster.table.nodes[row]
            assert wire is not None, "a known name has a node"
            if self._fill(row, wire, node):
                self._cluster.announce(NUMA_CHANGED, None, row)
        elif new is None:
            del self._by_name[name]

    def _share_topology(self, annotations: dict[str, str]) -> None:
        """Machines of a model have equal topologies, which are the largest part of a report: one text is kept."""
        text = annotations.get(kinds.CPU_TOPOLOGY)
        if text is not None:
            if len(self._topology_texts) >= _TEXTS_KEPT:
                self._topology_texts.clear()
            annotations[kinds.CPU_TOPOLOGY] = self._topology_texts.setdefault(text, text)

    def _node_changed(self, row: int, wire: core.Node) -> None:
        new = row not in self._name_of
        self._name_of[row] = wire.metadata.name
        changed = self._fill(row, wire, self._by_name.setdefault(wire.metadata.name, NUMANode()))
        if changed and not new:  # that a node was added is announced when its pods are on it
            self._cluster.announce(NUMA_CHANGED, None, row)

    def _node_removed(self, row: int) -> None:
        name = self._name_of.pop(row)
        node = self._by_name[name]
        node.given = node.report_problems = ()
        node.node_problem = ""
        if node.options is NO_OPTIONS:
            del self._by_name[name]

    def _warn(self, wire: core.Node, message: str) -> None:
        self._events.event(NODES, wire.metadata, WARNING, "InvalidNodeTopology", message[:1024])

    def _fill(self, row: int, wire: core.Node, node: NUMANode) -> bool:
        """The columns of a row; whether anything changed."""
        labels, annotations = wire.metadata.labels, wire.metadata.annotations
        given = (
            row,
            node.options is NO_OPTIONS,  # a report that says nothing is equal, and is one
            node.options,
            labels.get(kinds.NUMA_TOPOLOGY_POLICY, ""),
            labels.get(kinds.CPU_BIND_POLICY, ""),
            labels.get(kinds.NUMA_ALLOCATE_STRATEGY, ""),
            annotations.get(kinds.AMPLIFICATION_RATIO, ""),
        )
        if given == node.given:
            return False
        node.given = given
        _, _, options, numa, bind, strategy, ratio_text = given
        if options.problems and options.problems != node.report_problems:
            self._warn(wire, f"NodeResourceTopology: {'; '.join(options.problems)}")
        node.report_problems = options.problems
        problems = []
        node_ratios: Ratios = {}
        malformed = False
        if ratio_text:
            try:
                node_ratios = read_ratios(ratio_text) or {}
            except (ValueError, RecursionError) as error:
                malformed = True
                problems.append(f"annotation {kinds.AMPLIFICATION_RATIO}: {error}")
        if numa not in NUMA_POLICIES and numa != "None":
            problems.append(f"label {kinds.NUMA_TOPOLOGY_POLICY}: no policy {numa[:64]!r}, so none applies")
        if bind and bind not in _BIND_POLICIES:
            problems.append(f"label {kinds.CPU_BIND_POLICY}: no policy {bind[:64]!r}, so none applies")
        problem = "; ".join(problems)
        if problem and problem != node.node_problem:
            self._warn(wire, problem)
        node.node_problem = problem
        node.numa = NUMA_POLICIES.get(numa, NUMAPolicy.NONE) if numa else options.policy
        node.bind = _bind_policy(bind, options)
        node.strategy = AllocateStrategy(strategy) if strategy else None
        if options.ratios is not None:
            node.ratios, node.zones = options.ratios, options.zones
        else:
            node.ratios, node.zones = node_ratios, amplified(options.zones, node_ratios)
        self._store(row, node, node_ratios.get("cpu", 0.0), malformed=malformed)
        self._cluster.table.touch(row, self.columns.facets)
        return True

    def _store(self, row: int, node: NUMANode, node_ratio: float, *, malformed: bool) -> None:
        columns, options = self.columns, node.options
        valid = options.topology is not None and options.topology.valid
        columns.mode.data[row] = mode_number(
            node.numa,
            node.bind,
            cpus=valid,
            zones=bool(node.zones),
            amplified=node_ratio > 1,
            malformed=malformed,
            invalid=not valid and options is not NO_OPTIONS,
        )
        reported = options is not NO_OPTIONS
        wrong = bool(node.node_problem or options.problems) or (reported and not valid)
        columns.report.data[row] = STATES.index(INVALID if wrong else VALID if reported else NONE)
        columns.ratio.data[row] = node.ratios.get("cpu", 0.0)
        columns.node_ratio.data[row] = node_ratio
        columns.zone_count.data[row] = len(node.zones)
        indexes = {name: columns.add_resource(name) for zone in node.zones for name in zone}
        zones = columns.zones.data[row]
        zones[:] = ABSENT
        for number, zone in enumerate(node.zones):
            for name, amount in zone.items():
                if indexes[name] >= 0:
                    zones[indexes[name] * MAX_NUMA_NODES + number] = amount
        layout = Layout(options.topology, options.reserved) if options.topology is not None else None
        if layout != columns.layout(row):
            columns.set_layout(row, layout)


def _bind_policy(label: str, options: TopologyOptions) -> BindPolicy:
    """The kubelet's option for whole cores takes precedence over the label (nodenumaresource spec 2.4)."""
    return BindPolicy.FULL_PCPUS if options.full_cores_only else _BIND_POLICIES.get(label, BindPolicy.NONE)
