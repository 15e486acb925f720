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


class Tolerations:
    """The tolerations of a pod, looked up by what they tolerate: it may list ten thousand, and nodes as many taints."""

    __slots__ = ("_exists", "_values")

    def __init__(self, given: Sequence[Toleration]) -> None:
        self._exists = {(t.key, t.effect) for t in given if t.operator == "Exists"}
        self._values = {(t.key, t.effect, t.value) for t in given if t.operator in ("", "Equal")}

    def tolerate(self, taint: Taint) -> bool:
        """Whether any of them tolerates the taint."""
        for key in (taint.key, ""):
            for effect in (taint.effect, ""):
                if (key, effect) in self._exists or (key, effect, taint.value) in self._values:
                    return True
        return False


def keeps_away(tolerations: Tolerations, taints: Sequence[Taint]) -> bool:
    """Whether a taint with effect NoSchedule or NoExecute is not tolerated."""
    return any(taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not tolerations.tolerate(taint) for taint in taints)


def count_unwelcome(tolerations: Tolerations, taints: Sequence[Taint]) -> int:
    """How many PreferNoSchedule taints are not tolerated by a toleration of that effect (or of any)."""
    return sum(taint.effect == PREFER_NO_SCHEDULE and not tolerations.tolerate(taint) for taint in taints)
