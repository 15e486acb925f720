"""Kinds of nodes and pods as manifests, of the size that real ones have.

A pod in a real cluster is about 6 KB of JSON: managed fields, environment, probes and a token volume make up most of
it, and decoding it is part of every scheduler's work, so measured pods are filled up with these.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from bench.workloads import DEFINITIONS, Catalog, NodeKind, Nodes, Objects, PodKind, Pods, Workload

Manifest = dict[str, Any]

MARK = {"koordsched.io/benchmark": "true"}
"""The label of everything that a benchmark makes and may delete."""

_ENVIRONMENT = [{"name": f"SETTING_{i}", "value": f"value-of-setting-{i}-for-the-application"} for i in range(24)]
_TOKEN = {
    "name": "kube-api-access-x7k2p",
    "projected": {
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ],
    },
}
_ANNOTATIONS = {"example.com/config-hash": "0123456789abcdef" * 8}
_OWNED: Manifest = {
    "f:metadata": {
        "f:annotations": {".": {}, "f:example.com/config-hash": {}},
        "f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}},
    },
    "f:spec": {
        "f:containers": {
            'k:{"name":"pause"}': {
                ".": {},
                **{f"f:{field}": {} for field in ("image", "imagePullPolicy", "name", "terminationMessagePath")},
                "f:resources": {".": {}, "f:limits": {".": {}, "f:cpu": {}, "f:memory": {}}},
                "f:env": {
                    ".": {},
                    **{
                        f'k:{{"name":"{variable["name"]}"}}': {".": {}, "f:name": {}, "f:value": {}}
                        for variable in _ENVIRONMENT
                    },
                },
            }
        },
        "f:dnsPolicy": {},
        "f:enableServiceLinks": {},
        "f:restartPolicy": {},
        "f:schedulerName": {},
        "f:securityContext": {},
        "f:terminationGracePeriodSeconds": {},
    },
}
_MANAGED = [
    {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": _OWNED,
    }
]


def fill_in(value: Any, variables: Mapping[str, object]) -> Any:
    """A copy of a JSON value with `${name}` filled in, in keys too."""
    if isinstance(value, str):
        return string.Template(value).substitute(variables) if "$" in value else value
    if isinstance(value, dict):
        return {fill_in(key, variables): fill_in(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [fill_in(item, variables) for item in value]
    return value


def pod(
    kind: PodKind, name: str, namespace: str, index: int, scheduler: str, *, node: str = "", full_size: bool = True
) -> Manifest:
    """One pod. `full_size`: filled up to what a real one has; otherwise only what placement depends on."""
    variables = {"index": index, **{key: variable.at(index) for key, variable in kind.variables.items()}}
    spec: Manifest = {"schedulerName": scheduler, **fill_in(kind.spec, variables)}
    metadata: Manifest = {"name": name, "namespace": namespace, "labels": MARK | fill_in(kind.labels, variables)}
    if kind.finalizers:
        metadata["finalizers"] = kind.finalizers
    if node:
        spec["nodeName"] = node
    if "priority" in spec:
        # API servers accept a priority only along with the class that it comes from.
        spec["priorityClassName"] = priority_class(spec["priority"])["metadata"]["name"]
    if full_size:
        metadata["annotations"] = _ANNOTATIONS
        metadata["managedFields"] = _MANAGED
        spec["volumes"] = [_TOKEN]
        spec["containers"] = [
            {
                **container,
                "env": _ENVIRONMENT,
                "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 20},
                "volumeMounts": [
                    {"name": _TOKEN["name"], "mountPath": "/var/run/secrets/kubernetes.io", "readOnly": True}
                ],
            }
            for container in spec["containers"]
        ]
    # A real server refuses the token volume of a pod that names no account.
    spec["serviceAccountName"] = "default"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def priority_class(value: int) -> Manifest:
    """The class that gives pods this priority."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"benchmark-{value}"},
        "value": value,
    }


def priority_classes(catalog: Catalog) -> Iterator[Manifest]:
    """The classes that the kinds of pods need."""
    for value in sorted({kind.spec["priority"] for kind in catalog.pods.values() if "priority" in kind.spec}):
        yield priority_class(value)


def node(kind: NodeKind, name: str, index: int, zone: str) -> Manifest:
    """One node, ready, kept alive by hollow kubelets where there are some."""
    labels = MARK | {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **kind.labels}
    if zone:
        labels["topology.kubernetes.io/zone"] = zone
    capacity = fill_in(kind.capacity, {"index": index})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"koordsched.io/hollow": "true"}},
        "spec": {},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def nodes_of(catalog: Catalog, groups: list[Nodes]) -> Iterator[Manifest]:
    """All nodes of a workload, zones in turns."""
    number = 0
    for group in groups:
        kind = catalog.nodes[group.kind]
        for index in range(group.count):
            zone = group.zones[index % len(group.zones)] if group.zones else ""
            yield node(kind, kind.name or f"node-{number}", index, zone)
            number += 1


def namespaces_of(workload: Workload) -> Iterator[Manifest]:
    """All namespaces of a workload."""
    for group in workload.namespaces:
        names = [f"{group.prefix}-{index}" for index in range(group.count)] or [group.prefix]
        for name in names:
            metadata = {"name": name, "labels": group.labels}
            yield {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def definitions_of(workload: Workload) -> Iterator[Manifest]:
    """The custom resource definitions that a workload needs."""
    for file in workload.definitions:
        yield yaml.safe_load((DEFINITIONS / file).read_text())


def objects_of(groups: list[Objects]) -> Iterator[Manifest]:
    """All other objects of a workload."""
    for group in groups:
        for index in range(group.first, group.first + group.count):
            manifest = fill_in(group.manifest, {"index": index})
            manifest["metadata"]["labels"] = MARK | manifest["metadata"].get("labels", {})
            yield manifest


def pods_of(
    catalog: Catalog,
    group: Pods,
    prefix: str,
    scheduler: str,
    *,
    nodes: Sequence[str] = (),
    full_size: bool = True,
) -> Iterator[Manifest]:
    """The pods of a group, on `nodes` in turns if given."""
    kind = catalog.pods[group.kind]
    for number in range(group.total):
        on = nodes[number % len(nodes)] if nodes else ""
        name = f"{prefix}-{number}"
        yield pod(kind, name, group.namespace_of(number), number, scheduler, node=on, full_size=full_size)
