"""DaemonSet: one pod on every node where it belongs, bound by the scheduler through node affinity.

Nodes are looked at one by one, as they change; passes over all of them happen when the DaemonSet itself changes.
Source of the rules: kube-controller-manager `pkg/controller/daemon` (daemon_controller.go, update.go).
"""

from __future__ import annotations

from koordsched.fakecluster.controllers.context import ControllerContext, settle_delay
from koordsched.fakecluster.controllers.daemonplacement import DaemonPlacement, daemon_tolerations, pin_to_node
from koordsched.fakecluster.controllers.nodes import NodeRecord
from koordsched.fakecluster.controllers.ownership import Key, Object, controller_reference, is_deleting
from koordsched.fakecluster.controllers.percentages import scaled_value
from koordsched.fakecluster.controllers.podowner import PodOwnerController
from koordsched.fakecluster.controllers.pods import PodRecord
from koordsched.fakecluster.controllers.podtemplate import PodFactory
from koordsched.fakecluster.controllers.revisions import REVISION_LABEL, RevisionHistory, revision_hash
from koordsched.fakecluster.controllers.workqueue import WorkQueue

_FAILED_POD_DELAY_SECONDS = 1.0


class _Daemon:
    """What is known of one DaemonSet: its nodes and its pods on each."""

    def __init__(self) -> None:
        self.generation = -1
        self.placement: DaemonPlacement | None = None
        self.factory: PodFactory | None = None
        self.hash = ""
        self.desired: set[str] = set()
        self.pods: dict[str, dict[Key, PodRecord]] = {}


