"""What a node, its NodeResourceTopology and the pods on it say, read the plain way: nodenumaresource spec 2 and 3.0.

Amounts are whole numbers: thousandths of a CPU for `cpu`, bytes or pieces of everything else.
"""

import json
import math
import re
from collections import namedtuple
from dataclasses import dataclass, field

from tests.reference.podrequests import requests
from tests.reference.quantity import in_units_of, parse

SINGLE, RESTRICTED, BEST_EFFORT = "SingleNUMANode", "Restricted", "BestEffort"
KUBELET_POLICIES = {"SingleNUMANodePodLevel": SINGLE, "Restricted": RESTRICTED, "BestEffort": BEST_EFFORT}

NODE = "node.koordinator.sh/"
SCHEDULING = "scheduling.koordinator.sh/"

Cpu = namedtuple("Cpu", "id core socket numa")


@dataclass
class Allocation:
    """What a pod holds on a node: CPUs, and amounts per NUMA node."""

    name: str = ""
    namespace: str = ""
    cpus: set = field(default_factory=set)
    exclusive: str = ""
    numa: dict = field(default_factory=dict)


class Malformed(Exception):
    """An annotation that cannot be read."""


def amounts(quantities):
    """{resource: quantity} in whole numbers."""
    return {name: in_units_of(name, parse(quantity)) for name, quantity in (quantities or {}).items()}


def amplify(amount, ratio):
    """The amount times the ratio, rounded up; ratios of one and below change nothing."""
    return math.ceil(amount * ratio) if ratio > 1 else amount


def parse_cpus(text):
    """`0-3,8` -> {0, 1, 2, 3, 8}. Raises Malformed."""
    cpus = set()
    for part in (text or "").split(","):
        if not part.strip():
            continue
        matched = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if matched is None:
            raise Malformed(f"no CPUs: {text!r}")
        cpus.update(range(int(matched[1]), int(matched[2] or matched[1]) + 1))
    return cpus


def format_cpus(cpus):
    """{0, 1, 2, 3, 8} -> `0-3,8`."""
    parts = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][1] + 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)


def annotated(thing, key, default=None):
    """The JSON of an annotation, `default` without it. Raises Malformed."""
    text = (thing or {}).get("metadata", {}).get("annotations", {}).get(key)
    if text is None:
        return default
    try:
        return json.loads(text)
    except ValueError as error:
        raise Malformed(str(error)) from error


def texts(thing, key, *names):
    """The text fields of those names in the JSON of an annotation; "" where one is not there. Raises Malformed."""
    found = annotated(thing, key)
    found = {} if found is None else found
    if not isinstance(found, dict) or not all(isinstance(found.get(name) or "", str) for name in names):
        raise Malformed(f"{key} is {found}")
    return [found.get(name) or "" for name in names]


def ratios_of(thing):
    """{resource: ratio} of the annotation, None without it. Raises Malformed."""
    found = annotated(thing, f"{NODE}resource-amplification-ratio")
    if found is None:
        return None
    if not isinstance(found, dict) or not all(type(ratio) in (int, float) for ratio in found.values()):
        raise Malformed(f"no ratios: {found}")
    return found


def readable(thing, key, default=None):
    """The same, where what cannot be read counts as absent."""
    try:
        return annotated(thing, key, default)
    except Malformed:
        return default


def readable_cpus(text):
    """The CPUs of a list, none if it cannot be read."""
    try:
        return parse_cpus(text)
    except Malformed:
        return set()


