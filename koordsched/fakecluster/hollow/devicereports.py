"""Reports on the devices of nodes: what koordlet does for hollow nodes.

They work while the CustomResourceDefinition of Device is installed (manifests/crds), for the nodes with the annotation
`koordsched.io/devices`. The objects are owned by their nodes and so deleted with them. When a device has failed, or
works again, there are Events about the node and about the pods that were given the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from koordsched.fakecluster.hollow.agentevents import report_event
from koordsched.fakecluster.hollow.batchedtimers import BatchedTimers
from koordsched.fakecluster.hollow.complaints import invalid_annotation
from koordsched.fakecluster.hollow.devicedescription import Described, describe
from koordsched.fakecluster.hollow.devicefailures import FAIL_DEVICES, read_failures
from koordsched.fakecluster.hollow.devicelayout import DEVICES, read_devices
from koordsched.fakecluster.hollow.hollownode import Health, HollowNode
from koordsched.fakecluster.hollow.whileserved import WhileServed
from koordsched.fakecluster.registry import ChangeView, Registry
from koordsched.fakecluster.resources import Resource

Object = dict[str, Any]

DEVICE_KIND = ("scheduling.koordinator.sh", "v1alpha1", "devices")
_INTERVAL_SECONDS = 3.0
"""Between two looks at a node (koordlet: NodeTopologySyncInterval)."""
_GOLDEN_RATIO = 0.6180339887498949


class _Reporter:
    """One node that reports."""

    __slots__ = ("due", "node", "phase", "writing")

    def __init__(self, node: HollowNode, phase: float) -> None:
        self.node = node
        self.phase = phase
        """Seconds: its place in the interval."""
        self.due = False
        self.writing = False


class DeviceReports:
    """The reports of those of `nodes`, by name, whose devices are known."""

    def __init__(self, registry: Registry, timers: BatchedTimers, nodes: Mapping[str, HollowNode]) -> None:
        self._registry = registry
        self._timers = timers
        self._nodes = nodes
        self._reporters: dict[str, _Reporter] = {}
        self._added = 0
        self._node_resource = registry.resource("", "v1", "nodes")
        self._endings: list[Callable[[], None]] = []
        self._served = WhileServed(registry, DEVICE_KIND, self._begin, self._stop)

    def start(self) -> Callable[[], None]:
        """Begins to report as soon as the definition is there; returns what ends it."""
        return self._served.start()

    def follow(self, node: HollowNode, obj: Object) -> None:
        """The node is there or has changed: reads which devices it has, whether these are reported or not."""
        annotations = obj["metadata"].get("annotations") or {}
        texts = annotations.get(DEVICES), annotations.get(FAIL_DEVICES)
        reporter = self._reporters.get(node.name)
        if texts != (node.devices.texts or (None, None)):
            self._read(node, obj, *texts)
        elif reporter is not None and reporter.node is node:
            return
        node.devices.texts = texts
        if self._served.resource is None or node.devices.machine is None:
            return
        if reporter is None or reporter.node is not node:
            self._added += 1
            reporter = _Reporter(node, self._added * _GOLDEN_RATIO % 1 * _INTERVAL_SECONDS)
            self._reporters[node.name] = reporter
        self._soon(reporter)

    def resume(self, node: HollowNode) -> None:
        """The node works again after a silence."""
        reporter = self._reporters.get(node.name)
        if reporter is not None and reporter.node is node:
            self._soon(reporter)

    def remove(self, node: HollowNode) -> None:
        """The node was deleted."""
        reporter = self._reporters.get(node.name)
        if reporter is not None and reporter.node is node:
            del self._reporters[node.name]

    def _begin(self, resource: Resource) -> None:
        registry = self._registry
        for node in list(self._nodes.values()):
            obj = registry.peek(self._node_resource, None, node.name)
            if obj is not None:
                self.follow(node, obj)
        self._endings = [registry.subscribe_changes(resource, self._report_changed, replay=False)]

    def _stop(self) -> None:
        for end in self._endings:
            end()
        self._endings = []
        self._reporters.clear()

    def _read(self, node: HollowNode, obj: Object, layout: str | None, failures: str | None) -> None:
        books = node.devices
        books.machine, books.failures = None, {}
        try:
            books.machine = read_devices(layout) if layout is not None else None
        except ValueError as error:
            self._complain(obj, node.name, DEVICES, error)
        if books.machine is None:
            self.remove(node)
            return
        try:
            books.failures = read_failures(failures or "", books.machine.devices)
        except ValueError as error:
            self._complain(obj, node.name, FAIL_DEVICES, error)

    def _complain(self, obj: Object, node: str, annotation: str, problem: ValueError) -> None:
        message = f"{annotation} is ignored: {problem}"
        self._timers.after(0.0, invalid_annotation, self._registry, obj, node, message)

    # -- reporting

    def _report_changed(self, change: ChangeView) -> None:
        reporter = self._reporters.get(change.record.name)
        if reporter is not None and not reporter.writing:
            self._soon(reporter)

    def _soon(self, reporter: _Reporter) -> None:
        """Looks at the node when its place in the interval comes."""
        if not reporter.due:
            reporter.due = True
            delay = (reporter.phase - self._registry.clock.now()) % _INTERVAL_SECONDS
            self._timers.after(delay, self._report, reporter)

    def _report(self, reporter: _Reporter) -> None:
        reporter.due = False
        node, resource, machine = reporter.node, self._served.resource, reporter.node.devices.machine
        if resource is None or self._reporters.get(node.name) is not reporter or node.health is Health.SILENT:
            return
        assert machine is not None, "nodes of which it is not known do not report"
        record = self._registry.collection(resource).get("", node.name)
        old = record.obj() if record is not None else _new(node)
        described = describe(machine, node.devices.failures, node.name, old, self._registry.clock.now())
        new = described.written_to(old)
        reporter.writing = True
        try:
            # It obeys the schema, which need not be checked: there may be thousands of reports at once.
            if record is None:
                self._registry.create_record(resource, None, new, trusted=True)
            elif new != old:
                if new["spec"] != old.get("spec"):
                    new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
                self._registry.replace_record(resource, record, new)
        finally:
            reporter.writing = False
        self._announce(node, old, described)

    def _announce(self, node: HollowNode, old: Object, described: Described) -> None:
        """Creates Events for devices that have failed since, or work again."""
        entries = (old.get("spec") or {}).get("devices") or ()
        known = {(entry.get("type"), entry.get("minor")): entry for entry in entries}
        for entry in described.devices:
            key = entry["type"], entry["minor"]
            if known.get(key, {}).get("health", True) == entry["health"]:
                continue
            name = f"{entry['type']} {entry['minor']} ({entry['id']})"
            reason, state, type_ = "DeviceHealthy", "is healthy again", "Normal"
            if not entry["health"]:
                (condition,) = entry["conditions"]
                reason, type_ = "DeviceUnhealthy", "Warning"
                state = f"is unhealthy: {condition['reason']}, {condition['message']}"
            concerned = [(self._registry.peek(self._node_resource, None, node.name), f"{name} {state}")]
            for pod in node.devices.holders(key):
                found = self._registry.peek(self._registry.pods, *pod)
                concerned.append((found, f"{name}, which the pod was given, {state}"))
            for obj, message in concerned:
                if obj is not None:
                    report_event(self._registry, "koordlet", node.name, obj, reason, message, type_)


def _new(node: HollowNode) -> Object:
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": node.name,
        "uid": node.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {"metadata": {"name": node.name, "ownerReferences": [owner]}}
