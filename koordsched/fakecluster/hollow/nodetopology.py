"""What a node's NodeResourceTopology says (nodenumaresource spec 2.5; koordlet `states_noderesourcetopology.go`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from koordsched.api import quantity
from koordsched.fakecluster.hollow.allocation import amounts
from koordsched.fakecluster.hollow.amounts import milli_text
from koordsched.fakecluster.hollow.cpulayout import CpuLayout, cpus_of, numa_nodes_of
from koordsched.fakecluster.hollow.cpuset import format_cpuset, parse_cpuset
from koordsched.fakecluster.hollow.nodereservation import RESERVATION, SYSTEM_QOS, Reservation, SystemResource
from koordsched.fakecluster.hollow.podcpus import PodCpus
from koordsched.fakecluster.hollow.topology import Topology

Object = dict[str, Any]

POD_ALLOCATIONS = "node.koordinator.sh/pod-cpu-allocs"
NUMA_RESERVATION = "node.koordinator.sh/enable-numa-reservation"
"""Label of nodes: what the node as a whole does not give to pods is taken off its NUMA nodes, in equal parts."""
_HUGE_PAGES = ("hugepages-1Gi", "hugepages-2Mi")


class NodeFacts(NamedTuple):
    """What a Node says about itself that goes into the report."""

    reservation: Reservation
    system: SystemResource | None
    numa_reservation: str | None
    """The label."""
    capacity: Mapping[str, Any]
    allocatable: Mapping[str, Any]


class Described(NamedTuple):
    """The parts of a NodeResourceTopology that koordlet writes."""

    labels: dict[str, str]
    annotations: dict[str, str]
    policies: list[str]
    zones: list[Object]

    def written_to(self, obj: Object) -> Object:
        """The object with these parts in it; others' labels, annotations and resources of zones stay as they are."""
        metadata = obj["metadata"]
        known = {zone.get("name"): zone for zone in obj.get("zones") or ()}
        return {
            **obj,
            "metadata": {
                **metadata,
                "labels": {**(metadata.get("labels") or {}), **self.labels},
                "annotations": {**(metadata.get("annotations") or {}), **self.annotations},
            },
            "topologyPolicies": self.policies,
            "zones": [_merged(known.get(zone["name"]) or {}, zone) for zone in self.zones],
        }


def describe(
    topology: Topology, facts: NodeFacts, pods: Mapping[str, PodCpus], pinned: Mapping[str, frozenset[int]]
) -> Described:
    """The report on a node with these pods, of which the kubelet has `pinned` some to CPUs; both by uid."""
    layout, kubelet = topology.cpus, topology.kubelet
    manager: Object = {"policy": kubelet.cpu_manager_policy}
    if kubelet.cpu_manager_policy_options:
        manager["options"] = kubelet.cpu_manager_policy_options
    if kubelet.static:
        manager["reservedCPUs"] = format_cpuset(kubelet.reserved)
    allocations = [
        {
            "namespace": pods[uid].namespace,
            "name": pods[uid].name,
            "uid": uid,
            "cpuset": format_cpuset(cpus),
            "managedByKubelet": True,
        }
        for uid, cpus in sorted(pinned.items())
    ]
    shared = frozenset(range(layout.count)).difference(*pinned.values())
    kept = parse_cpuset(facts.reservation.reserved_cpus or "")
    if facts.system is not None:
        kept |= facts.system.exclusive
    bound = frozenset[int]().union(*(pod.bound for pod in pods.values()))
    exclusive = frozenset[int]().union(*(pod.bound for pod in pods.values() if pod.qos == "LSE"))
    annotations = {
        "node.koordinator.sh/cpu-topology": _cpu_topology(layout),
        "kubelet.koordinator.sh/cpu-manager-policy": _text(manager),
        POD_ALLOCATIONS: _text(allocations or None),
        RESERVATION: _text(facts.reservation),
        SYSTEM_QOS: _text(facts.system),
        "node.koordinator.sh/cpu-shared-pools": _text(_pools(layout, shared - bound, kept)),
        "node.koordinator.sh/be-cpu-shared-pools": _text(_pools(layout, shared - exclusive, kept)),
    }
    labels = {NUMA_RESERVATION: facts.numa_reservation} if facts.numa_reservation else {}
    return Described(labels, annotations, [kubelet.topology_policy], _zones(layout, facts))


@lru_cache(maxsize=64)
def _cpu_topology(layout: CpuLayout) -> str:
    return _text({"detail": [cpu._asdict() for cpu in cpus_of(layout)]})


def _pools(layout: CpuLayout, shared: Set[int], kept: Set[int]) -> list[Object] | None:
    """Those of the NUMA nodes on which anything is shared, without what is kept from pods."""
    pools = []
    for node, (socket, cpus) in enumerate(numa_nodes_of(layout)):
        if cpus & shared:
            pool = {"socket": socket, "node": node}
            left = format_cpuset(cpus & shared - kept)
            pools.append({**pool, "cpuset": left} if left else pool)
    return pools or None


def _zones(layout: CpuLayout, facts: NodeFacts) -> list[Object]:
    """Every NUMA node has its CPUs and an equal part of the memory that is no huge pages, and of those."""
    count = layout.numa_nodes
    capacity, allocatable = amounts(facts.capacity), amounts(facts.allocatable)
    huge = {name: capacity.get(name, 0) // 1000 for name in _HUGE_PAGES}
    parts = {
        "cpu": layout.count // count * 1000,
        **{name: amount // count * 1000 for name, amount in huge.items()},
        "memory": max(0, capacity.get("memory", 0) // 1000 - sum(huge.values())) // count * 1000,
    }
    taken = {}
    if facts.numa_reservation == "true":
        lacking = {name: capacity.get(name, 0) - allocatable.get(name, 0) for name in ("cpu", "memory")}
        taken = {name: -(-amount // count) for name, amount in lacking.items() if amount > 0}
    resources = []
    for name, part in sorted(parts.items()):
        left = _quantity(name, max(0, part - taken.get(name, 0)))
        resources.append({"name": name, "capacity": _quantity(name, part), "allocatable": left, "available": left})
    return [{"name": f"node-{node}", "type": "Node", "resources": resources} for node in range(count)]


def _quantity(name: str, milli: int) -> str:
    return milli_text(milli) if name == "cpu" else quantity.format_bytes(milli // 1000)


def _merged(old: Object, zone: Object) -> Object:
    ours: Collection[str] = {resource["name"] for resource in zone["resources"]}
    others = [resource for resource in old.get("resources") or () if resource.get("name") not in ours]
    return {**old, **zone, "resources": sorted([*zone["resources"], *others], key=lambda resource: resource["name"])}


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
