"""Whether a pod's tolerations tolerate a node's taints.

Source: api `core/v1/toleration.go`; default-plugins spec 3.1. Comparison operators (Lt, Gt) are behind a feature
gate that is off, so such a toleration tolerates nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from koordsched.api.core import Taint, Toleration

NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "PreferNoSchedule", "NoExecute"


class AnyTaint(Protocol):
    """A taint of a node or a device."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def effect(self) -> str: ...


class AnyToleration(AnyTaint, Protocol):
    """A toleration of either."""

    @property
    def operator(self) -> str: ...


def tolerates(toleration: AnyToleration, taint: AnyTaint) -> bool:
    """Whether one toleration tolerates one taint; empty fields of the toleration match everything."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def tolerated(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Whether any of the tolerations tolerates the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def keeps_away(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> bool:
    """Whether a taint with effect NoSchedule or NoExecute is not tolerated."""
    return any(taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not tolerated(tolerations, taint) for taint in taints)


def count_unwelcome(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> int:
    """How many PreferNoSchedule taints are not tolerated by a toleration of that effect (or of any)."""
    relevant = [t for t in tolerations if t.effect in ("", PREFER_NO_SCHEDULE)]
    return sum(taint.effect == PREFER_NO_SCHEDULE and not tolerated(relevant, taint) for taint in taints)
