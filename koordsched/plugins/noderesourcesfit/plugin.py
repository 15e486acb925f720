"""The plugin: filter, score and queueing hints."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from koordsched.api.core import Node
from koordsched.cluster.changelog import Facet, RowArray
from koordsched.cluster.events import DEVICE_CLASS, NODE, POD, ActionType, ClusterEvent
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.pod import Pod
from koordsched.cluster.podevents import place_left
from koordsched.cluster.resources import FIRST_SCALAR, MEMORY, allocatable_of
from koordsched.cluster.shape import PodShape
from koordsched.config.plugin_args import NodeResourcesFitArgs, ScoringStrategy
from koordsched.config.qualified_names import is_extended_resource
from koordsched.framework.handle import Handle
from koordsched.framework.interface import (
    MAX_SCORE,
    PreFilterResult,
    Scores,
    ShapeFilter,
    ShapePreFilter,
    ShapeScore,
)
from koordsched.framework.jobs import GroupJob
from koordsched.framework.placements import PlacementScore
from koordsched.framework.status import PASS, SUCCESS, Codes, Status
from koordsched.plugins.noderesourcesfit.insufficiency import Insufficiency
from koordsched.plugins.noderesourcesfit.strategies import DEFAULT_RESOURCES, ScoredResource, strategy_of
from koordsched.plugins.noderesourcesfit.waiting import Amounts, Offer, WaitingRequests
from koordsched.plugins.shared.extendedresources import ExtendedResources, resources_of, scored_devices
from koordsched.plugins.shared.matching.rows import refused_row, single
from koordsched.queue.hints import HintRegistration, OtherNodeHint, QueueingHint, Scope


class _Compiled:
    """One shape's requests, ready to be compared with rows."""

    __slots__ = ("insufficiency", "scored")

    def __init__(self, insufficiency: Insufficiency, scored: tuple[ScoredResource, ...]) -> None:
        self.insufficiency = insufficiency
        self.scored = scored