class DaemonSetController(PodOwnerController):
    """Keeps the pods, revisions and the status of every DaemonSet up to date."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, context.daemon_sets, "apps/v1", "DaemonSet")
        self._history = RevisionHistory(context, "DaemonSet")
        self._daemons: dict[str, _Daemon] = {}
        self.node_queue: WorkQueue[tuple[str, str]] = WorkQueue(
            context.registry, "daemonset-node", self._reconcile_node
        )
        context.nodes.on_change(self._node_changed)

    def owner_changed(self, before: Object | None, after: Object | None) -> None:
        """Forgets deleted DaemonSets, queues the others."""
        if before is not None and (after is None or after["metadata"]["uid"] != before["metadata"]["uid"]):
            self._daemons.pop(before["metadata"]["uid"], None)
        super().owner_changed(before, after)

    def pod_changed(self, before: PodRecord | None, after: PodRecord | None) -> None:
        """Files the pod under its node, and looks at that node again when the pod went away or failed."""
        for pod in (before, after):
            if pod is None or self.key_of_owner(pod.owner_uid) is None:
                continue
            daemon = self._daemons.setdefault(pod.owner_uid, _Daemon())
            on_node = daemon.pods.setdefault(pod.target_node, {})
            if pod is after:
                on_node[pod.key] = pod
            else:
                on_node.pop(pod.key, None)
            if not on_node:
                del daemon.pods[pod.target_node]
            if after is None or not after.active:
                delay = 0.0 if after is None or after.deleting else _FAILED_POD_DELAY_SECONDS
                self.node_queue.add((pod.owner_uid, pod.target_node), delay)
        super().pod_changed(before, after)

    def _node_changed(self, before: NodeRecord | None, after: NodeRecord | None) -> None:
        node = after or before
        if node is None or (
            before is not None
            and after is not None
            and (before.labels, before.taints, before.uid) == (after.labels, after.taints, after.uid)
        ):
            return
        for uid in self._daemons:
            self.node_queue.add((uid, node.name))

    def reconcile(self, key: Key) -> int:
        """Looks at the template, the update and the status."""
        daemon_set = self.context.daemon_sets.get(key)
        if daemon_set is None:
            return 0
        uid = daemon_set["metadata"]["uid"]
        daemon = self._daemons.setdefault(uid, _Daemon())
        writes = 0
        if not is_deleting(daemon_set):
            writes += self.adoption.claim(daemon_set)
            revision = self._history.current(daemon_set)
            if daemon.generation != daemon_set["metadata"].get("generation", 0):
                self._compile(daemon_set, daemon, revision_hash(revision))
                for node in dict.fromkeys([*(node.name for node in self.context.nodes.all()), *daemon.pods]):
                    self.node_queue.add((uid, node))
            writes += self._roll(daemon_set, daemon)
        return writes + self._update_status(daemon_set, daemon)

    def _compile(self, daemon_set: Object, daemon: _Daemon, revision: str) -> None:
        metadata, template = daemon_set["metadata"], daemon_set["spec"]["template"]
        daemon.generation = metadata.get("generation", 0)
        placement = daemon.placement = DaemonPlacement(template.get("spec") or {})
        daemon.desired = {node.name for node in self.context.nodes.all() if placement.should_start(node)}
        daemon.hash = revision
        reference = controller_reference(daemon_set, "apps/v1", "DaemonSet")
        origin = template.get("metadata") or {}
        labels = {
            **(origin.get("labels") or {}),
            REVISION_LABEL: revision,
            "pod-template-generation": str(daemon.generation),
        }
        spec = {**(template.get("spec") or {}), "tolerations": daemon_tolerations(template.get("spec") or {})}
        marked = {**template, "metadata": {**origin, "labels": labels}, "spec": spec}
        daemon.factory = PodFactory(marked, metadata["namespace"], reference)

    def _reconcile_node(self, key: tuple[str, str]) -> int:
        """Makes or removes the pods of one DaemonSet on one node."""
        uid, name = key
        daemon, owner = self._daemons.get(uid), self.key_of_owner(uid)
        daemon_set = self.context.daemon_sets.get(owner) if owner is not None else None
        if daemon is None or owner is None or daemon_set is None or daemon.placement is None or daemon.factory is None:
            return 0
        if is_deleting(daemon_set):
            return 0
        node = self.context.nodes.get(name)
        pods = list(daemon.pods.get(name, {}).values())
        if node is None or not daemon.placement.may_stay(node):
            doomed = [pod for pod in pods if not pod.deleting]
            self._set_desired(daemon, owner, name, wanted=False)
        else:
            wanted = daemon.placement.should_start(node)
            self._set_desired(daemon, owner, name, wanted=wanted)
            if wanted and not pods:
                pod = daemon.factory.pod(generateName=f"{owner[1]}-")
                pin_to_node(pod["spec"], name)
                self.context.create_pod(pod)
                return 1
            # Of several the oldest stays; finished ones are replaced once they are gone.
            alive = sorted((pod for pod in pods if pod.active), key=lambda pod: (not pod.node, pod.created, pod.name))
            doomed = [pod for pod in pods if pod.finished and not pod.deleting] + alive[1:]
        return sum(self.context.delete_pod(pod) for pod in doomed)

    def _set_desired(self, daemon: _Daemon, owner: Key, node: str, *, wanted: bool) -> None:
        if wanted != (node in daemon.desired):
            (daemon.desired.add if wanted else daemon.desired.discard)(node)
            self.queue.add(owner, settle_delay(len(daemon.desired)))

    def _roll(self, daemon_set: Object, daemon: _Daemon) -> int:
        """Deletes pods of earlier templates, as many as may be unavailable at once; their nodes get new ones."""
        strategy = daemon_set["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return 0
        bounds = strategy.get("rollingUpdate") or {}
        allowed = scaled_value(bounds.get("maxUnavailable", 1), len(daemon.desired), round_up=True)
        # A surge is carried out as a replacement of as many pods: daemons with host ports could not run twice.
        allowed = allowed or max(1, scaled_value(bounds.get("maxSurge", 0), len(daemon.desired), round_up=True))
        unavailable, replaceable, idle = 0, [], []
        for node in daemon.desired:
            active = [pod for pod in daemon.pods.get(node, {}).values() if pod.active]
            old = [pod for pod in active if pod.labels.get(REVISION_LABEL) != daemon.hash]
            if not any(self._available(daemon_set, pod) for pod in active):
                unavailable += 1
                idle += old
            else:
                replaceable += old
        replaceable.sort(key=lambda pod: pod.name)
        doomed = idle + replaceable[: max(0, allowed - unavailable)]
        return sum(self.context.delete_pod(pod) for pod in doomed)

    def _available(self, daemon_set: Object, pod: PodRecord) -> bool:
        min_ready = daemon_set["spec"].get("minReadySeconds", 0)
        return pod.available(min_ready, self.context.timestamp(ago=min_ready))

    def _update_status(self, daemon_set: Object, daemon: _Daemon) -> int:
        min_ready = daemon_set["spec"].get("minReadySeconds", 0)
        ready_before = self.context.timestamp(ago=min_ready)
        scheduled = ready = available = updated = 0
        for node in daemon.desired:
            active = [pod for pod in daemon.pods.get(node, {}).values() if not pod.deleting]
            scheduled += bool(active)
            ready += any(pod.ready for pod in active)
            available += any(pod.available(min_ready, ready_before) for pod in active)
            updated += any(pod.labels.get(REVISION_LABEL) == daemon.hash for pod in active)
        status: Object = {
            "currentNumberScheduled": scheduled,
            "numberMisscheduled": sum(node not in daemon.desired for node in daemon.pods),
            "desiredNumberScheduled": len(daemon.desired),
            "numberReady": ready,
            "observedGeneration": daemon_set["metadata"].get("generation", 0),
        }
        optional = {
            "updatedNumberScheduled": updated,
            "numberAvailable": available,
            "numberUnavailable": len(daemon.desired) - available,
        }
        status.update({name: value for name, value in optional.items() if value})
        owner = (daemon_set["metadata"]["namespace"], daemon_set["metadata"]["name"])
        if available < ready:
            self.queue.add(owner, 1.0 + min_ready / 4)
        in_use = {pod.labels.get(REVISION_LABEL, "") for pods in daemon.pods.values() for pod in pods.values()}
        names = {f"{owner[1]}-{entry}" for entry in in_use | {daemon.hash}}
        writes = self._history.truncate(daemon_set, names)
        if status == (daemon_set.get("status") or {}):
            return writes
        # observedGeneration must not run ahead of the nodes: a rollout that has not begun would look finished.
        if daemon.generation != status["observedGeneration"]:
            return writes
        return writes + self.context.write_status(self.context.daemon_sets.resource, daemon_set, status)
