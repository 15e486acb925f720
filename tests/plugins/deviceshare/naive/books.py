"""What is known of the devices of a node, and what pods hold of them: deviceshare spec 3.1."""

import contextlib
import json

import yaml

from tests.plugins.deviceshare.naive.amounts import added, less, read, without
from tests.plugins.deviceshare.naive.request import Malformed, allocations_of, annotation, bandwidth_of

NODE = "node.koordinator.sh/"
TABLE = "scheduling.koordinator.sh/gpu-partitions"
VENDOR, MODEL, POLICY = f"{NODE}gpu-vendor", f"{NODE}gpu-model", f"{NODE}gpu-partition-policy"


class Books:
    """The devices of one node. Amounts by device type and minor.

    `total`: {} where a device is sick, or is known from pods alone. Upstream remembers what it knew from pods that are
    gone, until the next report or restart; that is not the model's.
    """

    def __init__(self):
        self.reported, self.used, self.vfs = {}, {}, {}
        self.holders = {}
        """{device type: {namespace/name: {minor: amounts}}}"""
        self.infos = {}
        """{device type: [entry of the Device]}"""
        self.numa = {}
        """{NUMA node: {device type: [minors]}}"""
        self.tree = None
        """{NUMA node: {PCIe: [minors]}} of GPUs, None unless every GPU has a topology."""
        self.table = None
        """{number of GPUs: [[partition of the same score]]} by ascending score."""
        self.honour = self.well_planned = False

    def put_device(self, device):
        """A Device appeared or changed."""
        labels = device["metadata"].get("labels") or {}
        entries = device["spec"].get("devices") or []
        self.infos, self.numa = {}, {}
        for entry in entries:
            self.infos.setdefault(entry["type"], []).append(entry)
            numa = (entry.get("topology") or {}).get("nodeID", -1)
            if numa != -1:
                self.numa.setdefault(numa, {}).setdefault(entry["type"], []).append(entry["minor"])
        self.tree = tree_of(self.infos.get("gpu", []))
        self.table = table_of(device)
        self.honour = labels.get(POLICY) == "Honor"
        self.well_planned = labels.get(f"{NODE}secondary-device-well-planned") == "true"
        self.reported = {
            kind: {entry["minor"]: total_of(entry) for entry in listed} for kind, listed in self.infos.items()
        }

    def remove_device(self):
        """The Device is gone: all of its devices are sick."""
        self.reported = {kind: {minor: {} for minor in devices} for kind, devices in self.reported.items()}

    @property
    def total(self):
        """What devices have."""
        unknown = {kind: {minor: {} for minor in devices} for kind, devices in self.used.items()}
        return {kind: {**unknown.get(kind, {}), **self.reported.get(kind, {})} for kind in {**unknown, **self.reported}}

    def add(self, key, allocations):
        """A pod `namespace/name` holds devices; nothing happens if it is known."""
        for kind, entries in allocations.items():
            holders = self.holders.setdefault(kind, {})
            if key in holders:
                continue
            used = self.used.setdefault(kind, {})
            for entry in entries:
                used[entry["minor"]] = added(used.get(entry["minor"], {}), entry["resources"])
                if entry["vfs"]:
                    self.vfs.setdefault(kind, {}).setdefault(entry["minor"], set()).update(entry["vfs"])
            holders[key] = {entry["minor"]: entry["resources"] for entry in entries}

    def remove(self, key, allocations):
        """A pod that holds devices is gone; nothing happens if it is unknown."""
        for kind, entries in allocations.items():
            if self.holders.get(kind, {}).pop(key, None) is None:
                continue
            used = self.used[kind]
            for entry in entries:
                used[entry["minor"]] = without(used.get(entry["minor"], {}), entry["resources"])
                if not used[entry["minor"]]:
                    del used[entry["minor"]]
                self.vfs.get(kind, {}).get(entry["minor"], set()).difference_update(entry["vfs"])
            if not used:
                del self.used[kind]

    def held(self, key):
        """{device type: {minor: amounts}} of a pod."""
        return {kind: holders[key] for kind, holders in self.holders.items() if holders.get(key)}

    def free(self, kind):
        """{minor: what is left}."""
        used = self.used.get(kind, {})
        return {
            minor: less(total, used[minor]) if minor in used else dict(total)
            for minor, total in self.total.get(kind, {}).items()
        }

    def entry(self, kind, minor):
        """What the Device says of a device, None if it does not know it."""
        return next((entry for entry in self.infos.get(kind, ()) if entry["minor"] == minor), None)

    def pcie(self, kind, minor):
        """The PCIe of a device, None without a topology."""
        entry = self.entry(kind, minor)
        return (entry or {}).get("topology", {}).get("pcieID")


def total_of(entry):
    return read(entry.get("resources")) if entry.get("health") else {}


def tree_of(gpus):
    if not gpus or not all(entry.get("topology") for entry in gpus):
        return None
    tree = {}
    for entry in sorted(gpus, key=lambda entry: entry["minor"]):
        topology = entry["topology"]
        tree.setdefault(topology["nodeID"], {}).setdefault(topology["pcieID"], []).append(entry["minor"])
    return {numa: dict(sorted(pcies.items())) for numa, pcies in sorted(tree.items())}


