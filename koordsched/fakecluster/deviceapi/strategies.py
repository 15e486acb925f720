"""Strategies of the kinds of resource.k8s.io."""

from __future__ import annotations

from koordsched.fakecluster.admission.quota import QuotaAdmission
from koordsched.fakecluster.clock import rfc3339
from koordsched.fakecluster.deviceapi.claimrules import (
    MOST_CONFIGURATIONS,
    claim_spec_errors,
    default_claim_spec,
    selectors_errors,
)
from koordsched.fakecluster.deviceapi.fieldrules import (
    Errors,
    Object,
    configuration_errors,
    driver_errors,
    items_errors,
    label_name_errors,
    pool_name_errors,
    taint_errors,
)
from koordsched.fakecluster.deviceapi.slicerules import default_slice, slice_errors, slice_update_errors
from koordsched.fakecluster.deviceapi.statusrules import (
    admin_result,
    claim_status_errors,
    conditions_errors,
    default_claim_status,
    without_deallocated,
)
from koordsched.fakecluster.errors import forbidden_field, invalid_value
from koordsched.fakecluster.names import annotation_errors, label_errors, qualified_name_error
from koordsched.fakecluster.registry import Registry
from koordsched.fakecluster.resources import Resource
from koordsched.fakecluster.strategy import Strategy

ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
"""Label of namespaces, `"true"`: claims in them may have access to devices that others use."""
_IMMUTABLE = "field is immutable"


def device_strategies(registry: Registry, quotas: QuotaAdmission) -> dict[str, Strategy]:
    """The strategies by the storage keys of the kinds."""
    return {
        "resource.k8s.io/deviceclasses": DeviceClassStrategy(),
        "resource.k8s.io/devicetaintrules": DeviceTaintRuleStrategy(registry),
        "resource.k8s.io/resourceclaims": ResourceClaimStrategy(registry, quotas),
        "resource.k8s.io/resourceclaimtemplates": ResourceClaimTemplateStrategy(registry),
        "resource.k8s.io/resourceslices": ResourceSliceStrategy(registry),
    }


