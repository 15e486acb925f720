"""Strategies of the built-in kinds other than pods."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from koordsched.fakecluster import defaults, names
from koordsched.fakecluster.admission.devices import PodWebhook
from koordsched.fakecluster.admission.limitranges import LimitRangeStrategy
from koordsched.fakecluster.admission.pods import PodStrategy
from koordsched.fakecluster.admission.priority import SYSTEM_CLASSES, PriorityClassStrategy
from koordsched.fakecluster.admission.quota import QuotaAdmission, ResourceQuotaStrategy
from koordsched.fakecluster.crds import CrdStrategy
from koordsched.fakecluster.deviceapi import device_strategies
from koordsched.fakecluster.errors import FieldError, forbidden_field, invalid_value, not_supported, required
from koordsched.fakecluster.podupdate import template_selector_errors
from koordsched.fakecluster.podvalidation import pod_spec_errors, selector_errors
from koordsched.fakecluster.quantities import canonicalize
from koordsched.fakecluster.registry import Registry
from koordsched.fakecluster.resources import EVENTS, Resource
from koordsched.fakecluster.services import ServiceStrategy
from koordsched.fakecluster.strategy import Strategy

Object = dict[str, Any]

_IMMUTABLE = "field is immutable"


class CountedStrategy(Strategy):
    """A kind whose generations are counted, and nothing else."""

    counts_generations = True


class NodeStrategy(Strategy):
    """core/v1 Node: allocatable is the capacity where it is not said."""

    def defaults(self, obj: Object) -> None:
        obj.setdefault("spec", {})
        status = obj.get("status") or {}
        if status.get("capacity"):
            # Never in place: an update may share its parts with the stored version.
            allocatable = dict(status.get("allocatable") or {})
            for name, quantity in status["capacity"].items():
                allocatable.setdefault(name, quantity)
            obj["status"] = {**status, "capacity": dict(status["capacity"]), "allocatable": allocatable}

    def validate(self, obj: Object) -> list[FieldError]:
        wrong: list[FieldError] = []
        for i, taint in enumerate(obj["spec"].get("taints") or ()):
            field = f"spec.taints[{i}]"
            if not taint.get("key"):
                wrong.append(required(f"{field}.key"))
            elif (text := names.qualified_name_error(taint["key"])) is not None:
                wrong.append(invalid_value(f"{field}.key", taint["key"], text))
            if taint.get("value") and (text := names.label_value_error(taint["value"])) is not None:
                wrong.append(invalid_value(f"{field}.value", taint["value"], text))
            effects = ("NoExecute", "NoSchedule", "PreferNoSchedule")
            if taint.get("effect") not in effects:
                wrong.append(not_supported(f"{field}.effect", taint.get("effect"), effects))
        status = obj.get("status") or {}
        for kind in ("capacity", "allocatable"):
            wrong += canonicalize(status.get(kind), f"status.{kind}")
        return wrong

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[FieldError]:
        provider = (old.get("spec") or {}).get("providerID")
        if provider and (obj.get("spec") or {}).get("providerID") != provider:
            return [
                forbidden_field("spec.providerID", 'node updates may not change providerID except from "" to valid')
            ]
        return []


class NamespaceStrategy(Strategy):
    """core/v1 Namespace: named in its own label, and kept until the namespace controller has emptied it."""

    _finalizer = "kubernetes"

    def defaults(self, obj: Object) -> None:
        labels = dict(obj["metadata"].get("labels") or {})
        labels["kubernetes.io/metadata.name"] = str(obj["metadata"].get("name") or "")
        obj["metadata"]["labels"] = labels

    def admit(self, registry: Registry, resource: Resource, obj: Object) -> None:
        obj["spec"] = {"finalizers": [self._finalizer]}
        obj["status"] = {"phase": "Active"}

    def prepare_update(self, registry: Registry, obj: Object, old: Object, subresource: str) -> None:
        if subresource == "delete":
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        elif subresource != "finalize":
            obj["spec"] = old.get("spec") or {}

    def name_error(self, name: str) -> str | None:
        return names.label_error(name)

    def deletion_blocked(self, obj: Object) -> bool:
        return bool((obj.get("spec") or {}).get("finalizers"))


class WorkloadStrategy(Strategy):
    """A kind with a pod template. `fixed` fields of the spec cannot be changed; `fill` sets the spec's defaults."""

    counts_generations = True

    def __init__(self, fill: Callable[[Object], None], *fixed: str, selects: str = "") -> None:
        self._fill = fill
        self._fixed = fixed
        self._selects = selects

    def defaults(self, obj: Object) -> None:
        self._fill(obj.setdefault("spec", {}))
        obj.setdefault("status", {})

    def admit(self, registry: Registry, resource: Resource, obj: Object) -> None:
        obj["status"] = {}

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        wrong: list[FieldError] = []
        replicas = spec.get("replicas")
        if replicas is not None and replicas < 0:
            wrong.append(invalid_value("spec.replicas", replicas, "must be greater than or equal to 0"))
        if self._selects:
            wrong += template_selector_errors(spec, self._selects)
        template = spec.get("template")
        if template is None:
            if self._selects:
                wrong.append(required("spec.template"))
            return wrong
        wrong += names.label_errors((template.get("metadata") or {}).get("labels"), "spec.template.labels")
        wrong += pod_spec_errors(template.get("spec") or {}, "spec.template.spec")
        return wrong

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[FieldError]:
        spec, before = obj["spec"], old.get("spec") or {}
        return [
            invalid_value(f"spec.{name}", spec.get(name), _IMMUTABLE)
            for name in self._fixed
            if spec.get(name) != before.get(name)
        ]


