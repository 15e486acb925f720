"""Whether a request tolerates the taints of a device (dra spec 3.6)."""

from __future__ import annotations

from collections.abc import Iterable

from koordsched.api.resource import DeviceTaint, DeviceToleration

_KEEPING_OFF = ("NoSchedule", "NoExecute")


def keeping_off(taints: Iterable[DeviceTaint]) -> tuple[DeviceTaint, ...]:
    """The taints that keep requests off; others, of unknown effects among them, only inform."""
    return tuple(taint for taint in taints if taint.effect in _KEEPING_OFF)


def tolerated(taints: Iterable[DeviceTaint], tolerations: tuple[DeviceToleration, ...]) -> bool:
    """Whether each taint has a toleration that matches."""
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
