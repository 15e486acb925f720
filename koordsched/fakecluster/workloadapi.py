"""The API group scheduling.k8s.io/v1alpha2 (Workload and PodGroup), which clusters serve only where it is enabled."""

from __future__ import annotations

from typing import Any

from koordsched.fakecluster.errors import FieldError, invalid_value, required, too_many
from koordsched.fakecluster.podclaimvalidation import entry_errors, generated_errors
from koordsched.fakecluster.registry import Registry
from koordsched.fakecluster.resources import STATUS, Resource
from koordsched.fakecluster.strategy import Strategy

Object = dict[str, Any]

GROUP, VERSION = "scheduling.k8s.io", "v1alpha2"
_MOST_TEMPLATES = 8
_MOST_CONSTRAINTS = 1
_MOST_CLAIMS = 4


class PodGroupStrategy(Strategy):
    """PodGroup: exactly one policy, and a gang of at least one pod."""

    counts_generations = True

    def defaults(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("disruptionMode", "Pod")

    def admit(self, registry: Registry, resource: Resource, obj: Object) -> None:
        obj["status"] = {}

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        wrong = policy_errors(spec.get("schedulingPolicy"), "spec.schedulingPolicy")
        constraints = (spec.get("schedulingConstraints") or {}).get("topology") or ()
        if len(constraints) > _MOST_CONSTRAINTS:
            field = "spec.schedulingConstraints.topology"
            wrong.append(
                FieldError(field, "FieldValueTooMany", f"Too many: {len(constraints)}: must have at most 1 item")
            )
        wrong += _claim_errors(spec, "spec.resourceClaims")
        if spec["disruptionMode"] not in ("Pod", "PodGroup"):
            text = 'supported values: "Pod", "PodGroup"'
            wrong.append(invalid_value("spec.disruptionMode", spec["disruptionMode"], text))
        return wrong

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[FieldError]:
        after, before = ((each.get("spec") or {}).get("resourceClaims") or [] for each in (obj, old))
        wrong = [] if after == before else [invalid_value("spec.resourceClaims", after, "field is immutable")]
        made, made_before = ((each.get("status") or {}).get("resourceClaimStatuses") or [] for each in (obj, old))
        if made != made_before:
            known = {claim.get("name") for claim in after}
            wrong += generated_errors(made, known, "status.resourceClaimStatuses")
        return wrong


class WorkloadStrategy(Strategy):
    """Workload: templates of PodGroups, which stay as they are."""

    counts_generations = True

    def validate(self, obj: Object) -> list[FieldError]:
        templates = (obj.get("spec") or {}).get("podGroupTemplates") or ()
        field = "spec.podGroupTemplates"
        if len(templates) > _MOST_TEMPLATES:
            return [FieldError(field, "FieldValueTooMany", f"Too many: {len(templates)}: must have at most 8 items")]
        if not templates:
            return [required(field)]
        wrong: list[FieldError] = []
        for number, template in enumerate(templates):
            wrong += policy_errors(template.get("schedulingPolicy"), f"{field}[{number}].schedulingPolicy")
            wrong += _claim_errors(template, f"{field}[{number}].resourceClaims")
        return wrong

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[FieldError]:
        after, before = ((each.get("spec") or {}).get("podGroupTemplates") for each in (obj, old))
        return [] if after == before else [invalid_value("spec.podGroupTemplates", after, "field is immutable")]


def _claim_errors(spec: Object, field: str) -> list[FieldError]:
    claims = spec.get("resourceClaims") or []
    if len(claims) > _MOST_CLAIMS:
        return [too_many(field, len(claims), _MOST_CLAIMS)]
    return entry_errors(claims, field)


def policy_errors(policy: Any, field: str) -> list[FieldError]:
    """What is wrong with a schedulingPolicy."""
    given = [name for name in ("basic", "gang") if isinstance(policy, dict) and policy.get(name) is not None]
    if len(given) != 1:
        return [invalid_value(field, policy, "must specify exactly one of: `basic`, `gang`")]
    count = policy["gang"].get("minCount") if given == ["gang"] else 1
    if not isinstance(count, int):
        return [required(f"{field}.gang.minCount")]
    if count < 1:
        return [invalid_value(f"{field}.gang.minCount", count, "must be greater than or equal to 1")]
    return []


def serve_workload_api(registry: Registry) -> None:
    """From now on the group is served."""
    registry.strategies["scheduling.k8s.io/podgroups"] = PodGroupStrategy()
    registry.strategies["scheduling.k8s.io/workloads"] = WorkloadStrategy()
    registry.serve(Resource(GROUP, VERSION, "podgroups", "PodGroup", subresources=STATUS))
    registry.serve(Resource(GROUP, VERSION, "workloads", "Workload"))
