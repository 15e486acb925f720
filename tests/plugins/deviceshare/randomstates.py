"""Random nodes with devices, the pods on them and pods to place, as plain API objects, from a seed.

The same seed gives the same state. The naive models place most of the bound pods, so that nodes fill as real ones;
others hold devices that no scheduler would have given.
"""

import json
import random
from dataclasses import dataclass, field

from tests.plugins.deviceshare.implementation import Gone
from tests.plugins.deviceshare.naive.books import NODE, TABLE, World
from tests.plugins.deviceshare.naive.model import ISOLATION, Naive
from tests.plugins.deviceshare.naive.numa import Aligned
from tests.plugins.deviceshare.naive.request import (
    ALLOCATED,
    CORE,
    FPGA,
    GPU,
    HINT,
    JOINT,
    MEMORY,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    PARTITION,
    RATIO,
    RDMA,
    SCHEDULING_HINTS,
    SHARED,
    VENDORS,
)
from tests.plugins.nodenumaresource import naive as numa
from tests.plugins.nodenumaresource.naivemachine import Machine

GIB = 1 << 30
SCORED = (RATIO, MEMORY, CORE, RDMA, FPGA, NPU_CORE)
NICS = {"matchLabels": {"type": "fast"}}
NOT_JSON = ("{", "[]", '"text"', "nope")
MALFORMED = {
    ALLOCATED: ('{"gpu": 5}', '{"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "much"}}]}'),
    HINT: ('{"gpu": 5}', '{"rdma": {"selector": []}}', '{"gpu": {"allocateStrategy": 1}}'),
    JOINT: ('{"deviceTypes": "gpu"}', '{"deviceTypes": [1]}', '{"requiredScope": 1}'),
    PARTITION: ('{"allocatePolicy": 1}', '{"ringBusBandwidth": "wide"}'),
}
LOCKS = (
    "broken",
    "2030-03-17T17:46:30Z,default,gone",
    "2030-03-17T17:46:30Z,default,{}",
    "2030-03-17T17:40:00Z,default,{}",
)
ADAPTED = (("cambricon", "M"), ("metax", "C500"))

ASCEND = "huawei", "Ascend-310P3"
TEMPLATES = f"""
{"-".join(ASCEND)}:
  vir01: {{{MEMORY}: 3Gi, {NPU_CORE}: "1", {NPU_CPU}: "1"}}
  vir02: {{{MEMORY}: 6Gi, {NPU_CORE}: "2", {NPU_CPU}: "2"}}
  vir02_too: {{{MEMORY}: 6Gi, {NPU_CORE}: "2", {NPU_CPU}: "2"}}
  vir04: {{{MEMORY}: 12Gi, {NPU_CORE}: "4", {NPU_CPU}: "4", {NPU_DVPP}: "50"}}
huawei-Ascend-910B:
  vir03: {{{MEMORY}: 5Gi, {NPU_CORE}: "3", {NPU_CPU}: "1"}}
"""
CONFIGMAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"namespace": "koordinator-system", "name": "gpu-shared-resource-templates"},
    "data": {"data.yaml": TEMPLATES},
}


@dataclass
class State:
    """API objects in the order in which they came, and pods to place."""

    args: dict
    gates: tuple
    objects: list = field(default_factory=list)
    pending: list = field(default_factory=list)


def random_state(seed, nodes=5, pending=8, odd=False):
    """The State of a seed, a number or a text. `odd`: with what is rare, and pods that are bound to CPUs."""
    return Draw(random.Random(f"device-{seed}"), nodes, pending, odd).state


