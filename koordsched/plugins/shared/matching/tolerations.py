"""Whether a pod's tolerations tolerate a node's taints.

Source: api `core/v1/toleration.go`; default-plugins spec 3.1. Comparison operators (Lt, Gt) are behind a feature
gate that is off, so such a toleration tolerates nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from koordsched.api.core import Taint
from koordsched.cluster.shape import PodShape

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


def tolerated_by(taint: AnyTaint) -> Iterator[tuple[str, ...]]:
    """The tolerations of which one is enough, as `Tolerations` lists them."""
    for key in (taint.key, ""):
        for effect in (taint.effect, ""):
            yield key, effect
            yield key, effect, taint.value


class Tolerations:
    """Tolerations, looked up by what a taint has: a pod may list ten thousand, and a node have as many taints.

    `listed`: (key, effect), each "" for all, and the same with a value.
    """

    __slots__ = ("listed",)

    def __init__(self, tolerations: Iterable[AnyToleration]) -> None:
        self.listed: set[tuple[str, ...]] = set()
        for each in tolerations:
            if each.operator == "Exists":
                self.listed.add((each.key, each.effect))
            elif each.operator in ("", "Equal"):
                self.listed.add((each.key, each.effect, each.value))

    def tolerate(self, taint: AnyTaint) -> bool:
        """Whether any of them tolerates the taint."""
        return not self.listed.isdisjoint(tolerated_by(taint))

    def turned_away_by(self, taints: Iterable[Taint]) -> Iterator[Taint]:
        """The taints with effect NoSchedule or NoExecute that are not tolerated."""
        return (taint for taint in taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not self.tolerate(taint))

    def turned_away(self, taints: Iterable[Taint]) -> bool:
        """Whether there are such taints."""
        return any(True for _ in self.turned_away_by(taints))

    def count_unwelcome(self, taints: Iterable[Taint]) -> int:
        """How many PreferNoSchedule taints are not tolerated."""
        return sum(taint.effect == PREFER_NO_SCHEDULE and not self.tolerate(taint) for taint in taints)


def tolerations_of(shape: PodShape) -> Tolerations:
    """Those of the pods of a shape."""
    return shape.compiled(Tolerations, _of_shape)


def _of_shape(shape: PodShape) -> Tolerations:
    return Tolerations(shape.spec.tolerations)
