"""Reports of node agents: an object per node that reports, of a custom kind, while that kind is served."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from koordsched.fakecluster.hollow.batchedtimers import BatchedTimers
from koordsched.fakecluster.hollow.complaints import invalid_annotation
from koordsched.fakecluster.hollow.hollownode import HollowNode
from koordsched.fakecluster.hollow.whileserved import WhileServed
from koordsched.fakecluster.registry import ChangeView, Registry
from koordsched.fakecluster.resources import Resource

Object = dict[str, Any]

_INTERVAL_SECONDS = 3.0
"""Between two checks of a node (koordlet: NodeTopologySyncInterval)."""
_GOLDEN_RATIO = 0.6180339887498949


class Reporter:
    """One node that reports."""

    __slots__ = ("due", "node", "phase", "writing")

    def __init__(self, node: HollowNode, phase: float) -> None:
        self.node = node
        self.phase = phase
        """Seconds: its place in the interval."""
        self.due = False
        self.writing = False


R = TypeVar("R", bound=Reporter)


class AgentReports(ABC, Generic[R]):
    """The reports of those of `nodes`, by name, that `follow` makes reporters of."""

    def __init__(
        self, registry: Registry, timers: BatchedTimers, nodes: Mapping[str, HollowNode], kind: tuple[str, str, str]
    ) -> None:
        """`kind`: group, version and plural."""
        self._registry = registry
        self._timers = timers
        self._nodes = nodes
        self._reporters: dict[str, R] = {}
        self._added = 0
        self._node_resource = registry.resource("", "v1", "nodes")
        self._endings: list[Callable[[], None]] = []
        self._served = WhileServed(registry, kind, self._begin, self._stop)

    def start(self) -> Callable[[], None]:
        """Begins to report as soon as the kind is served; returns what ends it."""
        return self._served.start()

    @abstractmethod
    def follow(self, node: HollowNode, obj: Object) -> None:
        """The node is there, or has changed."""

    @abstractmethod
    def _report(self, reporter: R) -> None:
        """Writes the report of a node if it has changed."""

    def resume(self, node: HollowNode) -> None:
        """The node works again after a silence."""
        reporter = self._reporter(node)
        if reporter is not None:
            self._soon(reporter)

    def remove(self, node: HollowNode) -> None:
        """The node was deleted, or does not report any more."""
        if self._reporter(node) is not None:
            del self._reporters[node.name]

    def _reporter(self, node: HollowNode) -> R | None:
        """That of this very node; None if it has none."""
        reporter = self._reporters.get(node.name)
        return reporter if reporter is not None and reporter.node is node else None

    def _next_phase(self) -> float:
        """A place in the interval, so that all nodes are spread over it."""
        self._added += 1
        return self._added * _GOLDEN_RATIO % 1 * _INTERVAL_SECONDS

    def _begin(self, resource: Resource) -> None:
        registry = self._registry
        for node in list(self._nodes.values()):
            obj = registry.peek(self._node_resource, None, node.name)
            if obj is not None:
                self.follow(node, obj)
        self._endings = self._subscribe(resource)

    def _subscribe(self, resource: Resource) -> list[Callable[[], None]]:
        """Listens to what makes a node report; returns what ends it."""
        return [self._registry.subscribe_changes(resource, self._report_changed, replay=False)]

    def _stop(self) -> None:
        for end in self._endings:
            end()
        self._endings = []
        self._reporters.clear()

    def _complain(self, obj: Object, node: str, annotation: str, problem: ValueError) -> None:
        message = f"{annotation} is ignored: {problem}"
        self._timers.after(0.0, invalid_annotation, self._registry, obj, node, message)

    def _report_changed(self, change: ChangeView) -> None:
        reporter = self._reporters.get(change.record.name)
        if reporter is not None and not reporter.writing:
            self._soon(reporter)

    def _soon(self, reporter: R) -> None:
        """Checks the node when its place in the interval comes."""
        if not reporter.due:
            reporter.due = True
            delay = (reporter.phase - self._registry.clock.now()) % _INTERVAL_SECONDS
            self._timers.after(delay, self._look, reporter)

    def _look(self, reporter: R) -> None:
        reporter.due = False
        self._report(reporter)


def owner_of(node: HollowNode) -> Object:
    """The reference of an object that is deleted with the node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "name": node.name,
        "uid": node.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owned_by(node: HollowNode) -> Object:
    """The metadata of a new object of the node's name, which is deleted with the node."""
    return {"name": node.name, "ownerReferences": [owner_of(node)]}