class JobStrategy(WorkloadStrategy):
    """batch/v1 Job: selector and template labels are made from the uid unless the user insists on his own."""

    def __init__(self) -> None:
        super().__init__(defaults.default_job, "selector", "completions", "completionMode")

    def admit(self, registry: Registry, resource: Resource, obj: Object) -> None:
        super().admit(registry, resource, obj)
        spec, meta = obj["spec"], obj["metadata"]
        if spec.get("manualSelector"):
            return
        uid, name = meta["uid"], str(meta.get("name") or "")
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        template = spec.setdefault("template", {}).setdefault("metadata", {})
        template["labels"] = {
            **(template.get("labels") or {}),
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }

    def validate(self, obj: Object) -> list[FieldError]:
        wrong = super().validate(obj)
        spec = obj["spec"]
        if ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy") == "Always":
            path = "spec.template.spec.restartPolicy"
            wrong.append(FieldError(path, "FieldValueRequired", 'Required value: valid values: "OnFailure", "Never"'))
        if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
            wrong.append(required("spec.completions", "when completion mode is Indexed"))
        for name in ("completions", "parallelism", "backoffLimit"):
            if (spec.get(name) or 0) < 0:
                wrong.append(invalid_value(f"spec.{name}", spec[name], "must be greater than or equal to 0"))
        return wrong

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[FieldError]:
        wrong = super().validate_update(obj, old, subresource)
        spec = obj["spec"]
        if spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism"):
            # An elastic indexed job may change completions and parallelism together.
            wrong = [e for e in wrong if e.field != "spec.completions"]
        template = obj["spec"].get("template")
        if template != (old.get("spec") or {}).get("template") and not (old.get("spec") or {}).get("suspend"):
            wrong.append(invalid_value("spec.template", template, _IMMUTABLE))
        return wrong


class CronJobStrategy(WorkloadStrategy):
    """batch/v1 CronJob."""

    def __init__(self) -> None:
        super().__init__(defaults.default_cron_job)

    def validate(self, obj: Object) -> list[FieldError]:
        return [] if obj["spec"].get("schedule") else [required("spec.schedule")]


