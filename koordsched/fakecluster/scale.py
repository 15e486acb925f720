"""The scale subresource: where a kind keeps its replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from koordsched.fakecluster.resources import Object, Resource

if TYPE_CHECKING:
    from koordsched.fakecluster.registry import Registry


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Paths below the object, as keys."""

    spec: tuple[str, ...] = ("spec", "replicas")
    status: tuple[str, ...] = ("status", "replicas")
    selector: tuple[str, ...] = ("spec", "selector")

    @classmethod
    def declared(cls, scale: dict[str, Any]) -> ScalePaths:
        """As a CustomResourceDefinition declares them (`.spec.replicas`)."""

        def keys(name: str) -> tuple[str, ...]:
            return tuple(k for k in str(scale.get(name) or "").split(".") if k)

        return cls(keys("specReplicasPath"), keys("statusReplicasPath"), keys("labelSelectorPath"))


_BUILT_IN = ScalePaths()


def scale_paths(registry: Registry, resource: Resource) -> ScalePaths:
    """The paths of a kind that has the scale subresource."""
    return registry.strategy(resource).scale_paths(resource) or _BUILT_IN


def _at(obj: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        obj = obj.get(key) if isinstance(obj, dict) else None
    return obj if keys else None


def read_scale(obj: Object, paths: ScalePaths) -> Object:
    """The autoscaling/v1 Scale of an object."""
    meta = obj["metadata"]
    status: Object = {"replicas": _at(obj, paths.status) or 0}
    selector = selector_text(_at(obj, paths.selector))
    if selector:
        status["selector"] = selector
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {k: meta[k] for k in kept if k in meta},
        "spec": {"replicas": _at(obj, paths.spec) or 0},
        "status": status,
    }


def write_replicas(obj: Object, paths: ScalePaths, replicas: int) -> None:
    """Set the wanted replicas, in place."""
    for key in paths.spec[:-1]:
        obj = obj.setdefault(key, {})
    obj[paths.spec[-1]] = replicas


def selector_text(selector: Any) -> str:
    """A label selector, or the plain map of a ReplicationController, as text."""
    if isinstance(selector, str):
        return selector
    if not isinstance(selector, dict):
        return ""
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        return ",".join(f"{k}={v}" for k, v in sorted(selector.items()))
    terms = [f"{k}={v}" for k, v in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or ():
        key, operator = expression.get("key"), expression.get("operator")
        values = ",".join(sorted(expression.get("values") or ()))
        terms.append(
            {"Exists": f"{key}", "DoesNotExist": f"!{key}", "In": f"{key} in ({values})"}.get(
                operator, f"{key} notin ({values})"
            )
        )
    return ",".join(terms)