def table_of(device):
    """The partition table of a Device, None if it has none that can be read."""
    if not (device["metadata"].get("annotations") or {}).get(TABLE):
        return None
    try:
        listed = annotation(device, TABLE)
        return None if listed is None else {int(n): groups for n, each in listed.items() if (groups := by_score(each))}
    except (Malformed, ValueError):
        return None


def by_score(partitions):
    groups = {}
    for partition in partitions or ():
        score, minors = partition.get("allocationScore", 0), partition.get("minors") or []
        if type(score) is not int or not all(type(minor) is int for minor in minors):
            raise Malformed(partition)
        groups.setdefault(score, []).append({"minors": minors, "score": score, "bandwidth": bandwidth_of(partition)})
    return [group for _, group in sorted(groups.items())]


def hopper():
    """The table of nodes whose Device has none, by their labels."""
    sets = {1: [[i] for i in range(8)], 2: [[i, i + 1] for i in range(0, 8, 2)], 4: [[0, 1, 2, 3], [4, 5, 6, 7]],
            8: [list(range(8))]}  # fmt: skip
    return {n: [[{"minors": minors, "score": 1, "bandwidth": None} for minors in each]] for n, each in sets.items()}


def node_table(labels):
    """(table, whether it must be honoured) by the labels of a node."""
    is_hopper = labels.get(VENDOR, "") in ("", "nvidia") and labels.get(MODEL) in ("H100", "H800", "H20")
    return hopper() if is_hopper else None, labels.get(POLICY) == "Honor"


def templates_of(configmap):
    """{vendor-model: {name: amounts}} of a ConfigMap. Raises ValueError."""
    try:
        listed = yaml.safe_load((configmap.get("data") or {}).get("data.yaml", "")) or {}
        return {
            model: {name: read(amounts) for name, amounts in (each or {}).items()} for model, each in listed.items()
        }
    except (AttributeError, TypeError, yaml.YAMLError) as error:
        raise ValueError(json.dumps(configmap.get("data"))) from error


class World:
    """The objects as they are now, with the books of every node, in the order in which objects came and went."""

    def __init__(self, *objects, templates_at=("koordinator-system", "gpu-shared-resource-templates")):
        self.nodes, self.devices, self.topologies, self.pods, self.books = {}, {}, {}, {}, {}
        self.seen = set()
        """Nodes that have or had a Device."""
        self.templates = {}
        self.templates_at = templates_at
        for thing in objects:
            self.put(thing)

    def put(self, thing):
        """An object appeared or changed."""
        name, kind = thing["metadata"]["name"], thing["kind"]
        if kind == "Node":
            self.nodes[name] = thing
        elif kind == "NodeResourceTopology":
            self.topologies[name] = thing
        elif kind == "Device":
            self.devices[name] = thing
            self.seen.add(name)
            self.books.setdefault(name, Books()).put_device(thing)
        elif kind == "ConfigMap" and (thing["metadata"]["namespace"], name) == self.templates_at:
            with contextlib.suppress(ValueError):
                self.templates = templates_of(thing)
        elif kind == "Pod":
            self._put_pod(thing)

    def _put_pod(self, pod):
        key = key_of(pod)
        self._remove_pod(key)
        if pod["spec"].get("nodeName") and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            self.pods[key] = pod
            held = held_by(pod)
            if held:
                self.books.setdefault(pod["spec"]["nodeName"], Books()).add(key, held)

    def remove(self, thing):
        """An object is gone."""
        name, kind = thing["metadata"]["name"], thing["kind"]
        if kind == "Node":
            self.nodes.pop(name, None)
            self.books.pop(name, None)
        elif kind == "NodeResourceTopology":
            self.topologies.pop(name, None)
        elif kind == "Device":
            self.devices.pop(name, None)
            self.books[name].remove_device()
        elif kind == "ConfigMap" and (thing["metadata"]["namespace"], name) == self.templates_at:
            self.templates = {}
        elif kind == "Pod":
            self._remove_pod(key_of(thing))

    def _remove_pod(self, key):
        pod = self.pods.pop(key, None)
        if pod is not None and held_by(pod):
            name = pod["spec"]["nodeName"]
            self.books[name].remove(key, held_by(pod))
            if not self.books[name].used and name not in self.seen:
                del self.books[name]

    def pods_on(self, node):
        return [pod for pod in self.pods.values() if pod["spec"]["nodeName"] == node]

    def restarted(self):
        """The same objects, as a scheduler that starts now reads them."""
        world = World(templates_at=self.templates_at)
        for things in (self.nodes, self.topologies, self.devices, self.pods):
            for thing in things.values():
                world.put(thing)
        world.templates = self.templates
        return world


def key_of(pod):
    return f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"


def held_by(pod):
    """What a bound pod holds; what cannot be read counts as nothing."""
    try:
        return allocations_of(pod) or {}
    except Malformed:
        return {}
