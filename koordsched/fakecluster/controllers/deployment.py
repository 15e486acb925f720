"""Deployment: ReplicaSets, one per revision of the pod template, and the rollout between them.

Source of the rules: kube-controller-manager `pkg/controller/deployment` (sync.go, recreate.go).
"""

from __future__ import annotations

import orjson

from koordsched.fakecluster.controllers.adoption import unclaimed_matches
from koordsched.fakecluster.controllers.context import ControllerContext
from koordsched.fakecluster.controllers.deploymentstatus import deployment_status, progress_check_delay
from koordsched.fakecluster.controllers.ownership import (
    Key,
    Object,
    controller_reference,
    controller_uid,
    is_deleting,
    key_of,
)
from koordsched.fakecluster.controllers.pods import PodRecord
from koordsched.fakecluster.controllers.podtemplate import template_hash
from koordsched.fakecluster.controllers.rollout import (
    DESIRED,
    MAXIMUM,
    REVISION,
    Rollout,
    proportional_sizes,
    revision_of,
    rolling_update_sizes,
    rollout_strategy,
)
from koordsched.fakecluster.controllers.workqueue import WorkQueue
from koordsched.fakecluster.errors import ApiStatusError

HASH_LABEL = "pod-template-hash"
_NOT_COPIED = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION,
        "deployment.kubernetes.io/revision-history",
        DESIRED,
        MAXIMUM,
        "deprecated.deployment.rollback.to",
    }
)


