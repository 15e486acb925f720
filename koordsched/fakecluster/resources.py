"""What is served: the description of a resource, and the table of the built-in ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
FieldReader = Callable[[Object], str]
"""Reads a selectable field as the text that a field selector is compared with."""
FieldsReader = Callable[[Object], tuple[str, ...]]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CREATE_ONLY = ("create",)


@dataclass(slots=True, eq=False)
class Resource:
    """A resource in one API version. Versions of one resource share `storage`."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    verbs: tuple[str, ...] = ALL_VERBS
    storage: str = ""
    """Key of the collection; `group/plural` unless shared with another group."""
    rules: str = ""
    """Key of the strategy; `storage` unless each version has its own."""
    definition: str = ""
    """Name of the OpenAPI definition of the kind; empty when the kind is not described there."""
    fields: tuple[tuple[str, FieldReader], ...] = ()
    """Selectable fields besides metadata.name and metadata.namespace."""
    fields_reader: FieldsReader | None = None
    """Reads all of `fields` at once, where that pays."""
    storage_version: str = ""
    """The apiVersion objects are stored under; conversion happens where it differs from `api_version`."""
    to_storage: Callable[[Object], Object] | None = None
    from_storage: Callable[[Object], Object] | None = None
    seals_spec: bool = False
    """New objects come with a pre-encoded spec; the strategy leaves one that is complete."""
    custom: bool = False
    """Defined by a CustomResourceDefinition."""

    # Derived once; read on every request.
    api_version: str = ""
    qualified: str = ""
    """`plural.group`, as error messages name it."""

    def __post_init__(self) -> None:
        self.api_version = f"{self.group}/{self.version}" if self.group else self.version
        self.qualified = f"{self.plural}.{self.group}" if self.group else self.plural
        self.singular = self.singular or self.kind.lower()
        self.list_kind = self.list_kind or self.kind + "List"
        self.storage = self.storage or f"{self.group}/{self.plural}"
        self.rules = self.rules or self.storage
        self.storage_version = self.storage_version or self.api_version

    def read_fields(self, obj: Object) -> tuple[str, ...]:
        """The values of the selectable fields."""
        if self.fields_reader is not None:
            return self.fields_reader(obj)
        return tuple([read(obj) for _, read in self.fields])

    @property
    def converted(self) -> bool:
        """Stored under another apiVersion than served."""
        return self.storage_version != self.api_version


def path_reader(path: str, default: str = "") -> FieldReader:
    """A reader of a dotted path; booleans read `true`/`false`, absent values read `default`."""
    keys = tuple(path.split("."))
    if len(keys) == 2:
        return _pair_reader(keys[0], keys[1], default)

    def read(obj: Object) -> str:
        value: Any = obj
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
            if value is None:
                return default
        if value is True:
            return "true"
        if value is False:
            return "false"
        return str(value)

    return read


def _pair_reader(part: str, key: str, default: str) -> FieldReader:
    """As `path_reader` for two keys, the common case: it runs for every field at every write."""

    def read(obj: Object) -> str:
        value = (obj.get(part) or {}).get(key)
        if value is None:
            return default
        if value.__class__ is str:
            return value
        return "true" if value is True else "false" if value is False else str(value)

    return read


def _fields(*paths: str, **defaults: str) -> tuple[tuple[str, FieldReader], ...]:
    named = {k.replace("__", "."): v for k, v in defaults.items()}
    return tuple((p, path_reader(p, named.get(p, ""))) for p in paths)


def _pod_ips(pod: Object) -> str:
    ips = (pod.get("status") or {}).get("podIPs") or ()
    return ",".join(str(ip.get("ip", "")) for ip in ips)


def _event_source(event: Object) -> str:
    source = event.get("source") or {}
    return str(source.get("component") or event.get("reportingComponent") or "")


