"""The cluster as the scheduler holds it, written back as Kubernetes objects: what `simulate` and `explain` accept.

The scheduler only keeps what decisions depend on, so nothing else is shown: no environment, no commands, no Secrets or
ConfigMaps, and of the annotations only those of Kubernetes, Koordinator and our own (`kubectl apply` leaves a copy of
the whole object in one, which is left out).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from datetime import UTC, datetime
from math import ceil
from types import MappingProxyType
from typing import Any

import msgspec

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.api.meta import ObjectMeta
from koordsched.cluster.claimedresources import of_status, total_of
from koordsched.cluster.kinds import Kind
from koordsched.cluster.pod import Pod
from koordsched.cluster.resources import CPU
from koordsched.cluster.state import ClusterState

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
TRUSTED_DOMAINS = ("kubernetes.io", "k8s.io", "koordinator.sh", "koordsched.io")
"""Annotations of these domains and their subdomains are for machines; others may hold anything."""

_PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
_REPLICATED = ("ReplicaSet", "StatefulSet", "ReplicationController")


def snapshot(cluster: ClusterState, pending: list[Pod]) -> Iterator[dict[str, Any]]:
    """Every object, as JSON values: nodes, then what else plugins read, then pods.

    Virtual pods are not, but the objects that they stand for. Which objects there are is decided at the first step;
    later steps may show a later state of single objects.
    """
    table = cluster.table
    nodes = [(row, node) for row, node in enumerate(table.nodes) if node is not None]
    others = [(store.kind, store.as_of_now()) for store in cluster.objects.wanted()]
    bound = list(cluster.assigned.values())
    waiting = [pod for pod in pending if pod.uid not in cluster.assigned]
    for row, node in nodes:
        yield node_object(node, table.images.on_row(row), cluster.read_annotations)
    for kind, things in others:
        for thing in things:
            yield _other(kind, thing, cluster.read_annotations)
    names = table.resource_names.names
    for pod in (*bound, *waiting):
        if pod.virtual:
            continue
        whole = cluster.whole(pod)
        annotations = {**pod.shape.meta.annotations, **cluster.pod_facts.annotations(whole)}
        shown = pod_object(whole, names, annotations, cluster.pod_facts.status(whole))
        shown["spec"].update(cluster.pod_facts.spec(whole))
        yield shown


def node_object(node: core.Node, images: tuple[core.ContainerImage, ...], read: Container[str] = ()) -> dict[str, Any]:
    """A node, its images included. `read`: keys of annotations that plugins read."""
    full = msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, images=images))
    return _object("v1", "Node", full, read)


def pod_object(
    pod: Pod,
    resource_names: list[str],
    annotations: Mapping[str, str] = MappingProxyType({}),
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """A pod, rebuilt from what is known of it. One that was resized in place shows a single container.

    `resource_names`: by resource index; `annotations`: those that plugins read; `facts`: what they read of its status,
    as JSON values.
    """
    spec = pod.shape.spec
    if pod.wire is not None:
        spec = pod.wire.spec
    if pod.requests is not pod.shape.requests:
        spec = _resized(pod, spec, resource_names, facts)
    shown: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(spec, node_name=pod.node))
    shown.setdefault("schedulerName", spec.scheduler_name)
    metadata: dict[str, Any] = {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "resourceVersion": pod.resource_version,
        "generation": pod.generation,
        "creationTimestamp": pod.created,
        "labels": pod.labels.labels,
    }
    shown_ones = shown_annotations(pod.wire.metadata) if pod.wire is not None else {}
    metadata["annotations"] = {**shown_ones, **annotations}
    if references := pod.references:
        metadata["ownerReferences"] = [msgspec.to_builtins(reference) for reference in references]
    status: dict[str, Any] = {"phase": "Running" if pod.start_time else "Pending", **facts}
    if pod.start_time:
        status["startTime"] = pod.start_time
    if pod.nominated_node:
        status["nominatedNodeName"] = pod.nominated_node
    if pod.deleting:
        # When it ends is not kept; that it ends is what counts.
        metadata["deletionTimestamp"] = pod.start_time or pod.created or _EPOCH
    if pod.preempted:
        status["conditions"] = [*status.get("conditions", ()), _PREEMPTED]
    metadata = {key: value for key, value in metadata.items() if value}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": shown, "status": status}


_EPOCH = datetime.fromtimestamp(0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _resized(pod: Pod, spec: core.PodSpec, names: list[str], facts: Mapping[str, Any]) -> core.PodSpec:
    """The spec with all that counts against the node now in one container, but for what the status says of claims."""
    claimed = of_status(convert(facts, core.PodStatus)) if facts else None
    taken = {name: ceil(amount / (10**6 if name == "cpu" else 10**9)) for name, amount in total_of(claimed or ())}
    left = [(index, amount - taken.get(names[index], 0)) for index, amount in pod.requests.amounts]
    amounts: core.Quantities = {
        names[index]: f"{amount}m" if index == CPU else amount for index, amount in left if amount > 0
    }
    ports = tuple(port for container in (*spec.init_containers, *spec.containers) for port in container.ports)
    first = spec.containers[0]
    container = core.Container(
        name=first.name, image=first.image, ports=ports, resources=core.ResourceRequirements(requests=amounts)
    )
    return msgspec.structs.replace(spec, containers=(container,), init_containers=(), overhead={}, resources=None)


def shown_annotations(meta: ObjectMeta, read: Container[str] = ()) -> dict[str, str]:
    """The annotations that may be shown, and those that plugins read."""
    return {key: value for key, value in meta.annotations.items() if key in read or _is_shown(key)}


def _is_shown(key: str) -> bool:
    domain = key.partition("/")[0]
    return key != LAST_APPLIED and any(domain == known or domain.endswith(f".{known}") for known in TRUSTED_DOMAINS)


def _other(kind: Kind[Any], thing: Any, read: Container[str]) -> dict[str, Any]:
    shown = _object(kind.api_version, kind.name, thing, read)
    if kind.name in _REPLICATED:
        # Its pods are among the objects; a controller that reads this must not create more of them.
        shown.setdefault("spec", {})["replicas"] = 0
    return shown


def _object(version: str, kind: str, thing: Any, read: Container[str]) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(thing)
    annotations = shown_annotations(thing.metadata, read)
    metadata = shown.get("metadata", {})
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": version, "kind": kind, **shown}
