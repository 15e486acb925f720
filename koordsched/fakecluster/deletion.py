"""What a propagation policy asks of the garbage collector."""

from __future__ import annotations

from koordsched.fakecluster import errors

_FOREGROUND = "foregroundDeletion"
_ORPHAN = "orphan"


def with_propagation(finalizers: list[str], propagation: str | None) -> list[str]:
    """The finalizers that a propagation policy leaves; the garbage collector removes them when its work is done."""
    if propagation is None:
        return finalizers
    kept = [f for f in finalizers if f not in (_FOREGROUND, _ORPHAN)]
    if propagation == "Foreground":
        kept.append(_FOREGROUND)
    elif propagation == "Orphan":
        kept.append(_ORPHAN)
    elif propagation != "Background":
        wrong = errors.not_supported("propagationPolicy", propagation, ("Background", "Foreground", "Orphan"))
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", [wrong])
    return kept
