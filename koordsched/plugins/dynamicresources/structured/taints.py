"""Whether a request tolerates the taints of a device (dra spec 3.6)."""

from __future__ import annotations

from collections.abc import Iterable

from koordsched.api.resource import DeviceTaint, DeviceToleration
from koordsched.plugins.shared.matching.tolerations import NO_EXECUTE, NO_SCHEDULE, tolerates


def keeping_off(taints: Iterable[DeviceTaint]) -> tuple[DeviceTaint, ...]:
    """The taints that keep requests off; others, of unknown effects among them, only inform."""
    return tuple(taint for taint in taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE))


def tolerated(taints: Iterable[DeviceTaint], tolerations: tuple[DeviceToleration, ...]) -> bool:
    """Whether each taint has a toleration that matches."""
    return all(any(tolerates(toleration, taint) for toleration in tolerations) for taint in taints)
