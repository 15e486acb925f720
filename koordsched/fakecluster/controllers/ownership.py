"""Owner references: which controller made an object, and which may adopt it."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
Key = tuple[str, str]
"""(namespace, name); the namespace of cluster-scoped objects is empty."""


def key_of(obj: Object) -> Key:
    """The object's (namespace, name)."""
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def controller_reference_of(obj: Object) -> Object | None:
    """The reference marked `controller: true`, or None."""
    found = (each for each in obj["metadata"].get("ownerReferences") or () if each.get("controller"))
    return next(found, None)


def controller_uid(obj: Object) -> str | None:
    """The uid in the reference marked `controller: true`, or None."""
    reference = controller_reference_of(obj)
    return str(reference["uid"]) if reference is not None else None


def controller_reference(owner: Object, api_version: str, kind: str) -> Object:
    """The reference a controller puts on what it makes; it blocks foreground deletion of the owner."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def with_owners(metadata: Object, references: list[Object]) -> Object:
    """A copy of the metadata with these owner references; without any the field goes away."""
    changed = {**metadata, "ownerReferences": references}
    if not references:
        del changed["ownerReferences"]
    return changed


def is_deleting(obj: Object) -> bool:
    """Whether a deletionTimestamp is set."""
    return bool(obj["metadata"].get("deletionTimestamp"))
