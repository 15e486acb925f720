"""Leases and node statuses, renewed at the kubelet's intervals: cost in proportion to nodes per interval."""

from __future__ import annotations

from koordsched.fakecluster.clock import rfc3339_micro
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.hollow.batchedtimers import BatchedTimers
from koordsched.fakecluster.hollow.hollownode import Health, HollowNode
from koordsched.fakecluster.hollow.nodeobjects import LEASE_NAMESPACE, healthy_conditions, lease_object
from koordsched.fakecluster.hollow.options import HollowOptions
from koordsched.fakecluster.registry import Registry

_JITTER = 0.04
"""Share of the interval by which a heartbeat may be late, as kubelets have it."""


class Heartbeats:
    """Keeps the nodes ready for the control plane, unless they are to fail."""

    def __init__(self, registry: Registry, timers: BatchedTimers, options: HollowOptions) -> None:
        self._registry = registry
        self._timers = timers
        self._options = options
        self._nodes = registry.resource("", "v1", "nodes")
        self._leases = registry.resource("coordination.k8s.io", "v1", "leases")

    def start(self, node: HollowNode) -> None:
        """Begins the heartbeats of a node, at a random point of their intervals."""
        rng = self._registry.rng
        self._timers.after(rng.random() * self._options.lease_interval, self._beat, node)
        self._timers.after(rng.random() * self._options.status_interval, self._report_again, node)

    def report(self, node: HollowNode) -> None:
        """Writes the node's status as it is now; a silent node writes nothing."""
        found = self._registry.peek(self._nodes, None, node.name)
        if found is None or node.health is Health.SILENT:
            return
        status = found.get("status") or {}
        ready = node.health is Health.HEALTHY
        conditions = healthy_conditions(status.get("conditions") or [], self._registry.clock.now(), ready=ready)
        self._registry.replace_status(self._nodes, None, node.name, {**status, "conditions": conditions})

    def renew(self, node: HollowNode) -> None:
        """Renews the node's Lease now, or makes it; a silent node does not."""
        if node.health is Health.SILENT:
            return
        registry, now = self._registry, self._registry.clock.now()
        record = registry.collection(self._leases).get(LEASE_NAMESPACE, node.name)
        if record is None:
            owner = {"metadata": {"name": node.name, "uid": node.uid}}
            registry.create_record(self._leases, LEASE_NAMESPACE, lease_object(owner, now))
            return
        old = record.obj()
        spec = {**old["spec"], "renewTime": rfc3339_micro(now)}
        registry.replace_record(self._leases, record, {**old, "metadata": dict(old["metadata"]), "spec": spec})

    def _beat(self, node: HollowNode) -> None:
        if not self._is_current(node):
            return
        interval = self._options.lease_interval * (1 + _JITTER * self._registry.rng.random())
        self._timers.after(interval, self._beat, node)
        try:
            self.renew(node)
        except ApiStatusError as error:
            # The namespace of Leases may be missing for a moment; the next beat tries again.
            if error.code not in (403, 404, 409):
                raise

    def _report_again(self, node: HollowNode) -> None:
        if not self._is_current(node):
            return
        interval = self._options.status_interval * (1 + _JITTER * self._registry.rng.random())
        self._timers.after(interval, self._report_again, node)
        self.report(node)

    def _is_current(self, node: HollowNode) -> bool:
        record = self._registry.collection(self._nodes).get("", node.name)
        return record is not None and record.uid == node.uid
