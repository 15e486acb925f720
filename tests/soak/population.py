"""What the soak puts into its cluster: nodes, tenants with quotas, and pods of many kinds."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

Object = dict[str, Any]

NODE_CPU, NODE_MEMORY, NODE_PODS = 8_000, 32_768, 64
"""Of every node: milli-CPU, MiB, pods."""

ZONES = ("zone-a", "zone-b", "zone-c")
TENANTS = 4
QUOTA_LABEL = "quota.scheduling.koordinator.sh/name"
FAIL = "koordsched.io/fail"
"""Annotation by which hollow nodes fail: "true" (silent) or "not-ready"."""

PRIORITIES = {"soak-low": 0, "soak-high": 1_000}

LIFETIME = 15.0
"""Mean seconds that a bound pod lives."""
PATIENCE = 30.0
"""Seconds after which a pod that could not be bound is given up by its owner."""
APPS = 40
"""Pods of one app are alike, as those of a Deployment are."""
_CPU, _MEMORY = (100, 250, 250, 500, 900), (64, 128, 512)
MEAN_CPU = 400
"""Mean milli-CPU of the pods below."""


class Kind(NamedTuple):
    """A kind of pod: how many of a thousand, and what becomes of it besides living for a while."""

    name: str
    share: int
    finishes: bool = False
    """Ends by itself and is cleared away later."""
    leaves_early: bool = False
    """Deleted at once, whether bound or not."""
    never_fits: bool = False
    gated: bool = False
    """Its gate is lifted a second after it was made."""


KINDS = (
    Kind("plain", 619),
    Kind("zonal", 80),
    Kind("spread", 60),
    Kind("apart", 30),
    Kind("unique", 80),
    Kind("finishes", 50, finishes=True),
    Kind("early", 30, leaves_early=True),
    Kind("high", 35),
    Kind("impossible", 5, never_fits=True),
    Kind("gated", 10, gated=True),
    Kind("large", 1),
)
_KINDS = [kind for kind in KINDS for _ in range(kind.share)]


class Planned(NamedTuple):
    """A pod that is to be made."""

    kind: Kind
    namespace: str
    name: str
    manifest: Object

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


def nodes_for(rate: float) -> int:
    """Nodes that are nine tenths full when so many pods come per second, and overfull after an outage; three at least.

    (An outage leaves pods to be made and others to be deleted: for a while some have to make room.)
    """
    return max(3, round(rate * LIFETIME * MEAN_CPU / NODE_CPU / 0.9))


def node(number: int) -> Object:
    """A hollow node; numbers are never used twice."""
    name = f"node-{number}"
    capacity = {"cpu": f"{NODE_CPU}m", "memory": f"{NODE_MEMORY}Mi", "pods": str(NODE_PODS)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": ZONES[number % len(ZONES)]},
            "annotations": {"koordsched.io/hollow": "true"},
        },
        "spec": {},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def quota_limit(rate: float) -> int:
    """Milli-CPU that the pods of one tenant may have at a time: a little more than they need in the mean."""
    return max(2_000, round(rate * LIFETIME * MEAN_CPU / TENANTS * 1.15))


def tenants(rate: float) -> list[tuple[str, Object]]:
    """(path of the collection, object): namespaces, quotas and priority classes."""
    objects: list[tuple[str, Object]] = [
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"kind": "PriorityClass", "metadata": {"name": name}, "value": value},
        )
        for name, value in PRIORITIES.items()
    ]
    for number in range(TENANTS):
        namespace = f"soak-{number}"
        objects.append(("/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": namespace}}))
        limit = quota_limit(rate)
        quota = {
            "kind": "ElasticQuota",
            "metadata": {"name": f"tenant-{number}", "namespace": namespace},
            "spec": {
                "min": {"cpu": f"{limit // 2}m", "memory": "1000Gi"},
                "max": {"cpu": f"{limit}m", "memory": "9000Gi"},
            },
        }
        objects.append((f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{namespace}/elasticquotas", quota))
    for path, thing in objects:
        version = path.removeprefix("/apis/").removeprefix("/api/").partition("/namespaces")[0]
        thing["apiVersion"] = version.removesuffix("/priorityclasses")
    return objects


MARK = "SoakMark"


def mark(number: int, namespace: str) -> Object:
    """An Event that says nothing but its number."""
    about = {"apiVersion": "v1", "kind": "Namespace", "name": namespace, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"mark-{number}", "namespace": namespace},
        "involvedObject": about,
        "reason": MARK,
        "type": "Normal",
    }


def pod(number: int, rng: Random) -> Planned:
    """The pod of this number."""
    kind = rng.choice(_KINDS)
    which = rng.randrange(APPS)
    app, tenant = f"app-{which}", which % TENANTS
    requests = {"cpu": f"{_CPU[which % len(_CPU)]}m", "memory": f"{_MEMORY[which % len(_MEMORY)]}Mi"}
    labels = {"app": app, QUOTA_LABEL: f"tenant-{tenant}"}
    annotations: dict[str, str] = {}
    spec: Object = {
        "containers": [{"name": "c", "image": f"registry.example.com/{app}:1", "resources": {"requests": requests}}],
        "priorityClassName": "soak-high" if kind.name == "high" else "soak-low",
        "terminationGracePeriodSeconds": rng.choice((0, 1)),
    }
    selector = {"labelSelector": {"matchLabels": {"app": app}}}
    match kind.name:
        case "zonal":
            spec["nodeSelector"] = {"topology.kubernetes.io/zone": rng.choice(ZONES)}
        case "spread":
            constraint = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", **selector}
            spec["topologySpreadConstraints"] = [{**constraint, "whenUnsatisfiable": "ScheduleAnyway"}]
        case "apart":
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"apart": app}}}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
            labels["apart"] = app
        case "unique":
            labels |= {"controller-uid": f"{rng.getrandbits(64):016x}", "pod-index": str(number)}
        case "finishes":
            annotations["koordsched.io/run-duration"] = f"{rng.uniform(1, LIFETIME):.1f}s"
            spec["restartPolicy"] = "Never"
        case "impossible":
            spec["nodeSelector"] = {"soak": "nowhere"}
        case "large":
            spec |= _nearly_a_megabyte(number)
        case "gated":
            spec["schedulingGates"] = [{"name": "example.com/soak"}]
    namespace, name = f"soak-{tenant}", f"{kind.name}-{number}"
    metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
    return Planned(kind, namespace, name, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def _nearly_a_megabyte(number: int) -> Object:
    """Part of a spec that no other pod has: tolerations, or terms with a selector of namespaces each."""
    if number % 2:
        return {"tolerations": [{"key": f"{number}-{i}-{'x' * 40}", "operator": "Exists"} for i in range(9_000)]}
    terms = [
        {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"apart": f"large-{number}"}},
            "namespaceSelector": {"matchLabels": {"team": f"{number}-{i}"}},
        }
        for i in range(4_500)
    ]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
