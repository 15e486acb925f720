"""What the agent of a node reports about its CPUs and NUMA nodes, read (nodenumaresource spec 2.4, 2.5)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from koordsched.api.quantity import QuantityError
from koordsched.cluster.kept import kept
from koordsched.framework.topologyhints import NUMAPolicy
from koordsched.plugins.nodenumaresource import kinds
from koordsched.plugins.nodenumaresource.allocation import MAX_NUMA_NODES, amount_of
from koordsched.plugins.nodenumaresource.kinds import NodeResourceTopology
from koordsched.plugins.nodenumaresource.topology import CPUTopology
from koordsched.plugins.shared import cpuset

Ratios = dict[str, float]

_ZONE_NAME = re.compile(r"[^n]*node-([+-]?\d{1,9})", re.ASCII)
_POLICIES = {
    "SingleNUMANodePodLevel": NUMAPolicy.SINGLE_NUMA_NODE,
    "Restricted": NUMAPolicy.RESTRICTED,
    "BestEffort": NUMAPolicy.BEST_EFFORT,
}
"""Names of the kubelet's policies that count. Upstream takes no other, `RestrictedPodLevel` neither."""

_MAX_RATIO = 1000.0

_BUDGET = 64 << 20
"""Bytes of texts of a kind and what was read from them."""


class TopologyOptions(NamedTuple):
    """A report, read.

    `topology`: None if there is none that can be used. `reserved`: bit set of the CPUs that no pod of ours gets.
    `full_cores_only`: the kubelet gives whole cores only. `zones`: per NUMA node, resource -> amount (milli-CPU, bytes,
    units), reserved CPUs taken off. `ratios`: how much more than the machine has is offered; if given, `zones` are
    so already. `problems`: what of the report could not be used, and why.
    """

    topology: CPUTopology | None = None
    reserved: int = 0
    full_cores_only: bool = False
    policy: NUMAPolicy = NUMAPolicy.NONE
    zones: tuple[dict[str, int], ...] = ()
    ratios: Ratios | None = None
    problems: tuple[str, ...] = ()


class _CPU(msgspec.Struct):
    id: int = 0
    core: int = 0
    socket: int = 0
    node: int = 0


class _CPUTopology(msgspec.Struct):
    detail: list[_CPU] | None = None


class _CPUManagerPolicy(msgspec.Struct, rename={"reserved_cpus": "reservedCPUs"}):
    policy: str = ""
    options: dict[str, str] | None = None
    reserved_cpus: str = ""


class _PodCPUAlloc(msgspec.Struct, rename={"managed_by_kubelet": "managedByKubelet"}):
    uid: str = ""
    cpuset: str = ""
    managed_by_kubelet: bool = False


class _NodeReservation(msgspec.Struct, rename={"reserved_cpus": "reservedCPUs"}):
    reserved_cpus: str = ""


class _SystemQOSResource(msgspec.Struct, rename={"exclusive": "cpusetExclusive"}):
    cpuset: str = ""
    exclusive: bool | None = None


_topologies = msgspec.json.Decoder(_CPUTopology)
_manager_policies = msgspec.json.Decoder(_CPUManagerPolicy | None)
_pod_cpu_allocs = msgspec.json.Decoder(list[_PodCPUAlloc] | None)
_reservations = msgspec.json.Decoder(_NodeReservation | None)
_system_resources = msgspec.json.Decoder(_SystemQOSResource | None)
_ratios = msgspec.json.Decoder(dict[str, float] | None)


@kept(_BUDGET)
def _read_topology(text: str) -> CPUTopology | None:
    """Equal machines share one object. Raises ValueError."""
    detail = _topologies.decode(text).detail
    if not detail:
        return None
    return CPUTopology((cpu.id, cpu.core, cpu.socket, cpu.node) for cpu in detail)


@kept(_BUDGET)
def read_ratios(text: str) -> Ratios | None:
    """How much more of each resource is offered than the machine has. Raises ValueError if that cannot be read."""
    found: Ratios | None = _ratios.decode(text)
    for name, ratio in (found or {}).items():
        if not math.isfinite(ratio) or ratio > _MAX_RATIO:
            raise ValueError(f"ratio of {name} is {ratio}")
    return found


