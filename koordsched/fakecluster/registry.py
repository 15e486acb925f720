"""The verbs of the API that write, synchronous and deterministic: for HTTP handlers, controllers and hollow nodes.

Every write passes through here: metadata, the kind's strategy (defaults, admission, validation), preconditions,
finalizers, then the store. Subscribers hear of a write after it is committed, in commit order, from a queue that is
drained by the outermost write: a subscriber may write too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import orjson

from koordsched.fakecluster import errors
from koordsched.fakecluster.binding import bound_pod
from koordsched.fakecluster.clock import CallLater, Clock, SystemClock, loop_call_later, rfc3339
from koordsched.fakecluster.deletion import with_propagation
from koordsched.fakecluster.errors import ApiStatusError, FieldError
from koordsched.fakecluster.objectmeta import generate_name, metadata_errors, new_uid
from koordsched.fakecluster.objects import Objects
from koordsched.fakecluster.preencoded import encode
from koordsched.fakecluster.release import Release, without
from koordsched.fakecluster.resources import Resource
from koordsched.fakecluster.store import ADDED, DELETED, MODIFIED, Change, Object, Record, Store
from koordsched.fakecluster.strategy import Strategy
from koordsched.fakecluster.subscriptions import ChangeCallback, ChangeView, Subscriptions, Unsubscribe
from koordsched.fakecluster.updating import check_identity, keep_metadata, outside_status

__all__ = ["ApiStatusError", "ChangeView", "Registry"]

Callback = Callable[[str, "Object | None", Object], None]
Permit = Callable[[Object, Object], list[FieldError]]
"""What a user may not change between two versions of an object: (new, old)."""

_NAME_ATTEMPTS = 8
"""Generated names that are tried before AlreadyExists is the answer (registry/store: create with retries)."""


class Registry(Objects):
    """All objects of one cluster.

    Methods without `_record` in their name take and return dicts that belong to the caller; subscriptions hand out
    shared ones that must not be changed. All raise ApiStatusError when a request is refused.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        call_later: CallLater = loop_call_later,
        store: Store | None = None,
    ) -> None:
        super().__init__(store or Store())
        self.clock: Clock = clock or SystemClock()
        self.rng = rng or random.Random()
        self.call_later = call_later
        self.release = Release()
        """The release of Kubernetes that this is like."""
        self._subscriptions = Subscriptions()
        self._namespaces = self.store.collection(self.resource("", "v1", "namespaces").storage)
        self.pods = self.resource("", "v1", "pods")

    # -- creating -------------------------------------------------------------------------------------------------

    def create(self, resource: Resource, namespace: str | None, obj: Object) -> Object:
        """Create a copy of `obj`; returns it as stored."""
        return self.owned(resource, self.create_record(resource, namespace, orjson.loads(orjson.dumps(obj))))

    def create_record(
        self, resource: Resource, namespace: str | None, obj: Object, dry_run: bool = False, *, trusted: bool = False
    ) -> Record:
        """Create `obj`, which now belongs to the registry. `trusted`: it obeys the rules of its kind."""
        if resource.to_storage is not None:
            obj = resource.to_storage(obj)
        meta = obj.get("metadata")
        if meta is None:
            meta = obj["metadata"] = {}
        elif not isinstance(meta, dict):
            raise errors.bad_request("metadata must be an object")
        namespace = self._place(resource, namespace, meta)
        strategy = self.strategy(resource)
        if meta.get("resourceVersion") not in (None, "", "0"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        if not meta.get("name") and meta.get("generateName"):
            taken = self.collection(resource).items
            for _ in range(_NAME_ATTEMPTS):
                meta["name"] = generate_name(meta["generateName"], self.rng)
                if (namespace, meta["name"]) not in taken:
                    break
        obj = {
            "apiVersion": resource.storage_version,
            "kind": resource.kind,
            "metadata": meta,
            **{k: v for k, v in obj.items() if k not in ("apiVersion", "kind", "metadata")},
        }
        meta["uid"] = new_uid(self.rng)
        meta["creationTimestamp"] = rfc3339(self.clock.now())
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
            meta.pop(key, None)
        if strategy.counts_generations:
            meta["generation"] = 1
        self._require_namespace(resource, namespace, str(meta.get("name", "")))
        strategy.defaults(obj)
        strategy.admit(self, resource, obj)
        wrong = metadata_errors(meta, resource, strategy)
        wrong += [] if trusted else strategy.validate_new(obj) + strategy.validate(obj)
        name = str(meta.get("name", ""))
        if wrong:
            raise errors.invalid(resource.group, resource.kind, name, wrong)
        strategy.charge(resource, obj)
        if (namespace, name) in self.collection(resource).items:
            raise errors.already_exists(resource, name)
        if resource.converted:
            strategy.fit_storage(obj)
        return self._commit(resource, ADDED, None, obj, dry_run)

    def restore(self, resource: Resource, obj: Object) -> Record:
        """Put an object in place as it is, in storage form, with its uid, resourceVersion and times; what of these is
        missing is made up. Takes the place of an object of that name.

        For snapshots, loaded before any watch starts: subscribers are notified, watches are not.
        """
        meta = obj["metadata"]
        key = (str(meta.get("namespace") or "") if resource.namespaced else "", str(meta["name"]))
        collection = self.collection(resource)
        previous = collection.items.pop(key, None)
        if previous is not None:
            self._subscriptions.tell(resource.storage, Change(DELETED, previous, previous))
        meta.setdefault("uid", new_uid(self.rng))
        meta.setdefault("creationTimestamp", rfc3339(self.clock.now()))
        store = self.store
        rv = int(meta.get("resourceVersion") or store.next_rv())
        meta["resourceVersion"] = str(rv)
        store.rv = max(store.rv, rv)
        collection.compacted = max(collection.compacted, store.rv)
        fields = resource.read_fields(obj)
        deleting = "deletionTimestamp" in meta
        record = Record(key, meta["uid"], rv, orjson.dumps(obj), meta.get("labels") or {}, fields, deleting)
        collection.items[key] = record
        self._subscriptions.tell(resource.storage, Change(ADDED, None, record))
        return record

    def _place(self, resource: Resource, namespace: str | None, meta: Object) -> str:
        """The namespace the object goes to; 400 when body and request disagree."""
        stated = meta.get("namespace")
        if not resource.namespaced:
            meta.pop("namespace", None)
            return ""
        namespace = namespace or stated
        if not namespace:
            raise errors.bad_request("an empty namespace may not be set during creation")
        if stated and stated != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        meta["namespace"] = namespace
        return str(namespace)

    def _require_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        if not resource.namespaced:
            return
        found = self._namespaces.items.get(("", namespace))
        if found is None:
            raise ApiStatusError(
                404, "NotFound", f'namespaces "{namespace}" not found', {"name": namespace, "kind": "namespaces"}
            )
        if found.deleting:
            text = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise errors.forbidden(resource, name, text, [cause])

    # -- changing -------------------------------------------------------------------------------------------------

    def update(self, resource: Resource, obj: Object, subresource: str = "") -> Object:
        """Replace an object by a copy of `obj`; with a resourceVersion, only if that is current (409)."""
        copy: Object = orjson.loads(orjson.dumps(obj))
        meta = copy.get("metadata") or {}
        record = self.update_record(
            resource, meta.get("namespace"), str(meta.get("name", "")), lambda _: copy, subresource
        )
        return self.owned(resource, record)

    def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        patch: Any,
        kind: str = "merge",
        subresource: str = "",
    ) -> Object:
        """Apply a `merge` or `strategic` patch (a dict) or a `json` patch (a list of operations)."""
        from koordsched.fakecluster.patching import patcher

        apply = patcher(resource, kind, patch)
        record = self.update_record(resource, namespace, name, apply, subresource)
        return self.owned(resource, record)

    def update_record(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        make: Callable[[Object], Object],
        subresource: str = "",
        dry_run: bool = False,
        permit: Permit | None = None,
    ) -> Record:
        """Replace an object by `make(a copy of it)`, in the resource's version; returns the stored version.

        `make` owns its argument and gives up its result; `permit` says what the user may not change. Nothing is written
        when nothing changes.
        """
        record = self.record(resource, namespace, name)
        strategy = self.strategy(resource)
        new = make(self.owned(resource, record))
        if resource.to_storage is not None:
            new = resource.to_storage(new)
        old = record.obj()
        if isinstance(old["metadata"].get("managedFields"), orjson.Fragment):
            # Kept encoded since its creation; here it is compared and may be changed.
            old = record.fresh()
        check_identity(resource, strategy, record, new)
        new = keep_metadata(resource, new, old, subresource)
        strategy.defaults(new)
        strategy.prepare_update(self, new, old, subresource)
        meta, old_meta = new["metadata"], old["metadata"]
        wrong = metadata_errors(meta, resource, strategy)
        wrong += strategy.validate(new)
        wrong += strategy.validate_update(new, old, subresource)
        wrong += permit(new, old) if permit is not None else []
        if wrong:
            raise errors.invalid(resource.group, resource.kind, name, wrong)
        if resource.converted:
            strategy.fit_storage(new)
        if strategy.counts_generations:
            generation = int(old_meta.get("generation") or 1)
            if subresource != "status" and outside_status(new) != outside_status(old):
                generation += 1
            meta["generation"] = generation
        if self._finished(strategy, new):
            return self._commit(resource, DELETED, record, new, dry_run)
        meta["resourceVersion"] = old_meta["resourceVersion"]
        new = self._known(resource, new)
        if new == old:
            return record
        return self._commit(resource, MODIFIED, record, new, dry_run)

    def replace_record(self, resource: Resource, record: Record, obj: Object) -> Record:
        """Commit a next version that the caller has already made right, sharing parts with the old one if it likes.

        For writers that change a known part of a known version (binding, status of hollow nodes): no strategy runs.
        409 when `record` is not the current version.
        """
        if self.collection(resource).items.get(record.key) is not record:
            raise errors.modified(resource, record.name)
        return self._commit(resource, MODIFIED, record, obj, False)

    def replace_status(self, resource: Resource, namespace: str | None, name: str, status: Object) -> Record:
        """Put a whole new status in place, trusted as it is: the cheap way for in-process writers."""
        record = self.record(resource, namespace, name)
        old = record.obj()
        return self.replace_record(resource, record, {**old, "metadata": dict(old["metadata"]), "status": status})

    def _finished(self, strategy: Strategy, obj: Object) -> bool:
        """Being deleted, with no grace left and nothing that holds it."""
        meta = obj["metadata"]
        return bool(
            meta.get("deletionTimestamp")
            and not meta.get("finalizers")
            and not meta.get("deletionGracePeriodSeconds")
            and not strategy.deletion_blocked(obj)
        )

    # -- deleting -------------------------------------------------------------------------------------------------

    def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        grace_period_seconds: int | None = None,
        uid: str | None = None,
        propagation: str | None = None,
    ) -> Object:
        """Delete; returns the last version, or the one that is now terminating."""
        record, _ = self.delete_record(resource, namespace, name, grace_period_seconds, uid, None, propagation)
        return self.owned(resource, record)

    def delete_record(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        grace_period_seconds: int | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
        dry_run: bool = False,
    ) -> tuple[Record, bool]:
        """Delete or begin to; the flag tells whether the object is gone. 409 when a precondition fails."""
        record = self.record(resource, namespace, name)
        if uid and uid != record.uid:
            text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.uid}"
            raise errors.conflict(resource, name, text)
        if resource_version and resource_version != str(record.rv):
            text = (
                f"Precondition failed: ResourceVersion in precondition: {resource_version}, "
                f"ResourceVersion in object meta: {record.rv}"
            )
            raise errors.conflict(resource, name, text)
        strategy = self.strategy(resource)
        old = record.obj()
        meta = dict(old["metadata"])
        new = {**old, "metadata": meta}
        grace = strategy.grace_period(old, grace_period_seconds)
        finalizers = with_propagation(meta.get("finalizers") or [], propagation)
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
        if meta.get("deletionTimestamp"):
            grace = min(grace, int(meta.get("deletionGracePeriodSeconds") or 0))
        if grace <= 0 and not finalizers and not strategy.deletion_blocked(new):
            return self._commit(resource, DELETED, record, new, dry_run), True
        if not meta.get("deletionTimestamp") or grace < int(meta.get("deletionGracePeriodSeconds") or 0):
            meta["deletionTimestamp"] = rfc3339(self.clock.now() + grace)
            meta["deletionGracePeriodSeconds"] = grace
        if strategy.counts_generations and not old["metadata"].get("deletionTimestamp"):
            meta["generation"] = int(meta.get("generation") or 1) + 1
        strategy.prepare_update(self, new, old, "delete")
        if new == old:
            return record, False
        return self._commit(resource, MODIFIED, record, new, dry_run), False

    # -- pods -----------------------------------------------------------------------------------------------------

    def bind(
        self,
        namespace: str,
        name: str,
        uid: str | None,
        node: str,
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        dry_run: bool = False,
    ) -> Record:
        """Assign a pod to a node, under the rules of the real server (registry/core/pod/storage: BindingREST)."""
        record = self.record(self.pods, namespace, name)
        nomination_goes = self.release.clears_nominations
        if not self.release.labels_with_bindings:
            labels = None
        bound = bound_pod(record, uid, node, annotations, labels, self.clock.now(), clear_nomination=nomination_goes)
        return self._commit(self.pods, MODIFIED, record, bound, dry_run)

    # -- committing and telling -----------------------------------------------------------------------------------

    def be_like(self, release: Release) -> None:
        """Be a server of another release: to be called before anything is stored."""
        self.release = release
        for resource in self.resources():
            if not release.serves(resource.group, resource.version, resource.plural):
                self.withdraw(resource)

    def _known(self, resource: Resource, obj: Object) -> Object:
        """The object without what this release does not know."""
        unknown = self.release.unknown_fields.get(resource.storage)
        return without(obj, unknown) if unknown else obj

    def _commit(self, resource: Resource, type_: str, old: Record | None, obj: Object, dry_run: bool) -> Record:
        obj = self._known(resource, obj)
        meta = obj["metadata"]
        store = self.store
        if dry_run:
            rv = old.rv if old is not None else 0
            meta.pop("resourceVersion", None)
            if rv:
                meta["resourceVersion"] = str(rv)
        else:
            rv = store.next_rv()
            meta["resourceVersion"] = str(rv)
        key = old.key if old is not None else (meta.get("namespace") or "", meta["name"])
        fields = resource.read_fields(obj) if resource.fields else ()
        deleting = "deletionTimestamp" in meta
        record = Record(key, meta["uid"], rv, encode(obj), meta.get("labels") or {}, fields, deleting)
        if dry_run:
            return record
        store.remember(record, obj)
        change = Change(type_, old, record)
        if store.log is not None:
            store.log(resource.storage, change)
        store.collection(resource.storage).apply(change)
        self._subscriptions.tell(resource.storage, change)
        if old is not None:
            # Subscribers have seen the old object; it is decoded again if it is needed again.
            old.forget()
        return record

    def subscribe_changes(self, resource: Resource, callback: ChangeCallback, replay: bool = True) -> Unsubscribe:
        """Hear of every change of a resource, undecoded; with `replay`, of every present object first, as ADDED."""
        present = self.collection(resource).items.values() if replay else ()
        return self._subscriptions.add(resource.storage, callback, present)

    def subscribe(self, resource: Resource, callback: Callback, replay: bool = True) -> Unsubscribe:
        """Hear of every change as `callback(type, old or None, new)`, objects in storage form. Shared: read only."""

        def decode(change: ChangeView) -> None:
            callback(change.type, change.old, change.new)

        return self.subscribe_changes(resource, decode, replay)
