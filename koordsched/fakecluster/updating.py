"""What an update may say of an object's identity, and what of its metadata it cannot change."""

from __future__ import annotations

from koordsched.fakecluster import errors
from koordsched.fakecluster.resources import Resource
from koordsched.fakecluster.store import Object, Record
from koordsched.fakecluster.strategy import Strategy


def check_identity(resource: Resource, strategy: Strategy, record: Record, new: Object) -> None:
    meta = new.get("metadata")
    if not isinstance(meta, dict):
        raise errors.bad_request("metadata must be an object")
    name = record.name
    if meta.get("name", name) != name:
        raise errors.bad_request(
            f"the name of the object ({meta.get('name')}) does not match the name on the URL ({name})"
        )
    if resource.namespaced and meta.get("namespace", record.namespace) != record.namespace:
        raise errors.bad_request("the namespace of the object does not match the namespace on the request")
    if new.get("kind", resource.kind) != resource.kind:
        raise errors.bad_request(f"{new.get('kind')} cannot be handled as a {resource.kind}")
    version = meta.get("resourceVersion")
    if version:
        if version != str(record.rv):
            raise errors.modified(resource, name)
    elif not strategy.unconditional_update:
        wrong = errors.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
        raise errors.invalid(resource.group, resource.kind, name, [wrong])
    uid = meta.get("uid")
    if uid and uid != record.uid:
        text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.uid}"
        raise errors.conflict(resource, name, text)


def keep_metadata(resource: Resource, new: Object, old: Object, subresource: str) -> Object:
    """Restore what no update may change, and put the fixed keys first."""
    meta, old_meta = new["metadata"], old["metadata"]
    if subresource == "status":
        # A status update may carry labels and annotations of built-in kinds (kubelets use it), never the rest.
        kept = {**old_meta}
        if not resource.custom:
            for key in ("labels", "annotations"):
                if key in meta:
                    kept[key] = meta[key]
                else:
                    kept.pop(key, None)
        if "resourceVersion" in meta:
            kept["resourceVersion"] = meta["resourceVersion"]
        return {**old, "metadata": kept, "status": new.get("status", {})}
    for key in (
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ):
        if key in old_meta:
            meta[key] = old_meta[key]
        else:
            meta.pop(key, None)
    if old_meta.get("deletionTimestamp") and meta.get("finalizers"):
        added = set(meta["finalizers"]) - set(old_meta.get("finalizers") or ())
        if added:
            wrong = errors.forbidden_field(
                "metadata.finalizers",
                f"no new finalizers can be added if the object is being deleted, found new finalizers {sorted(added)}",
            )
            raise errors.invalid(resource.group, resource.kind, str(meta["name"]), [wrong])
    out = {"apiVersion": resource.storage_version, "kind": resource.kind, "metadata": meta}
    out.update((k, v) for k, v in new.items() if k not in out)
    if "status" in resource.subresources:
        if "status" in old:
            out["status"] = old["status"]
        else:
            out.pop("status", None)
    return out


def outside_status(obj: Object) -> Object:
    return {k: v for k, v in obj.items() if k not in ("metadata", "status")}
