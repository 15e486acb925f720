"""Priority: a pod's number and preemption policy come from its PriorityClass (upstream: admission/priority)."""

from __future__ import annotations

from typing import Any

from koordsched.fakecluster import errors
from koordsched.fakecluster.errors import FieldError, forbidden_field, invalid_value, not_supported
from koordsched.fakecluster.registry import ChangeView, Registry
from koordsched.fakecluster.resources import Resource
from koordsched.fakecluster.strategy import Strategy

Object = dict[str, Any]

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_POLICIES = ("Never", "PreemptLowerPriority")


class PriorityAdmission:
    """Resolves priorities; follows the PriorityClasses so that a pod costs a look-up."""

    def __init__(self, registry: Registry) -> None:
        self.epoch = 0
        """Grows with every change of a class: what was admitted before may come out differently now."""
        self._classes: dict[str, Object] = {}
        self._default: Object | None = None
        registry.subscribe_changes(registry.resource("scheduling.k8s.io", "v1", "priorityclasses"), self._changed)

    def _changed(self, change: ChangeView) -> None:
        self.epoch += 1
        name = change.record.name
        if change.type == "DELETED":
            self._classes.pop(name, None)
        else:
            self._classes[name] = change.new
        defaults = [c for c in self._classes.values() if c.get("globalDefault")]
        # Of several global defaults the one of the lowest value counts.
        self._default = min(defaults, key=lambda c: int(c.get("value") or 0), default=None)

    def admit(self, resource: Resource, pod: Object) -> None:
        """Set priority, priorityClassName and preemptionPolicy in place. 403 for an unknown class or contradictions."""
        spec = pod["spec"]
        name = spec.get("priorityClassName")
        if name:
            found = self._classes.get(name)
            if found is None:
                raise errors.forbidden(resource, _name(pod), f"no PriorityClass with name {name} was found")
        else:
            found = self._default
            if found is not None:
                spec["priorityClassName"] = found["metadata"]["name"]
        value = int(found.get("value") or 0) if found is not None else 0
        policy = (found.get("preemptionPolicy") if found is not None else None) or "PreemptLowerPriority"
        if spec.get("priority") is not None and spec["priority"] != value:
            text = (
                f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
                f"priority admission controller computed {value} from the given PriorityClass name"
            )
            raise errors.forbidden(resource, _name(pod), text)
        stated = spec.get("preemptionPolicy")
        if stated is not None and found is not None and stated != policy:
            text = (
                f"the string value of PreemptionPolicy ({stated}) must not be provided in pod spec; "
                f"priority admission controller computed {policy} from the given PriorityClass name"
            )
            raise errors.forbidden(resource, _name(pod), text)
        spec["priority"] = value
        if stated is None:
            spec["preemptionPolicy"] = policy


def _name(pod: Object) -> str:
    return str(pod["metadata"].get("name") or "")


class PriorityClassStrategy(Strategy):
    """scheduling.k8s.io/v1 PriorityClass."""

    counts_generations = True

    def defaults(self, obj: Object) -> None:
        obj.setdefault("value", 0)
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def validate(self, obj: Object) -> list[FieldError]:
        wrong = []
        name, value = str(obj["metadata"].get("name") or ""), obj["value"]
        if name.startswith("system-"):
            if SYSTEM_CLASSES.get(name) != value:
                text = "priority class names with 'system-' prefix are reserved for system use only. error: "
                text += (
                    f"value of {name} PriorityClass must be {SYSTEM_CLASSES[name]}"
                    if name in SYSTEM_CLASSES
                    else f"{name} is not a known system priority class"
                )
                wrong.append(forbidden_field("metadata.name", text))
        elif value > HIGHEST_USER_PRIORITY:
            text = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
            wrong.append(forbidden_field("value", text))
        if obj["preemptionPolicy"] not in _POLICIES:
            wrong.append(not_supported("preemptionPolicy", obj["preemptionPolicy"], _POLICIES))
        return wrong

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[FieldError]:
        wrong = []
        if obj.get("value") != old.get("value"):
            wrong.append(forbidden_field("value", "may not be changed in an update."))
        if obj.get("preemptionPolicy") != old.get("preemptionPolicy"):
            wrong.append(invalid_value("preemptionPolicy", obj.get("preemptionPolicy"), "field is immutable"))
        return wrong
