"""Which taints a pod tolerates, and for how long.

Source: component-helpers `scheduling/corev1`, core/v1 `Toleration.ToleratesTaint`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from koordsched.fakecluster.controllers.nodes import Taint

Toleration = dict[str, Any]


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether the toleration matches the taint."""
    key, value, effect = taint
    if toleration.get("effect") and toleration["effect"] != effect:
        return False
    if toleration.get("key") and toleration["key"] != key:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return operator == "Equal" and bool(toleration.get("key")) and (toleration.get("value") or "") == value


def untolerated(taints: Iterable[Taint], tolerations: list[Toleration], effects: tuple[str, ...]) -> Taint | None:
    """The first taint with one of the effects that no toleration matches."""
    for taint in taints:
        if taint[2] in effects and not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def tolerated_seconds(taints: Iterable[Taint], tolerations: list[Toleration]) -> float | None:
    """How long a pod with these tolerations may stay on a node with these NoExecute taints.

    0.0 when one of them is not tolerated at all, None for ever.
    """
    shortest: float | None = None
    for taint in taints:
        if taint[2] != "NoExecute":
            continue
        matching = [toleration for toleration in tolerations if tolerates(toleration, taint)]
        if not matching:
            return 0.0
        for toleration in matching:
            seconds = toleration.get("tolerationSeconds")
            if seconds is not None:
                shortest = min(shortest if shortest is not None else float("inf"), max(0.0, float(seconds)))
    return shortest
