"""Reports nodes that are over-committed: in the log, in metrics, and in an Event on the node.

An episode begins when a node that was in order is not any more and ends when it is again. Only what lasts is reported:
watches of pods and nodes are independent, so for a moment a node may seem to hold a pod that is already gone.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable

from koordsched.cluster.builtinkinds import NODES
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.overcommitment import PODS, Excess, Overcommitments
from koordsched.cluster.state import ClusterState
from koordsched.config.plugin_args import NodeResourcesFitArgs
from koordsched.config.qualified_names import is_extended_resource
from koordsched.config.resolving import Profile
from koordsched.framework.handle import WARNING, EventRecorder
from koordsched.observability.logging import level_of
from koordsched.observability.metrics import Metrics

_log = logging.getLogger(__name__)

SETTLED = 3.0
"""Seconds that an over-commitment lasts before it is reported."""

OTHER = "other"
"""The label of resources beyond those of `Labels`."""

_LABELS_KEPT = 64
"""Names that no node offers (any more) and that have a label nevertheless."""

_NAMED = 10
"""So many resources are named in a text."""


class OvercommitmentReports:
    """The leader calls `tick` about once a second; a standby reports nothing."""

    def __init__(
        self, cluster: ClusterState, reporter: EventRecorder, metrics: Metrics, monotonic: Callable[[], float]
    ) -> None:
        self._table = cluster.table
        self._found = cluster.overcommitments
        self._labels = Labels(cluster.table)
        self._reporter = reporter
        self._monotonic = monotonic
        self._due: dict[str, float] = {}
        self._reported: dict[str, frozenset[str]] = {}
        """Node -> the resources that were reported in this episode."""
        self._counters = metrics.counters(
            "koordsched_node_overcommitments_total",
            "Times that the pods on a node were found to request more of a resource than it has.",
            ("resource",),
        )
        metrics.read(
            "koordsched_overcommitted_nodes",
            "Nodes whose pods request more of a resource than there is, now.",
            lambda: nodes_by_resource(self._found, self._labels),
            ("resource",),
            of_leader=True,
        )

    def tick(self) -> None:
        """Reports what has lasted long enough. Costs nothing while nothing changes."""
        changed = self._found.take_changed()
        if not changed and not self._due:
            return
        now = self._monotonic()
        for name in changed:
            self._due.setdefault(name, now + SETTLED)
        for name in [name for name, due in self._due.items() if due <= now]:
            del self._due[name]
            self._settle(name)

    def _settle(self, name: str) -> None:
        exceeded = self._found.on(name)
        before = self._reported.pop(name, frozenset())
        resources = frozenset(excess.resource for excess in exceeded)
        if resources:
            self._reported[name] = resources
        if resources == before:
            return
        new = [excess for excess in exceeded if excess.resource not in before]
        for label, times in self._labels.of(new).items():
            self._counters.labels(label).inc(times)
        text = _named(exceeded)
        if not exceeded:
            _log.log(level_of(1), "node %s is not over-committed any more", name)
            return
        _log.warning("node %s is over-committed: %s", name, text)
        node = self._table.nodes[self._table.row_of[name]]
        if not before and node is not None:
            message = f"its pods request more than it has: {text}"
            self._reporter.event(NODES, node.metadata, WARNING, "OverCommitted", message, action="Accounting")


class Labels:
    """Resources as labels of metrics. A metric keeps every label, and pods may request any names: so besides what nodes
    offer the first few names have one of their own, and all others one together.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._known = {PODS}

    def of(self, exceeded: Iterable[Excess]) -> Counter[str]:
        """How many there are of each label."""
        return Counter(map(self._label, exceeded))

    def _label(self, excess: Excess) -> str:
        label = excess.label
        if excess.available or label in self._known or self._offered(label):
            return label
        if len(self._known) >= _LABELS_KEPT:
            return OTHER
        self._known.add(label)
        return label

    def _offered(self, resource: str) -> bool:
        index = self._table.resource_names.index.get(resource, -1)
        return 0 <= index < len(self._table.allocatable) and bool(self._table.allocatable[index].data.any())


def nodes_by_resource(found: Overcommitments, labels: Labels) -> dict[str, int]:
    """Nodes that are over-committed, by label; all host ports count as one."""
    counts: Counter[str] = Counter()
    for name in found.nodes():
        counts.update(labels.of(found.on(name)).keys())
    return counts


def _named(exceeded: list[Excess]) -> str:
    """What there is too much of, first that of which the node has some: users may request thousands of names."""
    named = sorted(exceeded, key=lambda excess: not excess.available)[:_NAMED]
    more = len(exceeded) - len(named)
    return ", ".join(map(str, named)) + (f" and {more} more" if more else "")


def ignored_resources(profiles: Iterable[Profile]) -> Callable[[str], bool]:
    """Whether a resource is one that some profile was told not to count: what is not counted is not over-committed."""
    names: set[str] = set()
    groups: set[str] = set()
    for profile in profiles:
        args = profile.args.get("NodeResourcesFit")
        if isinstance(args, NodeResourcesFitArgs):
            names.update(args.ignored_resources)
            groups.update(args.ignored_resource_groups)

    def ignores(resource: str) -> bool:
        return (resource in names or resource.partition("/")[0] in groups) and is_extended_resource(resource)

    return ignores
