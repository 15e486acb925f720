"""Owner garbage collection: objects whose owners are gone are deleted.

Background deletion removes dependents after their owner, foreground deletion before it, orphaning lets them go.
Source of the rules: kube-controller-manager `pkg/controller/garbagecollector`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from koordsched.fakecluster.controllers.ownership import Object, with_owners
from koordsched.fakecluster.controllers.workqueue import WorkQueue
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.registry import ChangeView, Registry
from koordsched.fakecluster.resources import EVENTS, Resource

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class _Entry:
    """One object and the owners it names."""

    __slots__ = ("deleting", "name", "namespace", "owners", "resource")

    def __init__(self, resource: Resource, namespace: str, name: str) -> None:
        self.resource = resource
        self.namespace = namespace
        self.name = name
        self.owners: tuple[tuple[str, bool], ...] = ()
        """(uid, whether it blocks the owner's foreground deletion)"""
        self.deleting = False


class GarbageCollector:
    """Follows the owner references of all objects of all resources except Events."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._entries: dict[str, _Entry] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        self._followed: dict[str, Callable[[], None]] = {}
        self._epoch = -1
        self.queue: WorkQueue[str] = WorkQueue(registry, "garbage-collector", self._collect)
        self.owner_queue: WorkQueue[str] = WorkQueue(registry, "garbage-collector-owner", self._finalize)

    def start(self) -> Callable[[], None]:
        """Begins to follow what is served, now and later; returns what ends it."""
        definitions = self._registry.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        end = self._registry.subscribe_changes(definitions, self._definitions_changed, replay=False)
        self._follow_all()

        def stop() -> None:
            end()
            for unsubscribe in self._followed.values():
                unsubscribe()
            self._followed.clear()

        return stop

    def _definitions_changed(self, change: ChangeView) -> None:
        # Serving begins in another subscriber's reaction to the same change.
        self._registry.call_later(0, self._follow_all)

    def _follow_all(self) -> None:
        if self._epoch == self._registry.resource_epoch:
            return
        self._epoch = self._registry.resource_epoch
        for resource in self._registry.resources():
            if "watch" in resource.verbs and resource.storage != EVENTS and resource.storage not in self._followed:
                callback = partial(self._changed, resource)
                self._followed[resource.storage] = self._registry.subscribe_changes(resource, callback)

    def _changed(self, resource: Resource, change: ChangeView) -> None:
        record = change.record
        uid = record.uid
        if change.type == "DELETED":
            self._forget(uid)
            return
        entry = self._entries.get(uid)
        if entry is None:
            entry = self._entries[uid] = _Entry(resource, *record.key)
        metadata = record.obj()["metadata"]
        references = metadata.get("ownerReferences")
        if not references and not entry.owners and not record.deleting:
            return
        owners = tuple((r["uid"], bool(r.get("blockOwnerDeletion"))) for r in references or ())
        if owners != entry.owners:
            self._relink(uid, entry, owners)
        if record.deleting:
            entry.deleting = True
            if any(finalizer in (FOREGROUND, ORPHAN) for finalizer in metadata.get("finalizers") or ()):
                self.owner_queue.add(uid)

    def _relink(self, uid: str, entry: _Entry, owners: tuple[tuple[str, bool], ...]) -> None:
        for owner, _ in entry.owners:
            self._unlink(owner, uid)
        entry.owners = owners
        for owner, _ in owners:
            self._dependents.setdefault(owner, {})[uid] = None
            known = self._owner(entry, owner)
            if known is None or known.deleting:
                self.queue.add(uid)

    def _unlink(self, owner: str, uid: str) -> None:
        dependents = self._dependents.get(owner)
        if dependents is not None:
            dependents.pop(uid, None)
            if not dependents:
                del self._dependents[owner]
        known = self._entries.get(owner)
        if known is not None and known.deleting:
            self.owner_queue.add(owner)

    def _forget(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        for owner, _ in entry.owners:
            self._unlink(owner, uid)
        for dependent in self._dependents.get(uid, ()):
            self.queue.add(dependent)

    def _collect(self, uid: str) -> int:
        """Deletes the object if all its owners are gone, else removes the references to those that are."""
        self._follow_all()
        entry, obj = self._read(uid)
        if entry is None or obj is None:
            return 0
        metadata = obj["metadata"]
        if metadata.get("deletionTimestamp"):
            return 0
        references = metadata.get("ownerReferences") or []
        present = [reference for reference in references if self._owner(entry, reference["uid"]) is not None]
        waiting = [reference for reference in present if self._waits(reference["uid"])]
        solid = [reference for reference in present if reference not in waiting]
        if not references or len(solid) == len(references):
            return 0
        if solid:
            return self._keep_references(entry, solid)
        propagation = "Foreground" if waiting and uid in self._dependents else "Background"
        finalizers = metadata.get("finalizers") or ()
        if ORPHAN in finalizers:
            propagation = "Orphan"
        elif FOREGROUND in finalizers:
            propagation = "Foreground"
        self._registry.delete_record(entry.resource, entry.namespace, entry.name, uid=uid, propagation=propagation)
        return 1

    def _finalize(self, uid: str) -> int:
        """Does for a terminating owner what its finalizers ask for."""
        entry, obj = self._read(uid)
        if entry is None or obj is None or not obj["metadata"].get("deletionTimestamp"):
            return 0
        finalizers = obj["metadata"].get("finalizers") or []
        dependents = list(self._dependents.get(uid, ()))
        if ORPHAN in finalizers:
            writes = sum(self._release(dependent, uid) for dependent in dependents)
            return writes + self._drop_finalizer(entry, ORPHAN)
        if FOREGROUND not in finalizers:
            return 0
        for dependent in dependents:
            self.queue.add(dependent)
        if any((uid, True) in self._entries[dependent].owners for dependent in dependents):
            return 0
        return self._drop_finalizer(entry, FOREGROUND)

    def _read(self, uid: str) -> tuple[_Entry | None, Object | None]:
        entry = self._entries.get(uid)
        if entry is None:
            return None, None
        obj = self._registry.peek(entry.resource, entry.namespace, entry.name)
        return entry, obj if obj is not None and obj["metadata"]["uid"] == uid else None

    def _owner(self, dependent: _Entry, uid: str) -> _Entry | None:
        """The owner, if it exists where it may own the dependent: in its namespace or outside of all."""
        owner = self._entries.get(uid)
        return owner if owner is not None and owner.namespace in ("", dependent.namespace) else None

    def _waits(self, uid: str) -> bool:
        """Whether an owner is terminating and waits for its dependents."""
        _, owner = self._read(uid)
        return (
            owner is not None
            and "deletionTimestamp" in owner["metadata"]
            and (FOREGROUND in (owner["metadata"].get("finalizers") or ()))
        )

    def _release(self, dependent: str, owner: str) -> int:
        entry, obj = self._read(dependent)
        if entry is None or obj is None:
            return 0
        references = obj["metadata"].get("ownerReferences") or []
        return self._keep_references(entry, [reference for reference in references if reference["uid"] != owner])

    def _keep_references(self, entry: _Entry, references: list[Object]) -> int:
        def make(current: Object) -> Object:
            return {**current, "metadata": with_owners(current["metadata"], references)}

        self._registry.update_record(entry.resource, entry.namespace, entry.name, make)
        return 1

    def _drop_finalizer(self, entry: _Entry, finalizer: str) -> int:
        def make(current: Object) -> Object:
            metadata = current["metadata"]
            metadata["finalizers"] = [other for other in metadata.get("finalizers") or () if other != finalizer]
            return current

        try:
            self._registry.update_record(entry.resource, entry.namespace, entry.name, make)
        except ApiStatusError as error:
            if error.code != 404:
                raise
        return 1