class NodeResourcesFit(ShapePreFilter, ShapeFilter, ShapeScore, PlacementScore):
    """Refuses nodes without room for the pod's requests; scores by what would be left or used."""

    name = "NodeResourcesFit"
    facets = int(Facet.RESOURCES)

    def __init__(self, args: NodeResourcesFitArgs | None, handle: Handle) -> None:
        """Raises ValueError for an unknown scoring strategy."""
        args = args or NodeResourcesFitArgs()
        configured = args.scoring_strategy or ScoringStrategy(type="LeastAllocated")
        self._strategy = strategy_of(configured)
        self._resources = configured.resources or DEFAULT_RESOURCES
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._extended = ExtendedResources.shared(handle)
        self._classes: Container[str] = self._extended.classes if self._extended is not None else ()
        self._devices = scored_devices(self._extended, (resource.name for resource in self._resources))
        self._table = handle.cluster.table
        self._nominations = handle.nominations
        self._reasons = handle.reasons

    def _compile(self, shape: PodShape) -> _Compiled:
        names = self._table.resource_names
        amounts = tuple((i, amount) for i, amount in shape.requests.amounts if not self._ignores(names.names[i]))
        for index, _ in amounts:
            self._table.ensure_resource(index)
        scored = []
        for resource in self._resources:
            index = names.intern(resource.name)
            self._table.ensure_resource(index)
            request = shape.scored.get(index, 0)
            if index < FIRST_SCALAR or request:
                devices = self._devices.get(resource.name)
                scored.append(ScoredResource(index, resource.weight, request, index <= MEMORY, devices))
        return _Compiled(Insufficiency(self.name, amounts, names.names, self._reasons, self._classes), tuple(scored))

    def _ignores(self, resource: str) -> bool:
        if not self._ignored and not self._ignored_groups:
            return False
        listed = resource in self._ignored or resource.partition("/")[0] in self._ignored_groups
        return listed and is_extended_resource(resource)

    def pre_filter_shape(self, shape: PodShape) -> PreFilterResult | Status:
        """SUCCESS: a pod without requests still needs a free slot."""
        return SUCCESS

    def filter_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Codes | None:
        """All shortages of a node together are its reason."""
        insufficiency = shape.compiled(self, self._compile).insufficiency
        row = single(rows)
        if row >= 0:
            code = insufficiency.of_row(table, row)
            return None if code == PASS else refused_row(code)
        return insufficiency.of_rows(table, rows)

    def score_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Scores:
        """0..100 by the configured strategy."""
        scored = shape.compiled(self, self._compile).scored
        row = single(rows)
        if row >= 0:
            return self._strategy.score_row(scored, table, row)
        return self._strategy.score_rows(scored, table, rows)

    # --- queueing hints ----------------------------------------------------------------------------

    def score_placement(self, group: GroupJob, rows: RowArray) -> int:
        """MostAllocated of the rows as a whole."""
        table, score, weights = self._table, 0, 0
        for resource in self._resources:
            index = table.resource_names.intern(resource.name)
            table.ensure_resource(index)
            offered = int(table.allocatable[index].data[rows].sum())
            if offered <= 0:
                continue
            used = (table.requested_nonzero if index <= MEMORY else table.requested)[index].data[rows]
            score += resource.weight * (min(int(used.sum()), offered) * MAX_SCORE // offered)
            weights += resource.weight
        return score // weights if weights else 0

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Pods that are deleted or request less, nodes that are added or offer more, classes that stand for another
        resource.
        """
        of_classes = HintRegistration(
            self.name,
            ClusterEvent(DEVICE_CLASS, ActionType.ADD | ActionType.UPDATE),
            self._after_class_change,
            Scope.SHAPE,
        )
        return [
            *([of_classes] if self._extended is not None else []),
            HintRegistration(
                self.name,
                ClusterEvent(POD, ActionType.DELETE | ActionType.UPDATE_POD_SCALE_DOWN),
                self._after_pod_change,
                Scope.SHAPE,
                OtherNodeHint(place_left, self._after_pod_left_elsewhere),
            ),
            HintRegistration(
                self.name,
                ClusterEvent(NODE, ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE),
                self._after_node_change,
                Scope.SHAPE,
                index=WaitingRequests(self._amounts_of, self._node_offer, self._has_class),
            ),
        ]

    def _amounts_of(self, pod: Pod) -> Amounts:
        return pod.shape.compiled(self, self._compile).insufficiency.amounts

    def _node_offer(self, old: Any, new: Any) -> Offer:
        amounts, slots = self._allocatable(new)
        before, slots_before = self._allocatable(old) if old is not None else (amounts, 0)
        return Offer(amounts, None if slots > slots_before else before)

    def _after_pod_change(self, pod: Pod, old: Any, new: Any) -> QueueingHint:
        if new is None:
            freed = old is not None and bool(old.node or old.nominated_node)
            return QueueingHint.QUEUE if freed else QueueingHint.SKIP
        if new.uid == pod.uid:
            return QueueingHint.QUEUE
        if old is None or not new.node:
            return QueueingHint.SKIP
        shrunk = any(old.requests.get(index) > new.requests.get(index) for index, _ in pod.shape.requests.amounts)
        return QueueingHint.QUEUE if shrunk else QueueingHint.SKIP

    def _after_pod_left_elsewhere(self, pod: Pod, old: Any, new: Any) -> QueueingHint:
        """Room on another node than the one that the pod is nominated to counts if it is enough.

        Not by what the event freed but by what is free now: if that is too little, whatever makes it more is an event
        of its own. Nor would preemption there help: a pod that waits for victims selects no others.
        """
        return QueueingHint.QUEUE if self._has_room(pod, old.node) else QueueingHint.SKIP

    def _has_room(self, pod: Pod, node: str) -> bool:
        """Whether the pod's requests fit beside the pods there and those of its priority or more that are to come.

        The pod itself is not nominated to this node.
        """
        table = self._table
        row = table.row_of.get(node)
        if row is None:
            return False
        coming = self._nominations.nominated_on(node, pod.priority)
        if table.pods_count.data.item(row) + len(coming) >= table.pods_allocatable.data.item(row):
            return False
        insufficiency = pod.shape.compiled(self, self._compile).insufficiency
        for index, amount in insufficiency.amounts:
            allocatable = table.allocatable[index].data.item(row)
            if not allocatable and insufficiency.has_class(index):
                continue
            free = allocatable - table.requested[index].data.item(row)
            if amount > free - sum(other.requests.get(index) for other in coming):
                return False
        return True

    def _after_node_change(self, pod: Pod, old: Any, new: Any) -> QueueingHint:
        if new is None:
            return QueueingHint.SKIP
        requests = self._amounts_of(pod)
        amounts, slots = self._allocatable(new)
        delegated = [index for index, _ in requests if not amounts.get(index) and self._has_class(index)]
        if slots < 1 or any(
            amount > amounts.get(index, 0) for index, amount in requests if not delegated or index not in delegated
        ):
            return QueueingHint.SKIP
        if old is None:
            return QueueingHint.QUEUE
        amounts_before, slots_before = self._allocatable(old)
        grown = slots > slots_before or any(
            amounts.get(index, 0) > amounts_before.get(index, 0) for index, _ in requests
        )
        return QueueingHint.QUEUE if grown or delegated else QueueingHint.SKIP

    def _has_class(self, index: int) -> bool:
        return index >= FIRST_SCALAR and self._table.resource_names.names[index] in self._classes

    def _after_class_change(self, pod: Pod, old: Any, new: Any) -> QueueingHint:
        """A resource that the pod requests may have got a class. Other changes of a class are not for this plugin."""
        if new is None:
            return QueueingHint.SKIP
        before = resources_of(old) if old is not None else ()
        index_of = self._table.resource_names.index
        gained = {index_of.get(resource) for resource in resources_of(new) if resource not in before}
        requested = any(index in gained for index, _ in pod.shape.requests.amounts)
        return QueueingHint.QUEUE if requested else QueueingHint.SKIP

    def _allocatable(self, node: Node) -> tuple[dict[int, int], int]:
        amounts, slots, _ = allocatable_of(node.status.allocatable, self._table.resource_names)
        return amounts, slots
