"""The columns of the built-in kinds (upstream: pkg/printers/internalversion/printers.go)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from koordsched.fakecluster.clock import parse_rfc3339
from koordsched.fakecluster.eventcolumns import EVENT_COLUMNS
from koordsched.fakecluster.podcolumns import POD_COLUMNS
from koordsched.fakecluster.resources import EVENTS, Object, path_reader
from koordsched.fakecluster.scale import selector_text
from koordsched.fakecluster.table import AGE, NAME, Cell, Column, human_duration, since

_NONE = "<none>"


def _path(path: str, default: Any = _NONE) -> Cell:
    read = path_reader(path)

    def cell(obj: Object, now: float) -> Any:
        return read(obj) or default

    return cell


def _number(path: str) -> Cell:
    keys = path.split(".")

    def cell(obj: Object, now: float) -> Any:
        value: Any = obj
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value or 0

    return cell


def _wide(name: str, cell: Cell) -> Column:
    return Column(name, cell, priority=1)


def _count(name: str, path: str) -> Column:
    return Column(name, _number(path), "integer")


def _spec(obj: Object) -> Object:
    return obj.get("spec") or {}


def _status(obj: Object) -> Object:
    return obj.get("status") or {}


def _joined(values: Iterable[Any]) -> str:
    return ",".join(str(v) for v in values) or _NONE


def _containers(key: str) -> Cell:
    def cell(obj: Object, now: float) -> Any:
        template = (
            _spec(obj).get("template") or (_spec(obj).get("jobTemplate") or {}).get("spec", {}).get("template") or {}
        )
        return _joined(c.get(key, "") for c in (template.get("spec") or {}).get("containers") or ())

    return cell


def _selector(obj: Object, now: float) -> Any:
    return selector_text(_spec(obj).get("selector")) or _NONE


_TEMPLATE = (
    _wide("Containers", _containers("name")),
    _wide("Images", _containers("image")),
    _wide("Selector", _selector),
)


def _of(ready: str, wanted: str) -> Cell:
    first, second = _number(ready), _number(wanted)
    return lambda obj, now: f"{first(obj, now)}/{second(obj, now)}"


# -- nodes


def _node_status(obj: Object, now: float) -> Any:
    ready = next((c for c in _status(obj).get("conditions") or () if c.get("type") == "Ready"), None)
    words = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if _spec(obj).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(obj: Object, now: float) -> Any:
    labels = obj["metadata"].get("labels") or {}
    prefix = "node-role.kubernetes.io/"
    roles = {k.removeprefix(prefix) for k in labels if k.startswith(prefix)}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    return _joined(sorted(roles))


def _node_address(kind: str) -> Cell:
    def cell(obj: Object, now: float) -> Any:
        addresses = _status(obj).get("addresses") or ()
        return next((a.get("address") for a in addresses if a.get("type") == kind), _NONE)

    return cell


_NODE = (
    NAME,
    Column("Status", _node_status),
    Column("Roles", _node_roles),
    AGE,
    Column("Version", _path("status.nodeInfo.kubeletVersion", "")),
    _wide("Internal-IP", _node_address("InternalIP")),
    _wide("External-IP", _node_address("ExternalIP")),
    _wide("OS-Image", _path("status.nodeInfo.osImage", "<unknown>")),
    _wide("Kernel-Version", _path("status.nodeInfo.kernelVersion", "<unknown>")),
    _wide("Container-Runtime", _path("status.nodeInfo.containerRuntimeVersion", "<unknown>")),
)

# -- workloads


def _job_status(obj: Object, now: float) -> Any:
    for condition in _status(obj).get("conditions") or ():
        if condition.get("status") == "True":
            kind = condition.get("type")
            if kind in ("Complete", "Failed", "Suspended"):
                return kind
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else "Running"


def _job_completions(obj: Object, now: float) -> Any:
    spec, done = _spec(obj), _status(obj).get("succeeded") or 0
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(obj: Object, now: float) -> Any:
    started, ended = _status(obj).get("startTime"), _status(obj).get("completionTime")
    if not started:
        return ""
    return human_duration((parse_rfc3339(ended) if ended else now) - parse_rfc3339(started))


def _last_scheduled(obj: Object, now: float) -> Any:
    last = _status(obj).get("lastScheduleTime")
    return since(last, now) if last else _NONE


def _node_selector(obj: Object, now: float) -> Any:
    template = (_spec(obj).get("template") or {}).get("spec") or {}
    return selector_text(template.get("nodeSelector") or {}) or _NONE


# -- services and storage


def _ports(obj: Object, now: float) -> Any:
    def text(port: Object) -> str:
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        return f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}"

    return _joined(text(p) for p in _spec(obj).get("ports") or ())


_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(obj: Object, now: float) -> Any:
    return ",".join(_MODES.get(m, m) for m in _spec(obj).get("accessModes") or ())


def _claim(obj: Object, now: float) -> Any:
    claim = _spec(obj).get("claimRef")
    return f"{claim.get('namespace')}/{claim.get('name')}" if claim else ""


def _default_marked(obj: Object, now: float) -> Any:
    annotations = obj["metadata"].get("annotations") or {}
    default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return f"{obj['metadata']['name']} (default)" if default else obj["metadata"]["name"]


# -- the rest


def _length(*keys: str) -> Cell:
    return lambda obj, now: sum(len(obj.get(key) or ()) for key in keys)


def _disruptions(key: str) -> Cell:
    def cell(obj: Object, now: float) -> Any:
        value = _spec(obj).get(key)
        return "N/A" if value is None else str(value)

    return cell


def _role_reference(obj: Object, now: float) -> Any:
    reference = obj.get("roleRef") or {}
    return f"{reference.get('kind')}/{reference.get('name')}"


def _subjects(kind: str) -> Cell:
    def cell(obj: Object, now: float) -> Any:
        found = [s for s in obj.get("subjects") or () if s.get("kind") == kind]
        return ", ".join(f"{s['namespace']}/{s['name']}" if s.get("namespace") else s["name"] for s in found)

    return cell


def _endpoints(obj: Object, now: float) -> Any:
    return _joined(
        f"{a.get('ip')}:{p.get('port')}"
        for subset in obj.get("subsets") or ()
        for p in subset.get("ports") or [{"port": ""}]
        for a in subset.get("addresses") or ()
    )


def _controller(obj: Object, now: float) -> Any:
    owners = obj["metadata"].get("ownerReferences") or ()
    return _joined(f"{str(o.get('kind')).lower()}/{o.get('name')}" for o in owners if o.get("controller"))


# -- devices


def _claim_state(obj: Object, now: float) -> Any:
    deleted, status = bool(obj["metadata"].get("deletionTimestamp")), _status(obj)
    states = ["deleted"] if deleted else []
    if status.get("allocation") is not None:
        states += ["allocated", "reserved"] if status.get("reservedFor") else ["allocated"]
    elif not deleted:
        states.append("pending")
    return ",".join(states)


_BINDING = (
    NAME,
    Column("Role", _role_reference),
    AGE,
    _wide("Users", _subjects("User")),
    _wide("Groups", _subjects("Group")),
    _wide("ServiceAccounts", _subjects("ServiceAccount")),
)
_CREATED = (NAME, Column("Created At", _path("metadata.creationTimestamp"), format="date-time"))
_RBAC = "rbac.authorization.k8s.io"

COLUMNS: dict[str, tuple[Column, ...]] = {
    "/pods": POD_COLUMNS,
    "/nodes": _NODE,
    "/namespaces": (NAME, Column("Status", _path("status.phase")), AGE),
    "/configmaps": (NAME, Column("Data", _length("data", "binaryData")), AGE),
    "/secrets": (NAME, Column("Type", _path("type")), Column("Data", _length("data"), "integer"), AGE),
    "/serviceaccounts": (NAME, Column("Secrets", _length("secrets"), "integer"), AGE),
    "/services": (
        NAME,
        Column("Type", _path("spec.type")),
        Column("Cluster-IP", _path("spec.clusterIP")),
        Column("External-IP", lambda obj, now: _joined(_spec(obj).get("externalIPs") or ())),
        Column("Port(s)", _ports),
        AGE,
        _wide("Selector", _selector),
    ),
    "/endpoints": (NAME, Column("Endpoints", _endpoints), AGE),
    "/limitranges": (NAME, Column("Created At", _path("metadata.creationTimestamp"))),
    "/persistentvolumeclaims": (
        NAME,
        Column("Status", _path("status.phase")),
        Column("Volume", _path("spec.volumeName", "")),
        Column("Capacity", _path("status.capacity.storage", "")),
        Column("Access Modes", _modes),
        Column("StorageClass", _path("spec.storageClassName", "")),
        Column("VolumeAttributesClass", _path("spec.volumeAttributesClassName", "<unset>")),
        AGE,
        _wide("VolumeMode", _path("spec.volumeMode", "<unset>")),
    ),
    "/persistentvolumes": (
        NAME,
        Column("Capacity", _path("spec.capacity.storage", "")),
        Column("Access Modes", _modes),
        Column("Reclaim Policy", _path("spec.persistentVolumeReclaimPolicy", "")),
        Column("Status", _path("status.phase", "")),
        Column("Claim", _claim),
        Column("StorageClass", _path("spec.storageClassName", "")),
        Column("VolumeAttributesClass", _path("spec.volumeAttributesClassName", "<unset>")),
        Column("Reason", _path("status.reason", "")),
        AGE,
        _wide("VolumeMode", _path("spec.volumeMode", "<unset>")),
    ),
    "/replicationcontrollers": (
        NAME,
        _count("Desired", "spec.replicas"),
        _count("Current", "status.replicas"),
        _count("Ready", "status.readyReplicas"),
        AGE,
        *_TEMPLATE,
    ),
    EVENTS: EVENT_COLUMNS,
    "apps/deployments": (
        NAME,
        Column("Ready", _of("status.readyReplicas", "spec.replicas")),
        _count("Up-to-date", "status.updatedReplicas"),
        _count("Available", "status.availableReplicas"),
        AGE,
        *_TEMPLATE,
    ),
    "apps/replicasets": (
        NAME,
        _count("Desired", "spec.replicas"),
        _count("Current", "status.replicas"),
        _count("Ready", "status.readyReplicas"),
        AGE,
        *_TEMPLATE,
    ),
    "apps/statefulsets": (NAME, Column("Ready", _of("status.readyReplicas", "spec.replicas")), AGE, *_TEMPLATE[:2]),
    "apps/daemonsets": (
        NAME,
        _count("Desired", "status.desiredNumberScheduled"),
        _count("Current", "status.currentNumberScheduled"),
        _count("Ready", "status.numberReady"),
        _count("Up-to-date", "status.updatedNumberScheduled"),
        _count("Available", "status.numberAvailable"),
        Column("Node Selector", _node_selector),
        AGE,
        *_TEMPLATE,
    ),
    "apps/controllerrevisions": (
        NAME,
        Column("Controller", _controller),
        _count("Revision", "revision"),
        AGE,
    ),
    "batch/jobs": (
        NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        AGE,
        *_TEMPLATE,
    ),
    "batch/cronjobs": (
        NAME,
        Column("Schedule", _path("spec.schedule")),
        Column("Timezone", _path("spec.timeZone")),
        Column("Suspend", lambda obj, now: "True" if _spec(obj).get("suspend") else "False"),
        Column("Active", lambda obj, now: len(_status(obj).get("active") or ()), "integer"),
        Column("Last Schedule", _last_scheduled),
        AGE,
        *_TEMPLATE[:2],
    ),
    "policy/poddisruptionbudgets": (
        NAME,
        Column("Min Available", _disruptions("minAvailable")),
        Column("Max Unavailable", _disruptions("maxUnavailable")),
        _count("Allowed Disruptions", "status.disruptionsAllowed"),
        AGE,
    ),
    "scheduling.k8s.io/priorityclasses": (
        NAME,
        Column("Value", _number("value"), "integer"),
        Column("Global-Default", lambda obj, now: bool(obj.get("globalDefault")), "boolean"),
        AGE,
        _wide("PreemptionPolicy", _path("preemptionPolicy", "")),
    ),
    "storage.k8s.io/storageclasses": (
        Column("Name", _default_marked, format="name"),
        Column("Provisioner", _path("provisioner", "")),
        Column("ReclaimPolicy", _path("reclaimPolicy", "Delete")),
        Column("VolumeBindingMode", _path("volumeBindingMode", "Immediate")),
        Column("AllowVolumeExpansion", lambda obj, now: bool(obj.get("allowVolumeExpansion"))),
        AGE,
    ),
    "resource.k8s.io/resourceclaims": (NAME, Column("State", _claim_state), AGE),
    "resource.k8s.io/resourceslices": (
        NAME,
        Column("Node", _path("spec.nodeName", "<unset>")),
        Column("Driver", _path("spec.driver", "")),
        Column("Pool", _path("spec.pool.name", "")),
        AGE,
    ),
    "coordination.k8s.io/leases": (NAME, Column("Holder", _path("spec.holderIdentity", "")), AGE),
    "apiextensions.k8s.io/customresourcedefinitions": _CREATED,
    f"{_RBAC}/roles": _CREATED,
    f"{_RBAC}/clusterroles": _CREATED,
    f"{_RBAC}/rolebindings": _BINDING,
    f"{_RBAC}/clusterrolebindings": _BINDING,
}  # fmt: skip
