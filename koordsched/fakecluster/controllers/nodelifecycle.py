"""Node health: nodes whose kubelet fell silent become Unknown, and conditions become taints.

Only nodes that have ever renewed a Lease in kube-node-lease are watched for silence: a Node object that was created
by hand has no kubelet, and its conditions stay as they are. Source of the rules: kube-controller-manager
`pkg/controller/nodelifecycle/node_lifecycle_controller.go`.
"""

from __future__ import annotations

from collections.abc import Callable

from koordsched.fakecluster.controllers.conditions import find, with_condition
from koordsched.fakecluster.controllers.context import ControllerContext
from koordsched.fakecluster.controllers.nodes import NodeRecord
from koordsched.fakecluster.controllers.ownership import Object
from koordsched.fakecluster.controllers.workqueue import WorkQueue
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.registry import ChangeView

LEASE_NAMESPACE = "kube-node-lease"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_PRESSURES = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_MANAGED = frozenset(
    [(key, "NoSchedule") for key in (NOT_READY, UNREACHABLE, _UNSCHEDULABLE, *_PRESSURES.values())]
    + [(key, "NoExecute") for key in (NOT_READY, UNREACHABLE)]
)
_REPORTED_BY_KUBELET = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class NodeLifecycleController:
    """Marks silent nodes, keeps the taints that follow from conditions, and marks pods of lost nodes not ready.

    `grace_seconds` is how long a node may be silent, `period_seconds` how often all nodes are looked at (both as
    kube-controller-manager's --node-monitor-grace-period and --node-monitor-period).
    """

    def __init__(self, context: ControllerContext, grace_seconds: float = 40.0, period_seconds: float = 5.0) -> None:
        self._context = context
        self._grace = grace_seconds
        self._period = period_seconds
        self._resource = context.registry.resource("", "v1", "nodes")
        self._heard: dict[str, float] = {}
        """When each node's Lease was last renewed, on our own clock."""
        self._running = False
        self.queue: WorkQueue[str] = WorkQueue(context.registry, "node-lifecycle", self._reconcile)
        self._pod_queue: WorkQueue[str] = WorkQueue(context.registry, "node-lifecycle-pods", self._mark_pods)
        context.nodes.on_change(self._node_changed)

    def start(self) -> Callable[[], None]:
        """Begins to watch Leases and time; returns what ends it."""
        registry = self._context.registry
        end = registry.subscribe_changes(registry.resource("coordination.k8s.io", "v1", "leases"), self._lease_changed)
        self._running = True
        registry.call_later(self._period, self._monitor)

        def stop() -> None:
            end()
            self._running = False
            self._pod_queue.close()

        return stop

    def _lease_changed(self, change: ChangeView) -> None:
        namespace, name = change.record.key
        if namespace == LEASE_NAMESPACE and change.type != "DELETED":
            self._heard[name] = self._context.now()

    def _node_changed(self, before: NodeRecord | None, after: NodeRecord | None) -> None:
        if after is None:
            if before is not None:
                self._heard.pop(before.name, None)
            return
        self.queue.add(after.name)
        if after.conditions.get("Ready", "True") != "True":
            self._pod_queue.add(after.name)

    def _monitor(self) -> None:
        if not self._running:
            return
        silent_before = self._context.now() - self._grace
        for name, heard in self._heard.items():
            if heard < silent_before:
                self.queue.add(name)
        self._context.registry.call_later(self._period, self._monitor)

    def _reconcile(self, name: str) -> int:
        node = self._context.registry.peek(self._resource, None, name)
        if node is None:
            return 0
        heard, writes = self._heard.get(name), 0
        if heard is not None and heard < self._context.now() - self._grace:
            writes += self._mark_unknown(node)
        return writes + self._update_taints(name)

    def _mark_unknown(self, node: Object) -> int:
        status, now = node.get("status") or {}, self._context.timestamp()
        conditions = status.get("conditions")
        for kind in _REPORTED_BY_KUBELET:
            known = find(conditions, kind)
            if known is not None and known.get("status") == "Unknown":
                continue
            condition = {
                **(known or {"lastHeartbeatTime": now}),
                "type": kind,
                "status": "Unknown",
                "reason": "NodeStatusUnknown" if known is not None else "NodeStatusNeverUpdated",
                "message": f"Kubelet {'stopped posting' if known is not None else 'never posted'} node status.",
            }
            conditions = with_condition(conditions, condition, now)
        if conditions == status.get("conditions"):
            return 0
        self._context.events.record(
            node, "v1", "Node", "NodeNotReady", f"Node {node['metadata']['name']} status is now: NodeNotReady", "Normal"
        )
        return self._context.write_status(self._resource, node, {**status, "conditions": conditions})

    def _update_taints(self, name: str) -> int:
        node = self._context.nodes.get(name)
        if node is None:
            return 0
        wanted = _taints_from_conditions(node)
        present = {(key, effect) for key, _, effect in node.taints}
        if wanted == present & _MANAGED:
            return 0
        now = self._context.timestamp()

        def make(current: Object) -> Object:
            taints = [
                taint
                for taint in current["spec"].get("taints") or ()
                if (taint["key"], taint.get("effect")) not in _MANAGED - wanted
            ]
            for key, effect in sorted(wanted - present):
                taints.append({"key": key, "effect": effect, "timeAdded": now})
            current["spec"]["taints"] = taints
            if not taints:
                del current["spec"]["taints"]
            return current

        self._context.registry.update_record(self._resource, None, name, make)
        return 1

    def _mark_pods(self, name: str) -> int:
        """Pods of a node that is not ready are not ready either: budgets and workloads must not count on them."""
        context, writes = self._context, 0
        node = context.nodes.get(name)
        if node is None or node.conditions.get("Ready", "True") == "True":
            return 0
        for pod in context.pods.on_node(name):
            found = context.read_pod(pod) if pod.ready else None
            if found is None:
                continue
            status, now = found["status"], context.timestamp()
            condition = {"type": "Ready", "status": "False", "reason": "NodeNotReady"}
            conditions = with_condition(status.get("conditions"), condition, now)
            try:
                writes += context.write_status(context.pod_resource, found, {**status, "conditions": conditions})
            except ApiStatusError as error:
                if error.code != 404:
                    raise
        return writes


def _taints_from_conditions(node: NodeRecord) -> set[tuple[str, str]]:
    wanted: set[tuple[str, str]] = set()
    ready = node.conditions.get("Ready", "True")
    if ready != "True":
        key = UNREACHABLE if ready == "Unknown" else NOT_READY
        wanted |= {(key, "NoSchedule"), (key, "NoExecute")}
    for condition, key in _PRESSURES.items():
        if node.conditions.get(condition) == "True":
            wanted.add((key, "NoSchedule"))
    if node.unschedulable:
        wanted.add((_UNSCHEDULABLE, "NoSchedule"))
    return wanted