class Draw:
    """Draws one thing after the other. `state`: what was drawn."""

    def __init__(self, rng, nodes, pending, odd):
        self.rng, self.odd = rng, odd
        gates = ("DevicePluginAdaption",) if self.often(0.5) else ()
        self.state = State(self.args(), gates)
        self.world = World()
        self.models = Aligned(numa.Naive(), Naive(self.world, self.state.args, gates))
        if self.often(0.9):
            self.put(CONFIGMAP)
        for at in range(nodes):
            self.node(f"n{at}")
        self.state.pending = [self.pod(f"p{at}") for at in range(pending)]

    def often(self, share):
        return self.rng.random() < share

    def rarely(self, share):
        return self.odd and self.rng.random() < share

    def put(self, thing):
        self.state.objects.append(thing)
        self.world.put(thing)

    def args(self):
        rng, args = self.rng, {}
        if self.often(0.5):
            names = rng.sample(SCORED, rng.randint(1, 4)) if self.often(0.5) else SCORED[:2]
            weights = [{"name": name, "weight": rng.randint(1, 5)} for name in names]
            args["scoringStrategy"] = {"type": rng.choice(["LeastAllocated", "MostAllocated"]), "resources": weights}
        if self.often(0.2):
            args["gpuShareUnsupportedModels"] = [{"vendor": "nvidia", "model": "H800"}, {"vendor": "", "model": "A10"}]
        if self.often(0.1):
            args["disableDeviceNUMATopologyAlignment"] = True
        if self.often(0.1):
            place = CONFIGMAP["metadata"]
            args["gpuSharedResourceTemplatesConfig"] = {
                "configMapNamespace": place["namespace"],
                "configMapName": place["name"],
                "matchedResources": rng.choice([[NPU_CORE, CORE], [NPU_DVPP]]),
            }
        return args

    # Nodes

    def node(self, name):
        rng, labels = self.rng, {"kubernetes.io/hostname": name}
        vendor, model = rng.choice(
            [(None, None)] * 4
            + [("nvidia", "H800"), (None, "H20"), ("nvidia", "A100"), (None, "A10"), ASCEND, ASCEND, *ADAPTED]
            + [("huawei", "Ascend-310P3-300I-DUO")]
        )
        if vendor:
            labels[f"{NODE}gpu-vendor"] = vendor
        if model:
            labels[f"{NODE}gpu-model"] = model
        if self.often(0.2):
            labels[f"{NODE}gpu-partition-policy"] = rng.choice(["Honor", "Prefer"])
        if self.often(0.3):
            labels[ISOLATION] = rng.choice(["HAMi-core", "other"])
        zones = rng.choice([0, 0, 1, 2, 2, 4])
        if zones and self.often(0.7):
            labels[f"{NODE}numa-topology-policy"] = rng.choice(["SingleNUMANode", "Restricted", "BestEffort"])
        annotations = {}
        if self.often(0.4):
            keys = ("hami.io/mutex.lock", "cambricon.com/dsmlu.lock")
            annotations = {key: rng.choice(LOCKS).format(f"{name}-h0") for key in keys}
        sizes = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels, "annotations": annotations},
            "spec": {},
            "status": {"allocatable": sizes, "capacity": sizes, "conditions": [{"type": "Ready", "status": "True"}]},
        }
        self.put(node)
        if zones and self.often(0.95):
            self.put(topology(name, zones))
        device = None
        if self.often(0.9):
            device = self.device(name, vendor, model, zones or rng.choice([1, 2]))
            self.put(device)
        self.fill(name, device)

    def device(self, name, vendor, model, numa_nodes):
        rng, labels, annotations = self.rng, {}, {}
        if vendor:
            labels = {f"{NODE}gpu-vendor": vendor, f"{NODE}gpu-model": model}
        if self.often(0.3):
            labels[f"{NODE}gpu-partition-policy"] = rng.choice(["Honor", "Prefer"])
        if self.often(0.3):
            labels[f"{NODE}secondary-device-well-planned"] = rng.choice(["true", "true", "false"])
        gpus = 0 if self.often(0.1) else rng.choice([1, 2, 4, 8, 8, 8])
        if self.often(0.4):
            annotations[TABLE] = self.table(gpus)
        if self.rarely(0.2):
            gpus = 16
        buses = Buses(rng, numa_nodes, first=1 if self.rarely(0.15) else 0)
        entries = self.gpus(gpus, vendor, buses) + self.nics(buses) + self.boards(buses)
        rng.shuffle(entries)
        if self.rarely(0.1):
            entries.append({"type": "xpu", "id": "X", "minor": 0, "health": True, "resources": {CORE: "100"}})
        if self.rarely(0.1):
            for entry in entries:
                entry["minor"] += 60
        return {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Device",
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": {"devices": entries},
        }

    def gpus(self, count, vendor, buses):
        rng = self.rng
        memory = rng.choice([8, 16, 24, 80]) * GIB - rng.choice([0, 0, 1, 123457])
        resources = {CORE: "100", RATIO: "100", MEMORY: str(memory)}
        if vendor == "huawei":
            resources = {NPU_CORE: rng.choice(["8", "20"]), NPU_CPU: "7", NPU_DVPP: "100", RATIO: "100", MEMORY: "24Gi"}
            if self.often(0.3):
                resources[CORE] = "100"
        bare = self.often(0.25)
        sick = 0.3 if self.often(0.25) else 0
        entries = []
        for minor in range(count):
            entry = {"type": "gpu", "id": f"GPU-{minor}", "minor": minor, "health": not self.often(sick)}
            entry["resources"] = resources
            if not bare:
                entry["topology"] = buses.at(minor, count)
            if self.often(0.2):
                entry["labels"] = {"type": rng.choice(["fast", "slow"])}
            entries.append(entry)
        if entries and self.often(0.05):
            entries[0].pop("topology", None)
        return entries

    def nics(self, buses):
        rng, entries = self.rng, []
        count, first = rng.choice([0, 1, 2, 4, 4, 8]), rng.choice([0, 1])
        functions, sick = self.often(0.6), 0.3 if self.often(0.2) else 0
        for at in range(count):
            bus = f"0000:{16 + at:02x}:00"
            entry = {"type": "rdma", "id": f"{bus}.0", "minor": first + at, "health": not self.often(sick)}
            entry["resources"] = {RDMA: "100"}
            if self.often(0.9):
                entry["topology"] = buses.at(at, count)
            if self.often(0.5):
                entry["labels"] = {"type": rng.choice(["fast", "slow"])}
            if functions and self.often(0.8):
                groups = [{"labels": {"type": kind}, "vfs": []} for kind in rng.sample(["fast", "slow"], 2)]
                for each in range(rng.randint(1, 4)):
                    rng.choice(groups)["vfs"].append({"minor": -1, "busID": f"{bus}.{each + 2}"})
                entry["vfGroups"] = groups
            entries.append(entry)
        return entries

    def boards(self, buses):
        if self.often(0.5):
            return []
        count = self.rng.randint(1, 3)
        return [
            {"type": "fpga", "id": f"F{at}", "minor": at, "health": not self.often(0.1), "resources": {FPGA: "100"},
             "topology": buses.at(at, count)}
            for at in range(count)
        ]  # fmt: skip

    def table(self, gpus):
        rng = self.rng
        if self.often(0.1):
            return rng.choice(["{", "null", "{}", '{"2": []}', "[]"])
        table = {}
        for size in (1, 2, 4, 8, 3):
            if size > gpus or self.often(0.2):
                continue
            minors = list(range(gpus))
            if self.often(0.3):
                rng.shuffle(minors)
            groups = [sorted(minors[at : at + size]) for at in range(0, gpus - size + 1, size)]
            table[str(size)] = [self.partition(group) for group in groups]
        return json.dumps(table)

    def partition(self, minors):
        found = {"minors": minors, "gpuLinkType": "NVLink", "allocationScore": self.rng.choice([1, 1, 1, 2, 3])}
        if self.often(0.5):
            found["ringBusBandwidth"] = self.rng.choice(["100Gi", "200Gi", "400Gi"])
        return found

    # Pods

    def fill(self, name, device):
        priorities = self.rng.sample(range(-10, 10), 6)
        for at in range(self.rng.randint(0, 6)):
            pod = self.pod(f"{name}-h{at}", priority=priorities[at])
            annotations = pod["metadata"]["annotations"]
            for key in SCHEDULING_HINTS:
                annotations.pop(key, None)
            if self.often(0.75):
                self.place(pod, name)
            elif device is not None or self.often(0.4):
                self.hold(pod, name, device)

    def place(self, pod, name):
        pod["metadata"]["annotations"].pop(ALLOCATED, None)
        _, wanted = self.models.numa.pre_filter(pod)
        _, asked = self.models.devices.pre_filter(pod)
        if asked is None:
            return
        machine = Machine(self.world.nodes[name], self.world.topologies.get(name), self.world.pods_on(name))
        (_, verdict), allocation, attempt = self.models.reserve(wanted, asked, machine)
        if verdict.passed:
            devices = self.models.devices.written(asked, name, allocation, adapt=False)
            written = {**devices["annotations"], **self.models.numa.written(wanted, machine, attempt.allocation)}
            self.bind(pod, name, written)

    def bind(self, pod, name, written):
        pod["metadata"]["annotations"] |= written
        pod["spec"]["nodeName"] = name
        pod["status"] = {"phase": "Running"}
        self.put(pod)

    def hold(self, pod, name, device):
        """Devices by chance, whether they are free or there at all."""
        rng, listed = self.rng, {}
        entries = (device or {"spec": {"devices": []}})["spec"]["devices"]
        for kind in rng.sample(["gpu", "rdma", "fpga"], rng.randint(1, 2)):
            minors = [entry["minor"] for entry in entries if entry["type"] == kind] or [0]
            if self.often(0.1):
                minors.append(9)
            taken = rng.sample(minors, min(len(minors), rng.randint(1, 2)))
            listed[kind] = [self.held(kind, minor) for minor in taken]
        self.bind(pod, name, {ALLOCATED: self.text(ALLOCATED, listed)})

    def held(self, kind, minor):
        rng = self.rng
        if kind != "gpu":
            name = RDMA if kind == "rdma" else FPGA
            held = {"minor": minor, "resources": {name: str(rng.choice([1, 1, 50, 100, 150]))}}
            if kind == "rdma" and self.often(0.5):
                functions = rng.sample([2, 3, 4], rng.randint(1, 2))
                bus = f"0000:{16 + minor:02x}:00"
                held["extension"] = {"vfs": [{"minor": -1, "busID": f"{bus}.{each}"} for each in functions]}
            return held
        share = rng.choice([10, 25, 50, 100])
        amounts = {RATIO: str(share)}
        if self.often(0.8):
            amounts[MEMORY] = str(share * 8 * GIB // 100)
        if self.often(0.8):
            amounts[CORE] = str(share)
        return {"minor": minor, "resources": amounts}

    def pod(self, name, priority=100):
        rng, labels, annotations = self.rng, {}, {}
        requests = {"cpu": rng.choice(["1", "4", "20"]), "memory": rng.choice(["1Gi", "70Gi"])}
        requests |= self.wanted()
        if self.often(0.1):
            labels[ISOLATION] = "HAMi-core"
        if self.often(0.5):
            hints = {kind: self.hint(kind) for kind in ("gpu", "rdma", "fpga") if self.often(0.5)}
            if self.often(0.05):
                hints["gpu"] = None
            annotations[HINT] = self.text(HINT, hints)
        if self.often(0.4):
            kinds = rng.choice([["gpu", "rdma"], ["gpu", "rdma"], ["rdma", "gpu"], ["gpu", "rdma", "fpga"], ["fpga"]])
            joint = {"deviceTypes": kinds, **({"requiredScope": "SamePCIe"} if self.often(0.4) else {})}
            annotations[JOINT] = self.text(JOINT, joint)
        if self.often(0.2):
            spec = {}
            if self.often(0.4):
                spec["allocatePolicy"] = rng.choice(["Restricted", "BestEffort"])
            if self.often(0.3):
                spec["ringBusBandwidth"] = rng.choice(["100Gi", "200Gi", "1Ti"])
            annotations[PARTITION] = self.text(PARTITION, spec)
        if self.often(0.1):
            functions = self.often(0.3)
            if functions:
                requests[RDMA] = "1"
                annotations[HINT] = json.dumps({"rdma": {"vfSelector": {}}})
            annotations[ALLOCATED] = self.designated(functions)
            if self.often(0.8):
                annotations[rng.choice(SCHEDULING_HINTS)] = json.dumps({"extensions": {"DeviceShare": {}}})
        overhead = {"overhead": {"cpu": "1"}} if self.often(0.05) else {}
        if self.rarely(0.4):
            labels["koordinator.sh/qosClass"] = rng.choice(["LSR", "LSE"])
            priority = 9500 + priority % 100 if priority < 100 else 9700
        if self.rarely(0.1):
            first = {"name": "first", "image": "app", "resources": {"requests": {**requests, "cpu": "2"}}}
            overhead["initContainers"] = [first]
        if self.rarely(0.2):
            requests = {key: f"{amount}000m" if amount.isdigit() else amount for key, amount in requests.items()}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "labels": labels,
                "annotations": annotations,
            },
            "spec": {
                "schedulerName": "koord-scheduler",
                "priority": priority,
                **overhead,
                "containers": [
                    {"name": "main", "image": "app", "resources": {"requests": requests, "limits": limits(requests)}}
                ],
            },
        }

    def text(self, key, value):
        """The value as JSON; now and then something else."""
        rare = self.rng.random()
        if rare < 0.96:
            return json.dumps(value)
        return self.rng.choice(MALFORMED[key] if rare < 0.98 else NOT_JSON)

    def designated(self, functions):
        listed = {"gpu": [self.held("gpu", minor) for minor in self.rng.sample(range(4), self.rng.randint(1, 2))]}
        if functions or self.often(0.3):
            listed["rdma"] = [self.held("rdma", self.rng.randint(0, 2))]
        return self.text(ALLOCATED, listed)

    def wanted(self):
        rng = self.rng
        if self.often(0.03):
            return {}
        wanted = self.wanted_gpus() if self.often(0.8) else {}
        if self.often(0.5) or (not wanted and self.often(0.7)):
            wanted[RDMA] = rng.choice([1, 1, 2, 4, 50, 100, 200, 300] if self.often(0.97) else [101])
        if self.often(0.15):
            wanted[FPGA] = rng.choice([25, 50, 100, 200] if self.often(0.95) else [150])
        if self.often(0.05):
            wanted = {name.replace("koordinator.sh/", "kubernetes.io/") if "shared" not in name else name: n
                      for name, n in wanted.items()}  # fmt: skip
        return {name: str(n) for name, n in wanted.items()}

    def wanted_gpus(self):
        rng = self.rng
        count = rng.choice([1, 1, 1, 2, 2, 3, 4, 5, 8])
        share = rng.choice([10, 25, 50, 60, 100])
        forms = [
            *[{rng.choice(VENDORS): count}] * 4,
            *[{GPU: 100 * count}] * 2,
            *[{GPU: share}] * 3,
            {GPU: 101},
            {RATIO: share},
            {RATIO: 100 * count},
            {CORE: share, RATIO: share},
            {CORE: 100 * count, RATIO: 100 * count},
            {MEMORY: rng.choice([1, 3, 4, 12]) * GIB},
            {CORE: rng.choice([share, 200]), MEMORY: rng.choice([2, 4]) * GIB + 1},
            *[{SHARED: count, CORE: share * count, RATIO: share * count}] * 2,
            {SHARED: count, RATIO: 100 * count},
            {SHARED: count, MEMORY: count * GIB},
            {CORE: 10, MEMORY: 1000},
            {CORE: share, RATIO: 1},
            {SHARED: count, CORE: 10 * count, MEMORY: count * GIB},
            {SHARED: count, RATIO: 100 * count + 1},
            {SHARED: 1, RATIO: 150},
            {NPU_CORE: 20 * count, RATIO: 100 * count},
            {NPU_CORE: 8 * count, RATIO: 100 * count},
            {SHARED: rng.choice([1, 1, 1, 2]), NPU_CORE: 1, NPU_CPU: 1, MEMORY: 3 * GIB},
            {SHARED: 1, NPU_CORE: 2, NPU_CPU: 2, MEMORY: 6 * GIB},
            {SHARED: 1, NPU_CORE: 4, NPU_CPU: 4, NPU_DVPP: 50, MEMORY: 12 * GIB},
            {SHARED: 1, NPU_CORE: 3, NPU_CPU: 1, MEMORY: 5 * GIB},
            {SHARED: 1, NPU_CORE: 7, NPU_CPU: 7, MEMORY: 5 * GIB},
            {CORE: 100},
            {RATIO: 101},
            {VENDORS[0]: 1, GPU: 100},
        ]
        return rng.choice(forms)

    def hint(self, kind):
        rng, hint = self.rng, {}
        if self.often(0.3):
            hint["selector"] = rng.choice([NICS, {}, {"matchLabels": {"type": "none"}}, NICS, any_of("fast", "slow")])
        if kind == "rdma" and self.often(0.4):
            hint["vfSelector"] = rng.choice([{}, {}, NICS])
        if kind == "gpu" and self.often(0.05):
            hint["vfSelector"] = {}
        if self.often(0.3):
            hint["allocateStrategy"] = rng.choice(["ApplyForAll", "RequestsAsCount", "whatever"])
        if kind == "gpu" and self.often(0.6):
            hint["requiredTopologyScope"] = rng.choice(["Node", "NUMANode", "PCIe", "PCIe", "Device", "whatever"])
        if self.often(0.2):
            hint["exclusivePolicy"] = rng.choice(["DeviceLevel", "PCIeLevel"])
        return hint