class DeploymentController:
    """Keeps the ReplicaSets and the status of every Deployment up to date."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.queue: WorkQueue[Key] = WorkQueue(context.registry, "deployment", self._reconcile)
        context.deployments.on_change(self._deployment_changed)
        context.replica_sets.on_change(self._set_changed)
        context.pods.on_change(self._pod_changed)

    def _deployment_changed(self, before: Object | None, after: Object | None) -> None:
        if after is not None:
            self.queue.add(key_of(after))

    def _set_changed(self, before: Object | None, after: Object | None) -> None:
        for replica_set in (before, after):
            if replica_set is None:
                continue
            owner = controller_uid(replica_set)
            if owner is not None:
                self._add_owner(owner)
            else:
                for deployment in self._context.deployments.in_namespace(replica_set["metadata"].get("namespace", "")):
                    self.queue.add(key_of(deployment))

    def _add_owner(self, uid: str) -> None:
        deployment = self._context.deployments.with_uid(uid)
        if deployment is not None:
            self.queue.add(key_of(deployment))

    def _pod_changed(self, before: PodRecord | None, after: PodRecord | None) -> None:
        # Recreate waits until the old pods are really gone, which no ReplicaSet's status tells.
        if after is None and before is not None and before.owner_kind == "ReplicaSet":
            replica_set = self._context.replica_sets.with_uid(before.owner_uid)
            owner = controller_uid(replica_set) if replica_set is not None else None
            deployment = self._context.deployments.with_uid(owner) if owner is not None else None
            if deployment is not None and rollout_strategy(deployment) == "Recreate":
                self.queue.add(key_of(deployment))

    def _reconcile(self, key: Key) -> int:
        deployment = self._context.deployments.get(key)
        if deployment is None:
            return 0
        writes = 0
        if not is_deleting(deployment):
            writes = self._adopt(deployment)
            writes += self._roll(deployment)
        return writes + self._update_status(key)

    def _adopt(self, deployment: Object) -> int:
        """Adopts ReplicaSets that match and have no controller; returns the number of writes."""
        context, writes = self._context, 0
        for replica_set in unclaimed_matches(context.replica_sets, deployment):
            reference = controller_reference(deployment, "apps/v1", "Deployment")
            references = [*(replica_set["metadata"].get("ownerReferences") or ()), reference]
            metadata = {**replica_set["metadata"], "ownerReferences": references}
            context.registry.update(context.replica_sets.resource, {**replica_set, "metadata": metadata})
            writes += 1
        return writes

    def _roll(self, deployment: Object) -> int:
        rollout = self._rollout(deployment)
        spec = deployment["spec"]
        if spec.get("paused"):
            return self._resize(rollout, proportional_sizes(rollout))
        if rollout.new is None:
            return self._create_new(deployment, rollout)
        writes = self._sync_revision(deployment, rollout)
        if writes:
            self.queue.add(key_of(deployment))
            return writes
        if rollout.was_scaled():
            return self._resize(rollout, proportional_sizes(rollout))
        if rollout_strategy(deployment) == "Recreate":
            writes = self._recreate(rollout)
        else:
            writes = self._resize(rollout, rolling_update_sizes(rollout))
        return writes or self._clean_up(deployment, rollout)

    def _rollout(self, deployment: Object) -> Rollout:
        sets = self._context.replica_sets.owned_by(deployment["metadata"]["uid"])
        sets.sort(key=lambda entry: (entry["metadata"].get("creationTimestamp") or "", entry["metadata"]["name"]))
        template = _comparable(deployment["spec"]["template"])
        new = next((entry for entry in sets if _comparable(entry["spec"]["template"]) == template), None)
        return Rollout(deployment, new, [entry for entry in sets if entry is not new])

    def _create_new(self, deployment: Object, rollout: Rollout) -> int:
        """Makes the ReplicaSet of the current template, sized as the strategy allows at this moment."""
        context, metadata, spec = self._context, deployment["metadata"], deployment["spec"]
        label = template_hash(spec["template"], (deployment.get("status") or {}).get("collisionCount") or 0)
        template_meta = spec["template"].get("metadata") or {}
        labels = {**(template_meta.get("labels") or {}), HASH_LABEL: label}
        selector = spec["selector"]
        replica_set: Object = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{metadata['name']}-{label}",
                "namespace": metadata["namespace"],
                "labels": labels,
                "annotations": {
                    **_carried_annotations(deployment),
                    REVISION: str(rollout.revision()),
                    DESIRED: str(rollout.desired),
                    MAXIMUM: str(rollout.desired + rollout.max_surge),
                },
                "ownerReferences": [controller_reference(deployment, "apps/v1", "Deployment")],
            },
            "spec": {
                "replicas": rollout.initial_size(),
                "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: label}},
                "template": {**spec["template"], "metadata": {**template_meta, "labels": labels}},
            },
        }
        if spec.get("minReadySeconds"):
            replica_set["spec"]["minReadySeconds"] = spec["minReadySeconds"]
        try:
            created = context.registry.create(context.replica_sets.resource, metadata["namespace"], replica_set)
        except ApiStatusError as error:
            if error.reason != "AlreadyExists":
                raise
            return self._count_collision(deployment)
        self._record_scaling(deployment, created, 0)
        self.queue.add(key_of(deployment))
        return 1

    def _count_collision(self, deployment: Object) -> int:
        """Another ReplicaSet has that name: count it, so that the next try hashes to another one."""
        status = dict(deployment.get("status") or {})
        status["collisionCount"] = (status.get("collisionCount") or 0) + 1
        context = self._context
        return context.write_status(context.deployments.resource, deployment, status)

    def _sync_revision(self, deployment: Object, rollout: Rollout) -> int:
        """Carries revision, annotations and minReadySeconds over to the current ReplicaSet and back."""
        context, new = self._context, rollout.new
        assert new is not None
        writes = 0
        current = new["metadata"].get("annotations") or {}
        annotations = {**current, **_carried_annotations(deployment), REVISION: str(rollout.revision())}
        min_ready = deployment["spec"].get("minReadySeconds", 0)
        if annotations != current or new["spec"].get("minReadySeconds", 0) != min_ready:
            metadata = {**new["metadata"], "annotations": annotations}
            spec = {**new["spec"], "minReadySeconds": min_ready}
            context.registry.update(context.replica_sets.resource, {**new, "metadata": metadata, "spec": spec})
            writes += 1
        if (deployment["metadata"].get("annotations") or {}).get(REVISION) != annotations[REVISION]:
            own = {**(deployment["metadata"].get("annotations") or {}), REVISION: annotations[REVISION]}
            metadata = {**deployment["metadata"], "annotations": own}
            context.registry.update(context.deployments.resource, {**deployment, "metadata": metadata})
            writes += 1
        return writes

    def _recreate(self, rollout: Rollout) -> int:
        """All old pods must be gone before the first new one is made."""
        pods = self._context.pods
        running = [entry for entry in rollout.old if entry["spec"].get("replicas", 1)]
        if running:
            return self._resize(rollout, {entry["metadata"]["name"]: 0 for entry in running})
        for entry in rollout.old:
            if any(not pod.finished for pod in pods.owned_by(entry["metadata"]["uid"])):
                return 0
        assert rollout.new is not None
        return self._resize(rollout, {rollout.new["metadata"]["name"]: rollout.desired})

    def _resize(self, rollout: Rollout, sizes: dict[str, int]) -> int:
        """Writes the sizes that differ, and on every ReplicaSet the size of the Deployment they were derived from."""
        context, writes = self._context, 0
        maximum = str(rollout.desired + rollout.max_surge)
        for entry in rollout.sets():
            name, current = entry["metadata"]["name"], entry["spec"].get("replicas", 1)
            size = sizes.get(name, current)
            annotations = entry["metadata"].get("annotations") or {}
            marked = {**annotations, DESIRED: str(rollout.desired), MAXIMUM: maximum}
            if size == current and (marked == annotations or not size):
                continue
            metadata = {**entry["metadata"], "annotations": marked}
            changed = {**entry, "metadata": metadata, "spec": {**entry["spec"], "replicas": size}}
            context.registry.update(context.replica_sets.resource, changed)
            writes += 1
            if size != current:
                self._record_scaling(rollout.deployment, changed, current)
        return writes

    def _record_scaling(self, deployment: Object, replica_set: Object, before: int) -> None:
        after, name = replica_set["spec"]["replicas"], replica_set["metadata"]["name"]
        message = f"Scaled {'up' if after > before else 'down'} replica set {name} from {before} to {after}"
        self._context.events.record(deployment, "apps/v1", "Deployment", "ScalingReplicaSet", message, "Normal")

    def _clean_up(self, deployment: Object, rollout: Rollout) -> int:
        """Deletes the oldest empty ReplicaSets beyond revisionHistoryLimit once the rollout is complete."""
        limit: int = deployment["spec"].get("revisionHistoryLimit", 10)
        if not rollout.complete():
            return 0
        empty = [
            entry
            for entry in rollout.old
            if not entry["spec"].get("replicas", 1)
            and not (entry.get("status") or {}).get("replicas", 0)
            and not is_deleting(entry)
        ]
        empty.sort(key=revision_of)
        surplus = max(0, len(rollout.old) - limit)
        context = self._context
        for entry in empty[:surplus]:
            context.registry.delete(context.replica_sets.resource, *key_of(entry), uid=entry["metadata"]["uid"])
        return min(surplus, len(empty))

    def _update_status(self, key: Key) -> int:
        context = self._context
        # Read again: the rollout's own writes moved the objects on.
        deployment = context.deployments.get(key)
        if deployment is None:
            return 0
        rollout = self._rollout(deployment)
        status = deployment_status(rollout, context.timestamp(), context.now())
        delay = progress_check_delay(deployment, status, context.now())
        if delay is not None:
            self.queue.add(key, delay)
        if status == (deployment.get("status") or {}):
            return 0
        return context.write_status(context.deployments.resource, deployment, status)


def _comparable(template: Object) -> bytes:
    """A pod template without the hash label, as bytes to compare."""
    metadata = dict(template.get("metadata") or {})
    metadata["labels"] = {name: value for name, value in (metadata.get("labels") or {}).items() if name != HASH_LABEL}
    metadata.pop("creationTimestamp", None)
    return orjson.dumps({**template, "metadata": metadata}, option=orjson.OPT_SORT_KEYS)


def _carried_annotations(deployment: Object) -> dict[str, str]:
    annotations = deployment["metadata"].get("annotations") or {}
    return {name: value for name, value in annotations.items() if name not in _NOT_COPIED}
