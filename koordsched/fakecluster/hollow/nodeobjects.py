"""The objects that make up a node: the Node itself, its Lease, its CSINode, and what the template adds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from koordsched.api.quantity import milli_value
from koordsched.fakecluster.clock import rfc3339, rfc3339_micro
from koordsched.fakecluster.hollow.amounts import milli_text
from koordsched.fakecluster.hollow.amplification import amplified, ratio_text
from koordsched.fakecluster.hollow.devicelayout import DEVICES
from koordsched.fakecluster.hollow.driverlayout import DRIVERS
from koordsched.fakecluster.hollow.hollownode import START_ERROR
from koordsched.fakecluster.hollow.templates import NodeTemplate, TemplateError, drivers_text, fill_in, share_out
from koordsched.fakecluster.hollow.topology import TOPOLOGY
from koordsched.fakecluster.hollow.usage import USAGE

Object = dict[str, Any]

HOLLOW = "koordsched.io/hollow"
"""Annotation `"true"` on the nodes that run here; nodes made by hand may carry it too."""
LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
_HEALTHY = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
}
_NOT_READY = ("False", "KubeletNotReady", "failed on command: annotation koordsched.io/fail")


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One node to register."""

    name: str
    zone: str
    index: str
    """Counts the nodes of the template, from 0, all as wide as the last."""
    number: int
    """Counts all nodes, from 0: the node's address is derived from it."""
    template: NodeTemplate


def plan_nodes(templates: list[NodeTemplate], total: int | None) -> list[PlannedNode]:
    """Names and zones of all nodes. Raises TemplateError for names that come twice or numbers that do not add up."""
    planned: dict[str, PlannedNode] = {}
    for template, count in zip(templates, share_out(templates, total), strict=True):
        width = len(str(max(count - 1, 0)))
        for index in range(count):
            zone = template.zones[index % len(template.zones)] if template.zones else ""
            text = f"{index:0{width}}"
            name = fill_in(template.node_name, {"index": text, "zone": zone})
            if name in planned:
                raise TemplateError(f"nodeName {template.node_name!r} gives the name {name!r} twice")
            planned[name] = PlannedNode(name, zone, text, len(planned), template)
    return list(planned.values())


def node_object(planned: PlannedNode, now: float) -> Object:
    """The Node as its kubelet would register it, ready."""
    template, name = planned.template, planned.name
    names = placeholders(planned)
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        **({"topology.kubernetes.io/zone": planned.zone} if planned.zone else {}),
        **({"topology.kubernetes.io/region": template.region} if template.region else {}),
        **fill_in(template.labels, names),
    }
    topology = template.topology()
    capacity = {resource: str(amount) for resource, amount in template.capacity.items()}
    capacity.setdefault("pods", "110")
    allocatable = dict(capacity)
    if topology is not None:
        allocatable["cpu"] = capacity.setdefault("cpu", str(topology.cpus.count))
        reserved = len(topology.kubelet.reserved) * 1000
        if reserved:
            allocatable["cpu"] = milli_text(max(0, milli_value(capacity["cpu"]) - reserved))
    allocatable |= {resource: str(amount) for resource, amount in template.allocatable.items()}
    faults = {START_ERROR: template.faults.start_error} if template.faults.start_error else {}
    annotations = {HOLLOW: "true", **faults, **fill_in(template.annotations, names)}
    if template.usage is not None:
        annotations.setdefault(USAGE, msgspec.json.encode(fill_in(msgspec.to_builtins(template.usage), names)).decode())
    if topology is not None:
        annotations.setdefault(TOPOLOGY, msgspec.json.encode(topology).decode())
    if template.devices is not None:
        annotations.setdefault(DEVICES, msgspec.json.encode(template.devices).decode())
    if template.drivers:
        annotations.setdefault(DRIVERS, drivers_text(template, names))
    spec: Object = {"providerID": f"hollow://{name}"}
    if template.taints:
        spec["taints"] = msgspec.to_builtins(template.taints)
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec,
        "status": {
            "capacity": capacity,
            "allocatable": allocatable,
            "addresses": [
                {"type": "InternalIP", "address": node_address(planned.number)},
                {"type": "Hostname", "address": name},
            ],
            "conditions": healthy_conditions([], now),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "images": msgspec.to_builtins(template.images),
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "hollow://1",
                "kernelVersion": "0.0.0-hollow",
                "kubeProxyVersion": "v1.36.0",
                "kubeletVersion": "v1.36.0",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "hollow",
                "systemUUID": "",
            },
        },
    }
    try:
        return amplified(node) if ratio_text(node) else node
    except ValueError:
        # An Event will say what is wrong with the ratios.
        return node


def healthy_conditions(conditions: list[Object], now: float, *, ready: bool = True) -> list[Object]:
    """The conditions as the kubelet reports them now; those of other reporters stay."""
    stamp = rfc3339(now)
    reported = []
    for kind, healthy in _HEALTHY.items():
        status, reason, message = healthy if ready or kind != "Ready" else _NOT_READY
        old = next((entry for entry in conditions if entry.get("type") == kind), None)
        moved = old is None or old.get("status") != status
        reported.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": stamp,
                "lastTransitionTime": stamp if moved or old is None else old.get("lastTransitionTime", stamp),
            }
        )
    return [entry for entry in conditions if entry.get("type") not in _HEALTHY] + reported


def lease_object(node: Object, now: float) -> Object:
    """The Lease that a node's kubelet renews."""
    name = node["metadata"]["name"]
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [_owner(node)]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": rfc3339_micro(now)},
    }


def extra_objects(planned: PlannedNode, node: Object) -> Iterator[Object]:
    """The CSINode and the template's own manifests, owned by the node."""
    template, names = planned.template, placeholders(planned)
    if template.csi_drivers:
        drivers = [{"nodeID": planned.name, **driver} for driver in template.csi_drivers]
        yield {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": planned.name, "ownerReferences": [_owner(node)]},
            "spec": {"drivers": fill_in(drivers, names)},
        }
    for manifest in template.objects:
        obj = fill_in(manifest, names)
        metadata = dict(obj.get("metadata") or {})
        metadata.setdefault("name", planned.name)
        metadata.setdefault("ownerReferences", [_owner(node)])
        yield {**obj, "metadata": metadata}


def placeholders(planned: PlannedNode) -> Mapping[str, str]:
    """What `${...}` stands for in a template's values."""
    return {"node": planned.name, "zone": planned.zone, "index": planned.index}


def node_address(number: int) -> str:
    """The node's own address: 172.16.0.0/12, in order."""
    number += 1
    return f"172.{16 + (number >> 16) % 16}.{number >> 8 & 255}.{number & 255}"


def _owner(node: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