class BudgetStrategy(Strategy):
    """policy/v1 PodDisruptionBudget."""

    counts_generations = True

    def admit(self, registry: Registry, resource: Resource, obj: Object) -> None:
        obj.setdefault("spec", {})
        zeros = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
        obj["status"] = dict.fromkeys(zeros, 0)

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        wrong: list[FieldError] = []
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            wrong.append(invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
        for name in ("minAvailable", "maxUnavailable"):
            value = spec.get(name)
            if isinstance(value, str) and not (value.endswith("%") and value[:-1].isdigit()):
                text = (
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%')"
                )
                wrong.append(invalid_value(f"spec.{name}", value, text))
            elif isinstance(value, int) and value < 0:
                wrong.append(invalid_value(f"spec.{name}", value, "must be greater than or equal to 0"))
        if spec.get("selector"):
            selector_errors(spec["selector"], "spec.selector", wrong)
        return wrong


class ClaimStrategy(Strategy):
    """core/v1 PersistentVolumeClaim: pending at first, protected while it exists."""

    returns_deleted = True

    def defaults(self, obj: Object) -> None:
        obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")

    def admit(self, registry: Registry, resource: Resource, obj: Object) -> None:
        obj["status"] = {"phase": "Pending"}
        if obj["spec"].get("storageClassName") is None and not obj["spec"].get("volumeName"):
            classes = registry.resource("storage.k8s.io", "v1", "storageclasses")
            for record in registry.scan(classes):
                annotations = record.obj()["metadata"].get("annotations") or {}
                if annotations.get("storageclass.kubernetes.io/is-default-class") == "true":
                    obj["spec"]["storageClassName"] = record.name

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        wrong: list[FieldError] = []
        if not spec.get("accessModes"):
            wrong.append(required("spec.accessModes", "at least 1 access mode is required"))
        requests = (spec.get("resources") or {}).get("requests") or {}
        if "storage" not in requests:
            wrong.append(required("spec.resources[storage]"))
        return wrong + canonicalize(requests, "spec.resources.requests")


class VolumeStrategy(Strategy):
    """core/v1 PersistentVolume."""

    def defaults(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("volumeMode", "Filesystem")
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")

    def admit(self, registry: Registry, resource: Resource, obj: Object) -> None:
        obj["status"] = {"phase": "Available"}

    def validate(self, obj: Object) -> list[FieldError]:
        capacity = obj["spec"].get("capacity")
        wrong = canonicalize(capacity, "spec.capacity")
        if not capacity or "storage" not in capacity:
            wrong.append(required("spec.capacity"))
        return wrong


class StorageClassStrategy(Strategy):
    """storage.k8s.io/v1 StorageClass."""

    def defaults(self, obj: Object) -> None:
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")

    def validate(self, obj: Object) -> list[FieldError]:
        return [] if obj.get("provisioner") else [required("provisioner")]


class RbacStrategy(Strategy):
    """rbac.authorization.k8s.io/v1: any name that fits a path; the role of a binding is fixed."""

    def name_error(self, name: str) -> str | None:
        return names.path_segment_error(name)

    def defaults(self, obj: Object) -> None:
        if reference := obj.get("roleRef"):
            reference.setdefault("apiGroup", "rbac.authorization.k8s.io")
        for subject in obj.get("subjects") or ():
            if subject.get("kind") in ("User", "Group"):
                subject.setdefault("apiGroup", "rbac.authorization.k8s.io")

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[FieldError]:
        if obj.get("roleRef") != old.get("roleRef"):
            return [invalid_value("roleRef", obj.get("roleRef"), "cannot change roleRef")]
        return []


class SecretStrategy(Strategy):
    """core/v1 Secret: stringData becomes data."""

    def defaults(self, obj: Object) -> None:
        import base64

        plain = obj.pop("stringData", None)
        if plain:
            data = dict(obj.get("data") or {})
            data.update((k, base64.b64encode(v.encode()).decode()) for k, v in plain.items())
            obj["data"] = data
        obj.setdefault("type", "Opaque")


class LeaseStrategy(Strategy):
    """coordination.k8s.io/v1 Lease."""

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        duration = spec.get("leaseDurationSeconds")
        if duration is not None and duration <= 0:
            return [invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0")]
        return []


_RBAC = "rbac.authorization.k8s.io"


def install(registry: Registry, webhooks: Collection[PodWebhook] = ()) -> None:
    """Give every built-in kind its strategy; with these webhooks for pods."""
    quotas = QuotaAdmission(registry)
    registry.strategies |= {
        "/pods": PodStrategy(registry, quotas, webhooks),
        "/nodes": NodeStrategy(),
        "/namespaces": NamespaceStrategy(),
        "/limitranges": LimitRangeStrategy(),
        "/resourcequotas": ResourceQuotaStrategy(),
        "/services": ServiceStrategy(registry),
        "/secrets": SecretStrategy(),
        "/persistentvolumeclaims": ClaimStrategy(),
        "/persistentvolumes": VolumeStrategy(),
        EVENTS: Strategy(),
        "apps/deployments": WorkloadStrategy(defaults.default_deployment, "selector", selects="deployment"),
        "apps/replicasets": WorkloadStrategy(defaults.default_replica_set, "selector", selects="ReplicaSet"),
        "apps/statefulsets": WorkloadStrategy(
            defaults.default_stateful_set, "selector", "serviceName", "podManagementPolicy", selects="StatefulSet"
        ),
        "apps/daemonsets": WorkloadStrategy(defaults.default_daemon_set, "selector", selects="DaemonSet"),
        "batch/jobs": JobStrategy(),
        "batch/cronjobs": CronJobStrategy(),
        "policy/poddisruptionbudgets": BudgetStrategy(),
        "scheduling.k8s.io/priorityclasses": PriorityClassStrategy(),
        "storage.k8s.io/storageclasses": StorageClassStrategy(),
        "coordination.k8s.io/leases": LeaseStrategy(),
        **device_strategies(registry, quotas),
        "networking.k8s.io/networkpolicies": CountedStrategy(),
        "networking.k8s.io/ingresses": CountedStrategy(),
        f"{_RBAC}/roles": RbacStrategy(),
        f"{_RBAC}/clusterroles": RbacStrategy(),
        f"{_RBAC}/rolebindings": RbacStrategy(),
        f"{_RBAC}/clusterrolebindings": RbacStrategy(),
        "apiextensions.k8s.io/customresourcedefinitions": CrdStrategy(registry),
    }


def bootstrap(registry: Registry) -> None:
    """Creates what every new cluster has; existing objects are not changed."""
    namespaces = registry.resource("", "v1", "namespaces")
    for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
        if registry.peek(namespaces, None, name) is None:
            registry.create(namespaces, None, {"metadata": {"name": name}})
    classes = registry.resource("scheduling.k8s.io", "v1", "priorityclasses")
    for name, value in SYSTEM_CLASSES.items():
        if registry.peek(classes, None, name) is None:
            description = "Used for system critical pods that must run in the cluster."
            registry.create(classes, None, {"metadata": {"name": name}, "value": value, "description": description})
    services = registry.resource("", "v1", "services")
    if registry.peek(services, "default", "kubernetes") is None:
        port = {"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}
        labels = {"component": "apiserver", "provider": "kubernetes"}
        body = {"metadata": {"name": "kubernetes", "labels": labels}, "spec": {"ports": [port]}}
        registry.create(services, "default", body)
