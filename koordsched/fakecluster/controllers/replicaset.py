"""ReplicaSet: as many matching pods as `spec.replicas` says.

Source of the rules: kube-controller-manager `pkg/controller/replicaset`, `controller_utils.go` (ActivePodsWithRanks).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from koordsched.fakecluster.controllers.conditions import find, with_condition, without_condition
from koordsched.fakecluster.controllers.context import ControllerContext
from koordsched.fakecluster.controllers.ownership import Key, Object, controller_reference, is_deleting
from koordsched.fakecluster.controllers.podowner import PodOwnerController, burst
from koordsched.fakecluster.controllers.pods import PodRecord
from koordsched.fakecluster.controllers.podtemplate import PodFactory
from koordsched.fakecluster.errors import ApiStatusError


class ReplicaSetController(PodOwnerController):
    """Keeps the pods and the status of every ReplicaSet up to date."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, context.replica_sets, "apps/v1", "ReplicaSet")

    def reconcile(self, key: Key) -> int:
        """Makes or removes pods, then writes the status."""
        replica_set = self.context.replica_sets.get(key)
        if replica_set is None:
            return 0
        writes = self.adoption.claim(replica_set)
        pods = self.context.pods.owned_by(replica_set["metadata"]["uid"])
        failure: ApiStatusError | None = None
        if not is_deleting(replica_set):
            active = [pod for pod in pods if pod.active]
            missing = replica_set["spec"].get("replicas", 1) - len(active)
            try:
                if missing > 0:
                    writes += self._create(replica_set, min(missing, burst(len(pods))))
                elif missing < 0:
                    writes += self._delete(active, min(-missing, burst(len(pods))))
            except ApiStatusError as error:
                failure = error
            if abs(missing) > burst(len(pods)) and failure is None:
                self.queue.add(key)
                return writes
        writes += self._update_status(key, failure)
        if failure is not None:
            raise failure
        return writes

    def _create(self, replica_set: Object, count: int) -> int:
        metadata = replica_set["metadata"]
        reference = controller_reference(replica_set, "apps/v1", "ReplicaSet")
        factory = PodFactory(replica_set["spec"]["template"], metadata["namespace"], reference)
        for _ in range(count):
            self.context.create_pod(factory.pod(generateName=f"{metadata['name']}-"))
        return count

    def _delete(self, active: list[PodRecord], count: int) -> int:
        """Deletes the least useful pods first: not bound, not ready, several on a node, young."""
        together = Counter(pod.node for pod in active)

        def loss(pod: PodRecord) -> tuple[Any, ...]:
            phase = {"Pending": 0, "Unknown": 1, "Running": 2}.get(pod.phase, 2)
            return (bool(pod.node), phase, pod.ready, pod.deletion_cost, -together[pod.node])

        # Stable sorts: youngest and latest ready first, then by the loss.
        victims = sorted(active, key=lambda pod: (pod.ready_since, pod.created), reverse=True)
        victims.sort(key=loss)
        for pod in victims[:count]:
            self.context.delete_pod(pod)
        return count

    def _update_status(self, key: Key, failure: ApiStatusError | None) -> int:
        # Read again: creating and deleting pods moved the index on.
        replica_set = self.context.replica_sets.get(key)
        if replica_set is None:
            return 0
        spec, old = replica_set["spec"], replica_set.get("status") or {}
        min_ready = spec.get("minReadySeconds", 0)
        ready_before = self.context.timestamp(ago=min_ready)
        labels = (spec["template"].get("metadata") or {}).get("labels") or {}
        pods = [pod for pod in self.context.pods.owned_by(replica_set["metadata"]["uid"]) if pod.active]
        ready = [pod for pod in pods if pod.ready]
        available = sum(pod.available(min_ready, ready_before) for pod in ready)
        conditions = old.get("conditions") or []
        if failure is None:
            conditions = without_condition(conditions, "ReplicaFailure")
        elif find(conditions, "ReplicaFailure") is None:
            # Recorded once: the message names the refused pod, a different one each time.
            condition = {
                "type": "ReplicaFailure",
                "status": "True",
                "reason": "FailedCreate",
                "message": failure.message,
            }
            conditions = with_condition(conditions, condition, self.context.timestamp())
        status: Object = {
            "replicas": len(pods),
            "fullyLabeledReplicas": sum(labels.items() <= pod.labels.items() for pod in pods),
            "readyReplicas": len(ready),
            "availableReplicas": available,
            "observedGeneration": replica_set["metadata"].get("generation", 0),
        }
        status = {name: value for name, value in status.items() if value or name == "replicas"}
        if conditions:
            status["conditions"] = conditions
        if available < len(ready):
            self.queue.add(key, 1.0 + min_ready / 4)
        if status == old:
            return 0
        return self.context.write_status(self.context.replica_sets.resource, replica_set, status)
