"""Status conditions: lists of {type, status, reason, message, lastTransitionTime} keyed by type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Condition = dict[str, Any]

_TIMES = ("lastTransitionTime", "lastProbeTime")


def find(conditions: Iterable[Condition] | None, kind: str) -> Condition | None:
    """The condition of that type, or None."""
    for condition in conditions or ():
        if condition.get("type") == kind:
            return condition
    return None


def is_true(holder: Mapping[str, Any], kind: str) -> bool:
    """Whether `holder.status.conditions` has that type with status "True"."""
    condition = find(holder.get("status", {}).get("conditions"), kind)
    return condition is not None and condition.get("status") == "True"


def with_condition(conditions: Iterable[Condition] | None, new: Condition, now: str) -> list[Condition]:
    """A copy of the list in which `new` replaces the condition of its type.

    The transition time moves only when the status changes, as everywhere in Kubernetes; a condition that says the same
    as before stays as it is, so that writing it again writes nothing.
    """
    kept = list(conditions or ())
    old = find(kept, new["type"])
    if old is None:
        return [*kept, {**new, "lastTransitionTime": now}]
    if all(old.get(name) == value for name, value in new.items() if name not in _TIMES):
        return kept
    moved = old.get("status") != new["status"]
    new = {**new, "lastTransitionTime": now if moved else old.get("lastTransitionTime", now)}
    return [new if condition is old else condition for condition in kept]


def without_condition(conditions: Iterable[Condition] | None, kind: str) -> list[Condition]:
    """A copy of the list without that type."""
    return [condition for condition in conditions or () if condition.get("type") != kind]
