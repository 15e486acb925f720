"""Reports on the devices of nodes: what koordlet does for hollow nodes.

They work while the CustomResourceDefinition of Device is installed (manifests/crds), for the nodes with the annotation
`koordsched.io/devices`. The objects are owned by their nodes and so deleted with them. When a device has failed, or
works again, there are Events about the node and about the pods that were given the device.
"""

from __future__ import annotations

from collections.abc import Mapping

from koordsched.fakecluster.hollow.agentevents import report_event
from koordsched.fakecluster.hollow.agentreports import AgentReports, Object, Reporter, owned_by
from koordsched.fakecluster.hollow.batchedtimers import BatchedTimers
from koordsched.fakecluster.hollow.devicedescription import Described, describe
from koordsched.fakecluster.hollow.devicefailures import FAIL_DEVICES, read_failures
from koordsched.fakecluster.hollow.devicelayout import DEVICES, read_devices
from koordsched.fakecluster.hollow.hollownode import Health, HollowNode
from koordsched.fakecluster.registry import Registry

DEVICE_KIND = ("scheduling.koordinator.sh", "v1alpha1", "devices")


class DeviceReports(AgentReports[Reporter]):
    """The reports of those of `nodes`, by name, whose devices are known."""

    def __init__(self, registry: Registry, timers: BatchedTimers, nodes: Mapping[str, HollowNode]) -> None:
        super().__init__(registry, timers, nodes, DEVICE_KIND)

    def follow(self, node: HollowNode, obj: Object) -> None:
        """The node is there or has changed: reads which devices it has, whether these are reported or not."""
        annotations = obj["metadata"].get("annotations") or {}
        texts = annotations.get(DEVICES), annotations.get(FAIL_DEVICES)
        reporter = self._reporter(node)
        if texts != (node.devices.texts or (None, None)):
            self._read(node, obj, *texts)
        elif reporter is not None:
            return
        node.devices.texts = texts
        if self._served.resource is None or node.devices.machine is None:
            return
        if reporter is None:
            reporter = self._reporters[node.name] = Reporter(node, self._next_phase())
        self._soon(reporter)

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

    def _report(self, reporter: Reporter) -> None:
        node, resource, machine = reporter.node, self._served.resource, reporter.node.devices.machine
        if resource is None or self._reporters.get(node.name) is not reporter or node.health is Health.SILENT:
            return
        assert machine is not None, "nodes of which it is not known do not report"
        record = self._registry.collection(resource).get("", node.name)
        old = record.obj() if record is not None else {"metadata": owned_by(node)}
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
