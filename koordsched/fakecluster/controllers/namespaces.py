"""Namespace deletion: first everything inside, then the namespace itself.

Source of the rules: kube-controller-manager `pkg/controller/namespace/deletion`.
"""

from __future__ import annotations

from koordsched.fakecluster.controllers.conditions import with_condition
from koordsched.fakecluster.controllers.context import ControllerContext
from koordsched.fakecluster.controllers.ownership import Key, Object, is_deleting, key_of
from koordsched.fakecluster.controllers.workqueue import WorkQueue
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.resources import Resource

_FINALIZER = "kubernetes"
_BATCH = 200
_LOOK_AGAIN_SECONDS = 0.5


class NamespaceController:
    """Empties terminating namespaces and lets them go."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.queue: WorkQueue[Key] = WorkQueue(context.registry, "namespace", self._reconcile)
        context.namespaces.on_change(self._namespace_changed)

    def _namespace_changed(self, before: Object | None, after: Object | None) -> None:
        if after is not None and is_deleting(after):
            self.queue.add(key_of(after))

    def _reconcile(self, key: Key) -> int:
        namespace = self._context.namespaces.get(key)
        if namespace is None or not is_deleting(namespace):
            return 0
        if _FINALIZER not in (namespace["spec"].get("finalizers") or ()):
            return 0
        remaining: dict[str, int] = {}
        deleted = 0
        for resource in self._contained_resources():
            left, done = self._empty(resource, key[1], _BATCH - deleted)
            deleted += done
            if left:
                remaining[resource.qualified] = left
        if not remaining:
            return deleted + self._release(key[1])
        self.queue.add(key, 0.0 if deleted >= _BATCH else _LOOK_AGAIN_SECONDS)
        return deleted + self._report(namespace, remaining)

    def _contained_resources(self) -> list[Resource]:
        """One resource for each kind of content, Events last: the others' end still causes some."""
        by_storage: dict[str, Resource] = {}
        for resource in self._context.registry.resources():
            if resource.namespaced and "delete" in resource.verbs:
                by_storage.setdefault(resource.storage, resource)
        return sorted(by_storage.values(), key=lambda resource: resource.plural == "events")

    def _empty(self, resource: Resource, namespace: str, limit: int) -> tuple[int, int]:
        """Deletes up to `limit` objects; returns how many are left, terminating ones too, and how many were deleted."""
        registry = self._context.registry
        records = list(registry.scan(resource, namespace))
        fresh = [record for record in records if not record.deleting][:limit]
        gone = 0
        for record in fresh:
            try:
                gone += registry.delete_record(resource, namespace, record.name, uid=record.uid)[1]
            except ApiStatusError as error:
                if error.code not in (404, 409):
                    raise
        return len(records) - gone, len(fresh)

    def _release(self, name: str) -> int:
        def make(current: Object) -> Object:
            spec = current["spec"]
            spec["finalizers"] = [entry for entry in spec.get("finalizers") or () if entry != _FINALIZER]
            return current

        self._context.registry.update_record(self._context.namespaces.resource, None, name, make, "finalize")
        return 1

    def _report(self, namespace: Object, remaining: dict[str, int]) -> int:
        """Says in the status what the namespace waits for."""
        old = namespace.get("status") or {}
        left = ", ".join(f"{name} has {count} resource instances" for name, count in sorted(remaining.items()))
        condition = {
            "type": "NamespaceContentRemaining",
            "status": "True",
            "reason": "SomeResourcesRemain",
            "message": f"Some resources are remaining: {left}",
        }
        conditions = with_condition(old.get("conditions"), condition, self._context.timestamp())
        status = {**old, "phase": "Terminating", "conditions": conditions}
        if status == old:
            return 0
        return self._context.write_status(self._context.namespaces.resource, namespace, status)