class Buses:
    """PCIe switches of a machine."""

    def __init__(self, rng, numa_nodes, first=0):
        self.numa_nodes, self.rng, self.first = numa_nodes, rng, first
        self.per_switch = rng.choice([1, 2, 2, 4])
        self.unknown = 0.2 if rng.random() < 0.1 else 0

    def at(self, position, count):
        """The topology of the device at a position out of `count`."""
        numa_node = self.first + position * self.numa_nodes // count
        switch = position * 8 // max(count, 1) // self.per_switch
        if self.rng.random() < self.unknown:
            numa_node = -1
        return {"socketID": -1, "nodeID": numa_node, "pcieID": str(switch), "busID": f"0000:{position:02x}:00.0"}


def any_of(*values):
    return {"matchExpressions": [{"key": "type", "operator": "In", "values": list(values)}]}


def limits(requests):
    """Extended resources need limits."""
    return {name: amount for name, amount in requests.items() if "/" in name}


def topology(name, zones):
    """The report of a node with 64 CPUs and 256Gi on as many NUMA nodes."""
    per_zone = 64 // zones
    cpus = [{"id": cpu, "core": cpu // 2, "socket": 0, "node": cpu // per_zone} for cpu in range(64)]

    def zone(at):
        sizes = {"cpu": str(per_zone), "memory": f"{256 // zones}Gi"}
        resources = [{"name": key, "capacity": n, "allocatable": n, "available": n} for key, n in sizes.items()]
        return {"name": f"node-{at}", "type": "Node", "resources": resources}

    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name, "annotations": {f"{NODE}cpu-topology": json.dumps({"detail": cpus})}},
        "topologyPolicies": ["None"],
        "zones": [zone(at) for at in range(zones)],
    }


