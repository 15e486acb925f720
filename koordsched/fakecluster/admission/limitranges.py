"""LimitRanges: default requests and limits for containers, and bounds (upstream: plugin/pkg/admission/limitranger)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from koordsched.api.quantity import QuantityError
from koordsched.fakecluster import errors
from koordsched.fakecluster.errors import FieldError, invalid_value, not_supported
from koordsched.fakecluster.quantities import amount, canonicalize
from koordsched.fakecluster.registry import ChangeView, Registry
from koordsched.fakecluster.resources import Resource
from koordsched.fakecluster.strategy import Strategy

Object = dict[str, Any]

_ANNOTATION = "kubernetes.io/limit-ranger"
_TYPES = ("Container", "PersistentVolumeClaim", "Pod")


class LimitRangeAdmission:
    """Applies the limit ranges of a pod's namespace; follows them so that other namespaces cost nothing."""

    def __init__(self, registry: Registry) -> None:
        self._ranges: dict[str, dict[str, Object]] = {}
        registry.subscribe_changes(registry.resource("", "v1", "limitranges"), self._changed)

    def _changed(self, change: ChangeView) -> None:
        record = change.record
        ranges = self._ranges.setdefault(record.namespace, {})
        if change.type == "DELETED":
            ranges.pop(record.name, None)
            if not ranges:
                del self._ranges[record.namespace]
        else:
            ranges[record.name] = change.new

    def concern(self, namespace: str) -> bool:
        """Whether there are limit ranges for the pods of a namespace."""
        return namespace in self._ranges

    def admit(self, resource: Resource, pod: Object) -> None:
        """Fill requests and limits in place, then 403 where the pod is out of bounds."""
        ranges = self._ranges.get(pod["metadata"]["namespace"])
        if not ranges:
            return
        items = [item for r in ranges.values() for item in (r.get("spec") or {}).get("limits") or ()]
        set_for = []
        for item in items:
            if item.get("type") != "Container":
                continue
            for kind, label in (("containers", "container"), ("initContainers", "init container")):
                for container in pod["spec"].get(kind) or ():
                    done = _default(container, item)
                    if done:
                        set_for.append(f"{'; '.join(done)} {label} {container.get('name')}")
        if set_for:
            annotations = pod["metadata"].setdefault("annotations", {})
            annotations[_ANNOTATION] = "LimitRanger plugin set: " + "; ".join(set_for)
        problems = [text for item in items for text in _out_of_bounds(pod, item)]
        if problems:
            text = problems[0] if len(problems) == 1 else "[" + ", ".join(problems) + "]"
            raise errors.forbidden(resource, str(pod["metadata"].get("name") or ""), text)


def _default(container: Object, item: Object) -> list[str]:
    """Fill one container; returns what was set, in the words of the annotation."""
    done = []
    resources = container.setdefault("resources", {})
    for kind, source in (("requests", "defaultRequest"), ("limits", "default")):
        wanted = item.get(source)
        if not wanted:
            continue
        present = resources.setdefault(kind, {})
        added = [name for name in sorted(wanted) if name not in present]
        for name in added:
            present[name] = wanted[name]
        if added:
            done.append(f"{', '.join(added)} {kind[:-1]} for")
        if not present:
            del resources[kind]
    return done


def _out_of_bounds(pod: Object, item: Object) -> list[str]:
    kind = item.get("type")
    if kind == "Container":
        spec = pod["spec"]
        usages = [
            c.get("resources") or {} for c in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        ]
    elif kind == "Pod":
        usages = [_pod_total(pod)]
    else:
        return []
    problems = []
    for resources in usages:
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name, bound in (item.get("min") or {}).items():
            for word, value in (("request", requests.get(name)), ("limit", limits.get(name))):
                if value is None:
                    if word == "request":
                        problems.append(f"minimum {name} usage per {kind} is {bound}.  No request is specified")
                elif amount(value) < amount(bound):
                    problems.append(f"minimum {name} usage per {kind} is {bound}, but {word} is {value}")
        for name, bound in (item.get("max") or {}).items():
            value = limits.get(name)
            if value is None:
                problems.append(f"maximum {name} usage per {kind} is {bound}.  No limit is specified")
            elif amount(value) > amount(bound):
                problems.append(f"maximum {name} usage per {kind} is {bound}, but limit is {value}")
            request = requests.get(name)
            if request is not None and amount(request) > amount(bound):
                problems.append(f"maximum {name} usage per {kind} is {bound}, but request is {request}")
        for name, ratio in (item.get("maxLimitRequestRatio") or {}).items():
            request, limit = requests.get(name), limits.get(name)
            if request is None or limit is None or amount(request) == 0:
                problems.append(
                    f"{name} max limit to request ratio per {kind} is {ratio}, but no request or limit is specified"
                )
            elif amount(limit) / amount(request) > amount(ratio):
                found = float(amount(limit) / amount(request))
                problems.append(
                    f"{name} max limit to request ratio per {kind} is {ratio}, but provided ratio is {found:f}"
                )
    return problems


def _pod_total(pod: Object) -> Object:
    """Requests and limits of the whole pod: the sum of its containers, or the largest init container if more."""
    spec = pod["spec"]
    out: Object = {}
    for kind in ("requests", "limits"):
        total: dict[str, Any] = {}
        for container in spec.get("containers") or ():
            for name, value in ((container.get("resources") or {}).get(kind) or {}).items():
                total[name] = total.get(name, 0) + amount(value)
        for container in spec.get("initContainers") or ():
            for name, value in ((container.get("resources") or {}).get(kind) or {}).items():
                total[name] = max(total.get(name, 0), amount(value))
        out[kind] = {name: float(value) for name, value in total.items()}
    return out


class LimitRangeStrategy(Strategy):
    """core/v1 LimitRange."""

    def defaults(self, obj: Object) -> None:
        for item in (obj.get("spec") or {}).get("limits") or ():
            if item.get("type") != "Container":
                continue
            default, requests = dict(item.get("default") or {}), dict(item.get("defaultRequest") or {})
            for name, value in (item.get("max") or {}).items():
                default.setdefault(name, value)
            for name, value in default.items():
                requests.setdefault(name, value)
            for name, value in (item.get("min") or {}).items():
                requests.setdefault(name, value)
            if default:
                item["default"] = default
            if requests:
                item["defaultRequest"] = requests

    def validate(self, obj: Object) -> list[FieldError]:
        wrong: list[FieldError] = []
        for i, item in enumerate((obj.get("spec") or {}).get("limits") or ()):
            field = f"spec.limits[{i}]"
            if item.get("type") not in _TYPES and "/" not in str(item.get("type")):
                wrong.append(not_supported(f"{field}.type", item.get("type"), _TYPES))
            for kind in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
                wrong += canonicalize(item.get(kind), f"{field}.{kind}")
            wrong += _bounds(item, field)
        return wrong


def _bounds(item: Object, field: str) -> list[FieldError]:
    wrong = []
    order = ("min", "defaultRequest", "default", "max")
    for low, high in pairwise(order):
        for name, value in (item.get(low) or {}).items():
            bound = (item.get(high) or {}).get(name)
            try:
                if bound is not None and amount(value) > amount(bound):
                    text = f"{low} value {value} is greater than {high} value {bound}"
                    wrong.append(invalid_value(f"{field}.{low}[{name}]", value, text))
            except QuantityError:
                continue
    return wrong