def amplify(amount: int, ratio: float) -> int:
    """Rounded up; ratios up to 1 change nothing. Source: koordinator `apis/extension`, Amplify."""
    return math.ceil(amount * ratio) if ratio > 1 else amount


def amplified(zones: tuple[dict[str, int], ...], ratios: Ratios) -> tuple[dict[str, int], ...]:
    """What NUMA nodes offer by ratios."""
    return tuple({name: amplify(amount, ratios.get(name, 0)) for name, amount in zone.items()} for zone in zones)


def read(report: NodeResourceTopology) -> TopologyOptions:
    """The options that a report makes; what of it cannot be read is left out and said in `problems`."""
    reader = _Reader(report)
    topology = reader.annotation(kinds.CPU_TOPOLOGY, _read_topology, None)
    manager = reader.annotation(kinds.CPU_MANAGER_POLICY, _manager_policies.decode, None) or _CPUManagerPolicy()
    reserved = 0
    for alloc in reader.annotation(kinds.POD_CPU_ALLOCS, _pod_cpu_allocs.decode, None) or ():
        if alloc.managed_by_kubelet and alloc.uid:
            reserved |= reader.cpus(kinds.POD_CPU_ALLOCS, alloc.cpuset)
    reserved |= reader.cpus(kinds.CPU_MANAGER_POLICY, manager.reserved_cpus)
    reservation = reader.annotation(kinds.NODE_RESERVATION, _reservations.decode, None)
    if reservation is not None:
        reserved |= reader.cpus(kinds.NODE_RESERVATION, reservation.reserved_cpus)
    system = reader.annotation(kinds.SYSTEM_QOS_RESOURCE, _system_resources.decode, None)
    if system is not None and system.exclusive is not False:
        reserved |= reader.cpus(kinds.SYSTEM_QOS_RESOURCE, system.cpuset)
    zones = reader.zones()
    if topology is not None:
        for node, zone in enumerate(zones):
            if zone.get("cpu"):
                kept = (topology.node_cpus.get(node, 0) & reserved).bit_count() * 1000
                zone["cpu"] = max(0, zone["cpu"] - kept)
    return TopologyOptions(
        topology,
        reserved,
        manager.policy == "static" and (manager.options or {}).get("full-pcpus-only") == "true",
        next((_POLICIES[name] for name in report.topology_policies if name in _POLICIES), NUMAPolicy.NONE),
        tuple(zones),
        reader.annotation(kinds.AMPLIFICATION_RATIO, read_ratios, None),
        tuple(reader.problems),
    )


class _Reader:
    """Reads a report part by part, and keeps what is wrong with it."""

    def __init__(self, report: NodeResourceTopology) -> None:
        self._report = report
        self.problems: list[str] = []

    def annotation(self, key: str, decode: Callable[[str], Any], otherwise: Any) -> Any:
        text = self._report.metadata.annotations.get(key)
        if not text:
            return otherwise
        try:
            return decode(text)
        except (ValueError, RecursionError) as error:
            self.problems.append(f"annotation {key}: {str(error)[:256]}")
            return otherwise

    def cpus(self, key: str, text: str) -> int:
        try:
            return cpuset.parse(text)
        except ValueError as error:
            self.problems.append(f"annotation {key}: {error}")
            return 0

    def zones(self) -> list[dict[str, int]]:
        """What the NUMA nodes have, by number; none if the numbers have gaps."""
        found: dict[int, dict[str, int]] = {}
        for zone in self._report.zones:
            matched = _ZONE_NAME.fullmatch(zone.name) if zone.type == "Node" else None
            if matched is None:
                continue
            if int(matched[1]) in found:
                self.problems.append(f"zone {zone.name} is reported twice")
                return []
            found[int(matched[1])] = resources = {}
            for resource in zone.resources:
                try:
                    resources[resource.name] = max(0, amount_of(resource.name, resource.allocatable))
                except QuantityError as error:
                    self.problems.append(f"zone {zone.name}, {resource.name[:64]}: {error}")
        if sorted(found) != list(range(len(found))) or len(found) > MAX_NUMA_NODES:
            self.problems.append(f"zones must be node-0, node-1, ..., at most {MAX_NUMA_NODES}")
            return []
        return [found[node] for node in range(len(found))]