def random_events(seed, steps=40):
    """(State, events): the objects of a state come, change and go. Events are objects and Gone."""
    rng = random.Random(f"device-events-{seed}")
    state = random_state(f"e{seed}", nodes=3)
    events, there, away = list(state.objects), {identity(thing): thing for thing in state.objects}, []
    for _ in range(steps):
        if away and rng.random() < 0.4:
            thing = away.pop(rng.randrange(len(away)))
        else:
            thing = there[rng.choice(sorted(there))]
            kind, chance = thing["kind"], rng.random()
            if kind != "Node" and chance < 0.5:
                events.append(Gone(there.pop(identity(thing))))
                away.append(thing)
                continue
            if kind == "Pod":
                ended = {**thing, "status": {"phase": "Succeeded"}}
                events += [ended, Gone(ended)]
                away.append(there.pop(identity(thing)))
                continue
            thing = changed(thing, rng)
        if thing["kind"] == "Pod":
            thing = {**thing, "metadata": {**thing["metadata"], "uid": f"uid-{rng.random()}"}}
        there[identity(thing)] = thing
        events.append(thing)
    return state, events


def identity(thing):
    return thing["kind"], thing["metadata"]["name"]


def changed(thing, rng):
    """The object with something that changed."""
    thing = json.loads(json.dumps(thing))
    if thing["kind"] == "Device":
        entries = thing["spec"]["devices"]
        for entry in entries:
            if rng.random() < 0.2:
                entry["health"] = not entry["health"]
        if entries and rng.random() < 0.3:
            entries.pop()
        if rng.random() < 0.2:
            thing["metadata"]["annotations"].pop(TABLE, None)
    elif thing["kind"] == "Node":
        labels = thing["metadata"]["labels"]
        labels[f"{NODE}gpu-partition-policy"] = rng.choice(["Honor", "Prefer"])
        labels[ISOLATION] = rng.choice(["HAMi-core", "other"])
        labels[f"{NODE}gpu-model"] = rng.choice(["H800", "A10", "A100"])
    return thing
