"""Pods of workloads, for input that has the workloads but not their pods.

It is what the controllers of a cluster would create in the end, all at once: nothing runs, so the first pod of a
StatefulSet would never become ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from koordsched.api.meta import OwnerReference
from koordsched.fakecluster.controllers.daemonplacement import DaemonPlacement, daemon_tolerations, pin_to_node
from koordsched.fakecluster.controllers.nodes import NodeRecord
from koordsched.fakecluster.controllers.podtemplate import PodFactory, template_hash
from koordsched.plugins.shared.workloads import TEMPLATE_HASH, workload_by

Object = dict[str, Any]
Owner = tuple[str, str, str]
"""(namespace, kind, name)"""

MOST_PODS = 1_000_000
"""Pods of one workload: more do not fit into memory."""


class TooManyPods(ValueError):
    """A workload asks for more pods than can be simulated; the message says how many."""


def owners_with_pods(pods: Iterable[Object]) -> set[Owner]:
    """Every workload that one of the pods belongs to; a Deployment too, by the name its ReplicaSets get."""
    found: set[Owner] = set()
    for pod in pods:
        meta = pod["metadata"]
        namespace = meta.get("namespace") or ""
        suffix = f"-{(meta.get('labels') or {}).get(TEMPLATE_HASH)}"
        for reference in meta.get("ownerReferences") or ():
            kind, name = str(reference.get("kind")), str(reference.get("name"))
            found.add((namespace, kind, name))
            if kind == "ReplicaSet" and name.endswith(suffix):
                found.add((namespace, "Deployment", name.removesuffix(suffix)))
    return found


def workload_of(namespace: str, name: str, owner: OwnerReference | None, labels: Mapping[str, str]) -> str:
    """`Kind namespace/name` of what a pod belongs to (a Deployment rather than its ReplicaSet), or of the pod."""
    return str(workload_by(namespace, name, owner, labels))


def expand(workload: Object, nodes: Sequence[Object]) -> list[Object]:
    """The objects that a workload's controller would make: pods, and what comes with them. Empty for other kinds.

    Raises TooManyPods.
    """
    controller = _CONTROLLERS.get((workload["apiVersion"].rpartition("/")[0], workload["kind"]))
    return controller(workload, nodes) if controller is not None else []


def _reference(workload: Object) -> Object:
    meta = workload["metadata"]
    return {
        "apiVersion": workload["apiVersion"],
        "kind": workload["kind"],
        "name": meta["name"],
        "uid": meta.get("uid") or f"{workload['kind']}/{meta.get('namespace', '')}/{meta['name']}",
        "controller": True,
    }


def _factory(workload: Object, template: Object | None = None) -> PodFactory:
    template = template or _spec(workload).get("template") or {}
    return PodFactory(template, workload["metadata"]["namespace"], _reference(workload))


def _spec(workload: Object) -> Object:
    return workload.get("spec") or {}


def _number(value: Any, default: int) -> int:
    return default if value is None else int(value)


def _pods(value: Any) -> int:
    """How many pods a workload asks for; one if it does not say."""
    count = _number(value, 1)
    if count > MOST_PODS:
        raise TooManyPods(f"{count} pods are more than can be simulated ({MOST_PODS})")
    return count


def _deployment(workload: Object, nodes: Sequence[Object]) -> list[Object]:
    """A ReplicaSet with the labels that its pods get, and the pods."""
    meta, spec = workload["metadata"], _spec(workload)
    template = spec.get("template") or {}
    code = template_hash(template)
    labels = {**((template.get("metadata") or {}).get("labels") or {}), TEMPLATE_HASH: code}
    selector = spec.get("selector") or {}
    replica_set: Object = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{meta['name']}-{code}",
            "namespace": meta["namespace"],
            "uid": f"ReplicaSet/{meta['namespace']}/{meta['name']}-{code}",
            "labels": labels,
            "ownerReferences": [_reference(workload)],
        },
        "spec": {
            "replicas": _number(spec.get("replicas"), 1),
            "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), TEMPLATE_HASH: code}},
            "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
        },
    }
    return [replica_set, *_replicas(replica_set, nodes)]


def _replicas(workload: Object, nodes: Sequence[Object]) -> list[Object]:
    factory, name = _factory(workload), workload["metadata"]["name"]
    count = _pods(_spec(workload).get("replicas"))
    return [factory.pod(name=f"{name}-{number}") for number in range(1, count + 1)]


def _stateful_set(workload: Object, nodes: Sequence[Object]) -> list[Object]:
    """Pods by ordinal, and their volume claims."""
    meta, spec = workload["metadata"], _spec(workload)
    factory = _factory(workload)
    start = _number((spec.get("ordinals") or {}).get("start"), 0)
    made: list[Object] = []
    for ordinal in range(start, start + _pods(spec.get("replicas"))):
        pod = factory.pod(name=f"{meta['name']}-{ordinal}")
        pod["metadata"].setdefault("labels", {})["apps.kubernetes.io/pod-index"] = str(ordinal)
        volumes = pod["spec"].setdefault("volumes", [])
        for template in spec.get("volumeClaimTemplates") or ():
            volume = template["metadata"]["name"]
            claim = f"{volume}-{pod['metadata']['name']}"
            volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim}})
            made.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {**template["metadata"], "name": claim, "namespace": meta["namespace"]},
                    "spec": template.get("spec") or {},
                    "status": {"phase": "Pending"},
                }
            )
        made.append(pod)
    return made


def _job(workload: Object, nodes: Sequence[Object]) -> list[Object]:
    """As many pods as run side by side, of those that still have to complete."""
    spec, status = _spec(workload), workload.get("status") or {}
    over = any(c.get("type") in ("Complete", "Failed") and c.get("status") == "True" for c in _conditions(status))
    if spec.get("suspend") or over:
        return []
    count = _pods(spec.get("parallelism"))
    if spec.get("completions") is not None:
        count = min(count, int(spec["completions"]) - _number(status.get("succeeded"), 0))
    factory, name = _factory(workload), workload["metadata"]["name"]
    return [factory.pod(name=f"{name}-{number}") for number in range(1, count + 1)]


def _conditions(status: Object) -> list[Object]:
    return status.get("conditions") or []


def _daemon_set(workload: Object, nodes: Sequence[Object]) -> list[Object]:
    """A pod pinned to each node that its template accepts."""
    template = _spec(workload).get("template") or {}
    placement = DaemonPlacement(template.get("spec") or {})
    factory, name = _factory(workload), workload["metadata"]["name"]
    made: list[Object] = []
    for node in nodes:
        if placement.should_start(_record(node)):
            pod = factory.pod(name=f"{name}-{node['metadata']['name']}")
            pod["spec"]["tolerations"] = daemon_tolerations(pod["spec"])
            pin_to_node(pod["spec"], node["metadata"]["name"])
            made.append(pod)
    return made


def _record(node: Object) -> NodeRecord:
    meta, spec = node["metadata"], node.get("spec") or {}
    taints = [(t.get("key") or "", t.get("value") or "", t.get("effect") or "") for t in spec.get("taints") or ()]
    return NodeRecord(
        name=meta["name"],
        uid=meta.get("uid") or meta["name"],
        labels=meta.get("labels") or {},
        taints=tuple(taints),
        unschedulable=bool(spec.get("unschedulable")),
        conditions={},
        deleting=False,
    )


_CONTROLLERS: Mapping[tuple[str, str], Callable[[Object, Sequence[Object]], list[Object]]] = {
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replicas,
    ("", "ReplicationController"): _replicas,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("batch", "Job"): _job,
}
WORKLOADS = frozenset(_CONTROLLERS)
"""(group, kind) of what `expand` knows."""