def recorded(pod):
    """The Allocation that a pod's annotations name, None if there is none. Raises Malformed."""
    status = annotated(pod, f"{SCHEDULING}resource-status") or {}
    (level,) = texts(pod, f"{SCHEDULING}resource-spec", "preferredCPUExclusivePolicy")
    try:
        cpus = parse_cpus(status.get("cpuset"))
        numa = {zone["node"]: amounts(zone.get("resources")) for zone in status.get("numaNodeResources") or ()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Malformed(str(error)) from error
    meta = pod["metadata"]
    return Allocation(meta["name"], meta.get("namespace", "default"), cpus, level, numa) if cpus or numa else None


def holding(pod):
    """What a bound pod holds; what cannot be read counts as nothing."""
    try:
        return recorded(pod)
    except Malformed:
        return None


class Machine:
    """A node with its topology object (None without one) and the pods on it, in the order they came."""

    max_references = 1
    counts_without_cpus = False
    """Whether what pods hold counts without a valid CPU topology. Upstream forgets it."""

    def __init__(self, node, topology=None, pods=()):
        self.node = node
        self.topology = topology
        self.pods = [pod for pod in pods if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
        self.name = node["metadata"]["name"]
        self.labels = node["metadata"].get("labels", {})
        self.allocatable = amounts(node.get("status", {}).get("allocatable"))
        self._read_cpus()
        self._read_reserved()
        self._read_zones()
        self._read_policies()
        held = [(pod, holding(pod)) for pod in self.pods]
        counts = self.valid or self.counts_without_cpus
        self.held = [(pod, allocation) for pod, allocation in held if allocation is not None and counts]

    # What the objects say

    def _read_cpus(self):
        self.cpus = {}
        for entry in (readable(self.topology, f"{NODE}cpu-topology") or {}).get("detail") or ():
            core = entry["socket"] << 16 | entry["core"]
            self.cpus[entry["id"]] = Cpu(entry["id"], core, entry["socket"], entry["node"])
        self.valid = bool(self.cpus)
        every = self.cpus.values()
        self.cpus_per_core = self._share(len({(cpu.socket, cpu.numa, cpu.core) for cpu in every}))
        self.cpus_per_numa = self._share(len({(cpu.socket, cpu.numa) for cpu in every}))
        self.cpus_per_socket = self._share(len({cpu.socket for cpu in every}))

    def _share(self, parts):
        return len(self.cpus) // parts if parts else 0

    def _read_reserved(self):
        self.kubelet = readable(self.topology, "kubelet.koordinator.sh/cpu-manager-policy") or {}
        self.reserved = readable_cpus(self.kubelet.get("reservedCPUs"))
        for pod in readable(self.topology, f"{NODE}pod-cpu-allocs") or ():
            if pod.get("managedByKubelet") and pod.get("uid"):
                self.reserved |= readable_cpus(pod.get("cpuset"))
        reservation = readable(self.topology, f"{NODE}reservation") or {}
        self.reserved |= readable_cpus(reservation.get("reservedCPUs"))
        system = readable(self.topology, f"{NODE}system-qos-resource") or {}
        if system.get("cpusetExclusive", True) is not False:
            self.reserved |= readable_cpus(system.get("cpuset"))

    def _read_zones(self):
        self.zones = {}
        for zone in (self.topology or {}).get("zones") or ():
            matched = re.fullmatch(r"node-(\d+)", zone.get("name", ""))
            if zone.get("type") != "Node" or matched is None:
                continue
            numa = int(matched[1])
            listed = {entry["name"]: entry.get("allocatable", "0") for entry in zone.get("resources") or ()}
            self.zones[numa] = amounts(listed)
            if self.zones[numa].get("cpu"):
                reserved = [cpu for cpu in self.reserved if cpu in self.cpus and self.cpus[cpu].numa == numa]
                self.zones[numa]["cpu"] -= 1000 * len(reserved)
        self.zones = dict(sorted(self.zones.items()))
        self._amplify()

    def _amplify(self):
        """Ratios on the topology object say that its zones are amplified already; else those of the node count."""
        try:
            self.ratios = ratios_of(self.topology)
        except Malformed:
            self.ratios = None
        self.has_own_ratios = self.ratios is not None
        if not self.has_own_ratios:
            try:
                self.ratios = ratios_of(self.node) or {}
            except Malformed:
                self.ratios = {}
            for zone in self.zones.values():
                for name in zone:
                    zone[name] = amplify(zone[name], self.ratios.get(name, 0))

    def _read_policies(self):
        label = self.labels.get(f"{NODE}numa-topology-policy", "")
        reported = [KUBELET_POLICIES[name] for name in (self.topology or {}).get("topologyPolicies") or ()
                    if name in KUBELET_POLICIES]  # fmt: skip
        if label:
            self.numa_policy = label if label in KUBELET_POLICIES.values() else ""
        else:
            self.numa_policy = reported[0] if reported else ""
        label = self.labels.get(f"{NODE}cpu-bind-policy")
        full = (self.kubelet.get("options") or {}).get("full-pcpus-only") == "true"
        self.bind_policy = ""
        if label == "FullPCPUsOnly" or (self.kubelet.get("policy") == "static" and full):
            self.bind_policy = "FullPCPUs"
        elif label == "SpreadByPCPUs":
            self.bind_policy = "SpreadByPCPUs"

    @property
    def node_ratio(self):
        """The node's own ratio for cpu, 0 without one. Raises Malformed."""
        return (ratios_of(self.node) or {}).get("cpu", 0)

    @property
    def ratio(self):
        """The ratio for cpu that the zones are amplified with."""
        return self.ratios.get("cpu", 0)

    # What the pods take

    def requested(self, without=()):
        """Sum of the requests of the pods."""
        total = {}
        for pod in self.pods:
            if not any(pod is other for other in without):
                for name, amount in requests(pod).items():
                    total[name] = total.get(name, 0) + amount
        return total

    def cpus_in_use(self):
        """{cpu: (number of pods, exclusive policy of the last of them)}."""
        used = {}
        for _, allocation in self.held:
            for cpu in allocation.cpus:
                used[cpu] = (used.get(cpu, (0, ""))[0] + 1, allocation.exclusive)
        return used

    def bound_milli(self, numa=None):
        """CPUs that pods are bound to, in thousandths: on the whole node, or on one NUMA node."""
        used = self.cpus_in_use()
        if numa is not None:
            used = [cpu for cpu in used if cpu in self.cpus and self.cpus[cpu].numa == numa]
        return 1000 * len(used)

    def free_cpus(self, *returned):
        """The free CPUs, and those in use, after each of the sets was returned once."""
        used = self.cpus_in_use()
        for cpus in returned:
            for cpu in cpus:
                if cpu in used:
                    count, level = used.pop(cpu)
                    if count > 1:
                        used[cpu] = (count - 1, level)
        full = {cpu for cpu, (count, _) in used.items() if count >= self.max_references}
        return set(self.cpus) - full - self.reserved, used

    def allocated(self, reusable):
        """{NUMA node: amounts taken, without what can be used again}; only NUMA nodes that pods are recorded on."""
        taken = {}
        for numa in self.zones:
            shares = [allocation.numa[numa] for _, allocation in self.held if numa in allocation.numa]
            if not shares:
                continue
            total = {name: sum(share.get(name, 0) for share in shares) for share in shares for name in share}
            if self.ratio > 1:
                bound = self.bound_milli(numa)
                total["cpu"] = total.get("cpu", 0) - bound + amplify(bound, self.ratio)
            back = reusable.get(numa, {})
            taken[numa] = {name: max(0, amount - back.get(name, 0)) for name, amount in total.items()}
        return taken

    def available(self, reusable):
        """{NUMA node: amounts left}."""
        taken = self.allocated(reusable)
        return {
            numa: {name: max(0, amount - taken.get(numa, {}).get(name, 0)) for name, amount in zone.items()}
            for numa, zone in self.zones.items()
        }

    def status(self, numa):
        """`idle`, `single` (only pods whose CPUs lie in this NUMA node) or `shared`."""
        found = "idle"
        for _, allocation in self.held:
            on = {self.cpus[cpu].numa for cpu in allocation.cpus if cpu in self.cpus}
            if numa in on:
                if len(on) > 1:
                    return "shared"
                found = "single"
        return found
