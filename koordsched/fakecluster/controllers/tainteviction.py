"""NoExecute taints end the pods that do not tolerate them, or no longer do; pods of removed nodes are collected.

Source of the rules: kube-controller-manager `pkg/controller/tainteviction`, `pkg/controller/podgc`.
"""

from __future__ import annotations

from koordsched.fakecluster.controllers.conditions import with_condition
from koordsched.fakecluster.controllers.context import ControllerContext
from koordsched.fakecluster.controllers.nodes import NodeRecord
from koordsched.fakecluster.controllers.ownership import Key
from koordsched.fakecluster.controllers.pods import PodRecord
from koordsched.fakecluster.controllers.tolerations import tolerated_seconds
from koordsched.fakecluster.controllers.workqueue import WorkQueue

_NODE_GONE_SECONDS = 40.0
"""How long a pod of a missing node is kept: the node may come back."""


class TaintEvictionController:
    """Deletes the pods that may not stay on their node."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._tainted_since: dict[str, float] = {}
        self._missing_since: dict[str, float] = {}
        self.queue: WorkQueue[Key] = WorkQueue(context.registry, "taint-eviction", self._reconcile)
        context.nodes.on_change(self._node_changed)
        context.pods.on_change(self._pod_changed)

    def _node_changed(self, before: NodeRecord | None, after: NodeRecord | None) -> None:
        node = after or before
        if node is None:
            return
        now, name = self._context.now(), node.name
        if after is None:
            self._missing_since[name] = now
            self._tainted_since.pop(name, None)
        else:
            self._missing_since.pop(name, None)
            if not _drives_out(after):
                self._tainted_since.pop(name, None)
                return
            self._tainted_since.setdefault(name, now)
            if before is not None and before.taints == after.taints:
                return
        for pod in self._context.pods.on_node(name):
            self.queue.add(pod.key)

    def _pod_changed(self, before: PodRecord | None, after: PodRecord | None) -> None:
        if after is None or not after.node or (before is not None and before.node):
            return
        if after.node in self._tainted_since:
            self.queue.add(after.key)
        elif self._context.nodes.get(after.node) is None:
            self._missing_since.setdefault(after.node, self._context.now())
            self.queue.add(after.key, _NODE_GONE_SECONDS)

    def _reconcile(self, key: Key) -> int:
        pod = self._context.pods.get(key)
        if pod is None or not pod.node:
            return 0
        node = self._context.nodes.get(pod.node)
        if node is None:
            return self._collect(pod)
        since = self._tainted_since.get(node.name)
        found = self._context.read_pod(pod) if since is not None and not pod.deleting else None
        if since is None or found is None:
            return 0
        seconds = tolerated_seconds(node.taints, found["spec"].get("tolerations") or [])
        if seconds is None:
            return 0
        left = since + seconds - self._context.now()
        if left > 0:
            self.queue.add(key, left)
            return 0
        status = found.get("status") or {}
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
        }
        conditions = with_condition(status.get("conditions"), condition, self._context.timestamp())
        self._context.write_status(self._context.pod_resource, found, {**status, "conditions": conditions})
        self._context.delete_pod(pod)
        return 2

    def _collect(self, pod: PodRecord) -> int:
        """Ends a pod whose node has been missing for a while; there is no kubelet to end it gracefully."""
        since = self._missing_since.setdefault(pod.node, self._context.now())
        left = since + _NODE_GONE_SECONDS - self._context.now()
        if left > 0:
            self.queue.add(pod.key, left)
            return 0
        return int(self._context.delete_pod(pod, grace_period_seconds=0))


def _drives_out(node: NodeRecord) -> bool:
    return any(effect == "NoExecute" for _, _, effect in node.taints)
