"""Hollow nodes: nodes with kubelets that do everything but run containers."""

from __future__ import annotations

import logging
from collections.abc import Callable

from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.hollow.allocation import NodeAllocation
from koordsched.fakecluster.hollow.amplification import RATIO, RAW, amplified, ratio_text
from koordsched.fakecluster.hollow.batchedtimers import BatchedTimers
from koordsched.fakecluster.hollow.bindingconditions import BindingConditions
from koordsched.fakecluster.hollow.claimbooks import ClaimBooks
from koordsched.fakecluster.hollow.complaints import invalid_annotation
from koordsched.fakecluster.hollow.devicereports import DeviceReports
from koordsched.fakecluster.hollow.deviceresources import DeviceResources
from koordsched.fakecluster.hollow.heartbeats import Heartbeats
from koordsched.fakecluster.hollow.hollownode import Health, HollowNode, commanded_health, start_error, whole_cores
from koordsched.fakecluster.hollow.loadreports import LoadReports
from koordsched.fakecluster.hollow.nodeobjects import HOLLOW, Object, extra_objects, node_object, plan_nodes
from koordsched.fakecluster.hollow.options import HollowOptions
from koordsched.fakecluster.hollow.podrunner import PodRunner
from koordsched.fakecluster.hollow.slicepublisher import SlicePublisher
from koordsched.fakecluster.hollow.templates import TemplateError, load_pools, load_templates
from koordsched.fakecluster.hollow.topologyreports import TopologyReports
from koordsched.fakecluster.hollow.usage import Share
from koordsched.fakecluster.registry import ChangeView, Registry

__all__ = ["HollowNodes", "HollowOptions", "Share", "TemplateError"]

_WAIT_FOR_DEFINITION_SECONDS = 1.0

_log = logging.getLogger(__name__)


