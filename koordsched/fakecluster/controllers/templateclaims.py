"""ResourceClaims as they are made of templates, for an entry of a pod's or a PodGroup's list `resourceClaims`."""

from __future__ import annotations

from koordsched.fakecluster.controllers.ownership import Object

_LONGEST_BASE = 57
"""Of a generated name, which five random characters and a hyphen complete."""


def made_of(template: Object, owner: Object, entry: str, annotation: str) -> Object:
    """The claim to create. `owner`: the reference to its controller; `annotation` is to name the entry."""
    inner = template["spec"]
    metadata = inner.get("metadata") or {}
    claim: Object = {
        "metadata": {
            "generateName": _generated_base(owner["name"], entry),
            "annotations": {**(metadata.get("annotations") or {}), annotation: entry},
            "ownerReferences": [owner],
        },
        "spec": inner.get("spec") or {},
    }
    if metadata.get("labels"):
        claim["metadata"]["labels"] = metadata["labels"]
    return claim


def is_made_for(claim: Object, entry: str, annotation: str) -> bool:
    """Whether the claim was made for the entry."""
    return (claim["metadata"].get("annotations") or {}).get(annotation) == entry


def _generated_base(owner: str, entry: str) -> str:
    """What the names of claims for an entry begin with; both names are shortened in proportion if need be."""
    base = f"{owner}-{entry}-"
    if len(base) <= _LONGEST_BASE:
        return base
    return f"{owner[: len(owner) * _LONGEST_BASE // len(base)]}-{entry[: len(entry) * _LONGEST_BASE // len(base)]}"