_POD_FIELDS = (
    *_fields("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
    ("spec.hostNetwork", path_reader("spec.hostNetwork", "false")),
    *_fields("status.phase", "status.podIP"),
    ("status.podIPs", _pod_ips),
    *_fields("status.nominatedNodeName"),
)


def _read_pod_fields(pod: Object) -> tuple[str, ...]:
    """`_POD_FIELDS` in one go: it runs at every write of a pod. Their types have been checked, but for absence."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return (
        spec.get("nodeName") or "",
        spec.get("restartPolicy") or "",
        spec.get("schedulerName") or "",
        spec.get("serviceAccountName") or "",
        "true" if spec.get("hostNetwork") else "false",
        status.get("phase") or "",
        status.get("podIP") or "",
        _pod_ips(pod) if "podIPs" in status else "",
        status.get("nominatedNodeName") or "",
    )


_EVENT_FIELDS = (
    *_fields(
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
    ),
    ("source", _event_source),
    *_fields("type"),
)

STATUS = frozenset({"status"})
SCALED = frozenset({"status", "scale"})
NONE: frozenset[str] = frozenset()
EVENTS = "/events"
"""Storage key of events, which core/v1 and events.k8s.io/v1 share."""


def events_v1_to_core(event: Object) -> Object:
    """An events.k8s.io/v1 Event in its core/v1 form (upstream: pkg/apis/core/v1, conversion)."""
    out = dict(event)
    out["apiVersion"], out["kind"] = "v1", "Event"
    for new, old in _EVENT_RENAMES:
        if new in out:
            out[old] = out.pop(new)
    return out


def events_v1_from_core(event: Object) -> Object:
    """The events.k8s.io/v1 form of a stored Event."""
    out = dict(event)
    out["apiVersion"], out["kind"] = "events.k8s.io/v1", "Event"
    for new, old in _EVENT_RENAMES:
        if old in out:
            out[new] = out.pop(old)
    return out


_EVENT_RENAMES = (
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
)


def _kind(
    group: str,
    version: str,
    plural: str,
    kind: str,
    namespaced: bool,
    subresources: frozenset[str] = NONE,
    short: str = "",
    categories: str = "",
    package: str = "",
    verbs: tuple[str, ...] = ALL_VERBS,
    fields: tuple[tuple[str, FieldReader], ...] = (),
    **extra: Any,
) -> Resource:
    package = package or f"io.k8s.api.{group.split('.')[0] or 'core'}.{version}"
    return Resource(
        group=group,
        version=version,
        plural=plural,
        kind=kind,
        namespaced=namespaced,
        subresources=subresources,
        short_names=tuple(short.split()),
        categories=tuple(categories.split()),
        verbs=verbs,
        definition=f"{package}.{kind}",
        fields=fields,
        **extra,
    )


def builtin_resources() -> list[Resource]:
    """A fresh table of every built-in resource."""
    review = CREATE_ONLY
    return [
        _kind("", "v1", "bindings", "Binding", True, verbs=review),
        _kind("", "v1", "componentstatuses", "ComponentStatus", False, short="cs", verbs=("get", "list")),
        _kind("", "v1", "configmaps", "ConfigMap", True, short="cm"),
        _kind("", "v1", "endpoints", "Endpoints", True, short="ep"),
        _kind("", "v1", "events", "Event", True, short="ev", fields=_EVENT_FIELDS, storage=EVENTS),
        _kind("", "v1", "limitranges", "LimitRange", True, short="limits"),
        _kind(
            "",
            "v1",
            "namespaces",
            "Namespace",
            False,
            frozenset({"status", "finalize"}),
            "ns",
            fields=_fields("status.phase"),
        ),
        _kind(
            "",
            "v1",
            "nodes",
            "Node",
            False,
            frozenset({"status", "proxy"}),
            "no",
            fields=(("spec.unschedulable", path_reader("spec.unschedulable", "false")),),
        ),
        _kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, STATUS, "pvc"),
        _kind("", "v1", "persistentvolumes", "PersistentVolume", False, STATUS, "pv"),
        _kind(
            "",
            "v1",
            "pods",
            "Pod",
            True,
            frozenset(
                {
                    "status",
                    "binding",
                    "eviction",
                    "log",
                    "exec",
                    "attach",
                    "portforward",
                    "ephemeralcontainers",
                    "resize",
                }
            ),
            "po",
            "all",
            fields=_POD_FIELDS,
            fields_reader=_read_pod_fields,
            seals_spec=True,
        ),
        _kind("", "v1", "podtemplates", "PodTemplate", True),
        _kind(
            "",
            "v1",
            "replicationcontrollers",
            "ReplicationController",
            True,
            SCALED,
            "rc",
            "all",
            fields=(("status.replicas", path_reader("status.replicas", "0")),),
        ),
        _kind("", "v1", "resourcequotas", "ResourceQuota", True, STATUS, "quota"),
        _kind("", "v1", "secrets", "Secret", True, fields=_fields("type")),
        _kind("", "v1", "serviceaccounts", "ServiceAccount", True, frozenset({"token"}), "sa"),
        _kind(
            "", "v1", "services", "Service", True, STATUS, "svc", "all", fields=_fields("spec.clusterIP", "spec.type")
        ),
        _kind("apps", "v1", "controllerrevisions", "ControllerRevision", True),
        _kind("apps", "v1", "daemonsets", "DaemonSet", True, STATUS, "ds", "all"),
        _kind("apps", "v1", "deployments", "Deployment", True, SCALED, "deploy", "all"),
        _kind(
            "apps",
            "v1",
            "replicasets",
            "ReplicaSet",
            True,
            SCALED,
            "rs",
            "all",
            fields=(("status.replicas", path_reader("status.replicas", "0")),),
        ),
        _kind("apps", "v1", "statefulsets", "StatefulSet", True, SCALED, "sts", "all"),
        _kind("batch", "v1", "cronjobs", "CronJob", True, STATUS, "cj", "all"),
        _kind(
            "batch",
            "v1",
            "jobs",
            "Job",
            True,
            STATUS,
            "",
            "all",
            fields=(("status.successful", path_reader("status.succeeded", "0")),),
        ),
        _kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, STATUS, "pdb"),
        _kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, short="pc"),
        _kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False),
        _kind("storage.k8s.io", "v1", "csinodes", "CSINode", False),
        _kind("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", True),
        _kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, short="sc"),
        _kind("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False, STATUS),
        _kind("storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", False, short="vac"),
        _kind("coordination.k8s.io", "v1", "leases", "Lease", True),
        _kind(
            "events.k8s.io",
            "v1",
            "events",
            "Event",
            True,
            short="ev",
            fields=_EVENT_FIELDS,
            storage=EVENTS,
            storage_version="v1",
            to_storage=events_v1_to_core,
            from_storage=events_v1_from_core,
        ),
        _kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True),
        _kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", True, short="netpol"),
        _kind("networking.k8s.io", "v1", "ingresses", "Ingress", True, STATUS, "ing"),
        _kind("networking.k8s.io", "v1", "ingressclasses", "IngressClass", False),
        _kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False),
        _kind("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False),
        _kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False),
        _kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True),
        _kind("rbac.authorization.k8s.io", "v1", "roles", "Role", True),
        _kind("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False),
        _kind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, STATUS),
        _kind("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True),
        _kind(
            "resource.k8s.io",
            "v1",
            "resourceslices",
            "ResourceSlice",
            False,
            fields=_fields("spec.nodeName", "spec.driver"),
        ),
        _kind("resource.k8s.io", "v1beta2", "devicetaintrules", "DeviceTaintRule", False, STATUS),
        _kind(
            "apiextensions.k8s.io",
            "v1",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            False,
            STATUS,
            "crd crds",
            "api-extensions",
            package="io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
        ),
        _kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False, verbs=review),
        _kind("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False, verbs=review),
        _kind("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False, verbs=review),
        _kind("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False, verbs=review),
        _kind("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", False, verbs=review),
        _kind(
            "authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", True, verbs=review
        ),
    ]