class HollowNodes:
    """Registers nodes from templates and runs them, and every other node that carries the annotation
    `koordsched.io/hollow: "true"`: from a snapshot, or made by hand.

    Raises TemplateError when the templates cannot be used.
    """

    def __init__(self, registry: Registry, options: HollowOptions | None = None) -> None:
        self._registry = registry
        self._options = options or HollowOptions()
        self._planned = plan_nodes(load_templates(self._options.template), self._options.count)
        self._timers = BatchedTimers(registry)
        self._heartbeats = Heartbeats(registry, self._timers, self._options)
        self._slices = SlicePublisher(registry, self._timers, load_pools(self._options.template))
        self._bindings = BindingConditions(registry, self._timers, self._slices)
        claims = ClaimBooks(registry, self._slices)
        self._runner = PodRunner(registry, self._timers, self._options, self._node_of, claims)
        self._nodes: dict[str, HollowNode] = {}
        self._loads = LoadReports(registry, self._timers, self._options, self._nodes)
        self._topologies = TopologyReports(registry, self._timers, self._nodes)
        self._devices = DeviceReports(registry, self._timers, self._nodes)
        self._device_resources = DeviceResources(
            registry, self._timers, self._nodes, gpu_shared=self._options.gpu_shared
        )
        self._left_behind: dict[str, dict[tuple[str, str], str]] = {}
        """The pods of nodes that were deleted, in case a node of that name comes back."""
        self._resource = registry.resource("", "v1", "nodes")
        self._endings: list[Callable[[], None]] = []

    def start(self) -> None:
        """Registers the nodes that are not there yet, and begins to run all hollow ones."""
        self._endings.append(self._slices.start())
        # Pods after nodes: each pod must find its node.
        self._endings.append(self._registry.subscribe_changes(self._resource, self._node_changed))
        for planned in self._planned:
            try:
                node = self._registry.create(self._resource, None, node_object(planned, self._registry.clock.now()))
            except ApiStatusError as error:
                if error.reason != "AlreadyExists":
                    raise
                continue
            for extra in extra_objects(planned, node):
                self._create_extra(extra)
        self._endings += [self._bindings.start(), self._runner.start()]
        if self._options.load_reports:
            # Last, because the reports are about the nodes and pods that run here.
            self._endings.append(self._loads.start())
        if self._options.topology_reports:
            self._endings.append(self._topologies.start())
        if self._options.device_reports:
            self._endings += [self._device_resources.start(), self._devices.start()]

    def stop(self) -> None:
        """Stops all kubelets; nodes and pods stay as they are."""
        for end in self._endings:
            end()
        self._endings = []
        self._timers.close()

    def __len__(self) -> int:
        return len(self._nodes)

    def _node_of(self, name: str) -> HollowNode | None:
        return self._nodes.get(name)

    def _create_extra(self, obj: Object) -> None:
        """Creates a manifest of the template; one whose kind is not served yet is tried again until it is."""
        registry = self._registry
        try:
            resource = registry.resource_for_kind(obj["apiVersion"], obj["kind"])
        except ApiStatusError:
            self._timers.after(_WAIT_FOR_DEFINITION_SECONDS, self._create_extra, obj)
            return
        try:
            registry.create(resource, obj["metadata"].get("namespace"), obj)
        except ApiStatusError as error:
            if error.reason != "AlreadyExists":
                name = obj["metadata"]["name"]
                _log.error("node template: %s %s was refused: %s", obj["kind"], name, error)

    def _node_changed(self, change: ChangeView) -> None:
        record = change.record
        known = self._nodes.get(record.name)
        if change.type == "DELETED":
            if known is not None and known.uid == record.uid:
                del self._nodes[record.name]
                self._left_behind[record.name] = known.pods
                self._loads.remove(known)
                self._topologies.remove(known)
                self._devices.remove(known)
                self._slices.remove(known)
            return
        node = change.new
        if known is None:
            if (node["metadata"].get("annotations") or {}).get(HOLLOW) == "true":
                self._adopt(node)
            return
        if change.old is not None and change.old.get("status") != node.get("status"):
            known.allocation.set_allocatable((node.get("status") or {}).get("allocatable") or {})
        self._loads.follow(known, node)
        self._topologies.follow(known, node)
        self._devices.follow(known, node)
        self._device_resources.follow(node)
        self._slices.follow(known, node)
        self._obey(known, node)
        health = commanded_health(node)
        if health is not known.health:
            recovered = known.health is Health.SILENT
            known.health = health
            self._timers.after(0.0, self._show_health, known, recovered)

    def _adopt(self, node: Object) -> None:
        metadata, status = node["metadata"], node.get("status") or {}
        addresses = [entry["address"] for entry in status.get("addresses") or () if entry["type"] == "InternalIP"]
        allocation = NodeAllocation(status.get("allocatable") or {})
        address = addresses[0] if addresses else "127.0.0.1"
        hollow = HollowNode(metadata["name"], metadata["uid"], address, allocation, commanded_health(node))
        hollow.ratio = ratio_text(node) if RAW in (metadata.get("annotations") or {}) else ""
        self._obey(hollow, node)
        self._nodes[hollow.name] = hollow
        if hollow.name in self._left_behind:
            hollow.pods = self._left_behind.pop(hollow.name)
            self._timers.after(0.0, self._runner.resume, hollow)
        self._timers.after(0.0, self._heartbeats.renew, hollow)
        self._heartbeats.start(hollow)
        if hollow.health is Health.NOT_READY:
            self._timers.after(0.0, self._heartbeats.report, hollow)
        self._loads.add(hollow, node)
        self._topologies.follow(hollow, node)
        self._devices.follow(hollow, node)
        self._device_resources.follow(node)
        self._slices.follow(hollow, node)

    def _obey(self, hollow: HollowNode, node: Object) -> None:
        """Does what the node's annotations say."""
        hollow.start_error = start_error(node)
        hollow.whole_cores = whole_cores(node)
        ratio = ratio_text(node)
        if ratio != hollow.ratio:
            hollow.ratio = ratio
            self._timers.after(0.0, self._amplify, hollow)

    def _amplify(self, hollow: HollowNode) -> None:
        record = self._registry.collection(self._resource).get("", hollow.name)
        if record is None or record.uid != hollow.uid:
            return
        node = record.obj()
        try:
            changed = amplified(node)
        except ValueError as error:
            invalid_annotation(self._registry, node, hollow.name, f"{RATIO} is ignored: {error}")
            return
        if changed != node:
            self._registry.replace_record(self._resource, record, changed)

    def _show_health(self, node: HollowNode, recovered: bool) -> None:
        """Lets the control plane see a change of health."""
        self._heartbeats.renew(node)
        self._heartbeats.report(node)
        if recovered and node.health is not Health.SILENT:
            self._runner.resume(node)
            self._loads.resume(node)
            self._topologies.resume(node)
            self._devices.resume(node)
            self._slices.resume(node)