class _AdminAccess:
    """Whether the namespace of a claim lets it have devices that others use."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._namespaces = registry.resource("", "v1", "namespaces")

    def spec_errors(self, obj: Object, spec: Object) -> Errors:
        """What is wrong with an object that has this spec of a claim in it."""
        for i, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
            if (request.get("exactly") or {}).get("adminAccess"):
                return self.errors(obj, f"spec.devices.requests[{i}].adminAccess")
        return []

    def errors(self, obj: Object, field: str) -> Errors:
        """What is wrong with an object that asks for admin access in this field."""
        namespace = self._registry.peek(self._namespaces, None, obj["metadata"].get("namespace") or "")
        labels = ((namespace or {}).get("metadata") or {}).get("labels") or {}
        if labels.get(ADMIN_ACCESS) == "true":
            return []
        text = f"admin access to devices requires the `{ADMIN_ACCESS}: true` label on the containing namespace"
        return [forbidden_field(field, text)]


class ResourceClaimStrategy(Strategy):
    """ResourceClaim: a spec for ever; an allocation that is made and removed, but not changed."""

    returns_deleted = True

    def __init__(self, registry: Registry, quotas: QuotaAdmission) -> None:
        self._admin = _AdminAccess(registry)
        self._quotas = quotas

    def defaults(self, obj: Object) -> None:
        default_claim_spec(obj.setdefault("spec", {}))
        default_claim_status(obj.get("status") or {})

    def admit(self, registry: Registry, resource: Resource, obj: Object) -> None:
        obj["status"] = {}

    def validate_new(self, obj: Object) -> Errors:
        return self._admin.spec_errors(obj, obj["spec"]) + claim_spec_errors(obj["spec"], "spec")

    def charge(self, resource: Resource, obj: Object) -> None:
        self._quotas.charge_claim(resource, obj)

    def prepare_update(self, registry: Registry, obj: Object, old: Object, subresource: str) -> None:
        if subresource != "status":
            return
        kept = {key: old["metadata"][key] for key in ("labels", "annotations") if key in old["metadata"]}
        other = {key: value for key, value in obj["metadata"].items() if key not in ("labels", "annotations")}
        obj["metadata"] = {**other, **kept}
        obj["status"] = without_deallocated(obj.get("status") or {}, old.get("status") or {})

    def validate_update(self, obj: Object, old: Object, subresource: str) -> Errors:
        if subresource == "status":
            wrong: Errors = []
            field = admin_result(obj.get("status") or {})
            if field is not None and admin_result(old.get("status") or {}) is None:
                wrong = self._admin.errors(obj, field)
            return wrong + claim_status_errors(obj, old)
        return [invalid_value("spec", obj["spec"], _IMMUTABLE)] if obj["spec"] != old.get("spec") else []


class ResourceClaimTemplateStrategy(Strategy):
    """ResourceClaimTemplate: what the claims that are made of it begin with."""

    returns_deleted = True

    def __init__(self, registry: Registry) -> None:
        self._admin = _AdminAccess(registry)

    def defaults(self, obj: Object) -> None:
        default_claim_spec(obj.setdefault("spec", {}).setdefault("spec", {}))

    def validate_new(self, obj: Object) -> Errors:
        template = obj["spec"]
        metadata = template.get("metadata") or {}
        wrong = self._admin.spec_errors(obj, template["spec"])
        wrong += annotation_errors(metadata.get("annotations"), "spec.metadata.annotations")
        wrong += label_errors(metadata.get("labels"), "spec.metadata.labels")
        return wrong + claim_spec_errors(template["spec"], "spec.spec")

    def validate_update(self, obj: Object, old: Object, subresource: str) -> Errors:
        return [invalid_value("spec", obj["spec"], _IMMUTABLE)] if obj["spec"] != old.get("spec") else []


class DeviceClassStrategy(Strategy):
    """DeviceClass: selectors of devices, and what may be requested instead of claiming one."""

    counts_generations = True
    returns_deleted = True

    def defaults(self, obj: Object) -> None:
        obj.setdefault("spec", {})

    def validate(self, obj: Object) -> Errors:
        spec = obj["spec"]
        wrong = selectors_errors(spec.get("selectors") or [], "spec.selectors")
        wrong += items_errors(spec.get("config") or [], MOST_CONFIGURATIONS, configuration_errors, "spec.config")
        name = spec.get("extendedResourceName")
        if name is not None and not _is_extended_resource(name):
            text = "must be a valid extended resource name"
            wrong.append(invalid_value("spec.extendedResourceName", name, text))
        return wrong


def _is_extended_resource(name: str) -> bool:
    """Whether pods may request a resource of this name of a device plugin (core/v1 helper: IsExtendedResourceName)."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return qualified_name_error(f"requests.{name}") is None


class ResourceSliceStrategy(Strategy):
    """ResourceSlice: devices that a driver publishes."""

    counts_generations = True
    returns_deleted = True

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def defaults(self, obj: Object) -> None:
        default_slice(obj.setdefault("spec", {}), rfc3339(self._registry.clock.now()))

    def validate(self, obj: Object) -> Errors:
        return slice_errors(obj["spec"], "spec")

    def validate_update(self, obj: Object, old: Object, subresource: str) -> Errors:
        return slice_update_errors(obj["spec"], old.get("spec") or {}, "spec")


class DeviceTaintRuleStrategy(Strategy):
    """DeviceTaintRule: a taint of all devices that a selector matches."""

    counts_generations = True
    returns_deleted = True

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def defaults(self, obj: Object) -> None:
        taint = obj.setdefault("spec", {}).setdefault("taint", {})
        if not taint.get("timeAdded"):
            taint["timeAdded"] = rfc3339(self._registry.clock.now())

    def admit(self, registry: Registry, resource: Resource, obj: Object) -> None:
        obj["status"] = {}

    def validate(self, obj: Object) -> Errors:
        selector = obj["spec"].get("deviceSelector") or {}
        field = "spec.deviceSelector"
        wrong: Errors = []
        if (driver := selector.get("driver")) is not None:
            wrong += driver_errors(driver, f"{field}.driver")
        if (pool := selector.get("pool")) is not None:
            wrong += pool_name_errors(pool, f"{field}.pool")
        if (device := selector.get("device")) is not None:
            wrong += label_name_errors(device, f"{field}.device")
        return wrong + taint_errors(obj["spec"]["taint"], "spec.taint")

    def validate_update(self, obj: Object, old: Object, subresource: str) -> Errors:
        if subresource != "status":
            return []
        return conditions_errors((obj.get("status") or {}).get("conditions") or [], "status.conditions")
