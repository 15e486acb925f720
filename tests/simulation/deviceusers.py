"""The agents of nodes, which report GPUs, NICs and FPGAs, those devices, which fail and heal, users who want some."""

import json
from random import Random

from tests.plugins.deviceshare.columns import row_state
from tests.plugins.deviceshare.machines import GIB, fpga, gpu, nic
from tests.plugins.deviceshare.naive.books import MODEL, NODE, POLICY, TABLE, VENDOR, held_by
from tests.plugins.deviceshare.naive.model import ISOLATION
from tests.plugins.deviceshare.naive.request import (
    ALLOCATED,
    CORE,
    FPGA,
    GPU,
    HINT,
    JOINT,
    MEMORY,
    PARTITION,
    RATIO,
    RDMA,
    SCHEDULING_HINTS,
    SHARED,
)
from tests.simulation import agentusers
from tests.simulation.agentusers import AgentUsers
from tests.simulation.apiserver import call_later
from tests.simulation.configuration import device_args, has_vendors
from tests.simulation.vendordevices import VendorDevices

API_VERSION, KIND = "scheduling.koordinator.sh/v1alpha1", "Device"
WHOLE = "nvidia.com/gpu"
WELL_PLANNED = f"{NODE}secondary-device-well-planned"

MACHINES = (
    {"gpus": 2, "nics": 0},
    {"gpus": 2, "nics": 1, "functions": 2},
    {"gpus": 4, "nics": 2, "functions": 2, "per_switch": 2},
    {"gpus": 4, "nics": 4, "functions": 1, "per_switch": 1},
    {"gpus": 4, "nics": 1, "per_switch": 2, "table": True},
    {"gpus": 8, "nics": 2, "functions": 1, "per_switch": 2, "model": "H800"},
    {"gpus": 0, "nics": 2, "functions": 3},
    {"gpus": 1, "nics": 0, "fpgas": 2},
)
"""`functions`: virtual functions of each NIC; `per_switch`: GPUs on one PCIe switch, absent where it is not known."""

TABLES = (
    '{"1":[{"minors":[0]},{"minors":[1]},{"minors":[2]},{"minors":[3]}],'
    '"2":[{"minors":[0,1],"allocationScore":2},{"minors":[2,3],"allocationScore":1}]}',
    '{"2":[{"minors":[0,2]},{"minors":[1,3]}],"4":[{"minors":[0,1,2,3]}]}',
    "{}",
    "{",
)
FOREIGN = (
    json.dumps({"gpu": [{"minor": 0, "resources": {CORE: "50", RATIO: "50", MEMORY: "4Gi"}}]}),
    json.dumps({"gpu": [{"minor": 1, "resources": {RATIO: "100"}}, {"minor": 9, "resources": {RATIO: "10"}}]}),
    json.dumps({"rdma": [{"minor": 0, "resources": {RDMA: "1"}, "extension": {"vfs": [{"busID": "0000:10:00.2"}]}}]}),
    json.dumps({"fpga": [{"minor": 0, "resources": {FPGA: "100"}}]}),
    "{}",
    "{",
)


class DeviceUsers(AgentUsers):
    """Acts on the objects."""

    API_VERSION, KIND, ALLOCATION, FOREIGN = API_VERSION, KIND, ALLOCATED, FOREIGN
    STREAM = "device users"

    def __init__(self, simulation):
        super().__init__(simulation, device_args(simulation.plan), "devices")
        self._is_generous = self.rng.random() < 0.5
        self._improved = bool(self.args.get("improvedAllocation"))
        self.more = Random(f"{simulation.plan.seed} {self.STREAM}, what came later")
        """Worlds without what came later stay what they were."""
        self.vendors = VendorDevices(simulation) if has_vendors(simulation.plan) else None
        self._sick = {}
        """Node -> (type, minor) of what failed."""
        self._ever = set()
        """Nodes that have reported: they do so again in the end."""

    def settle_in(self):
        """Besides, a Device may be of a node that is not there."""
        super().settle_in()
        if self.vendors is not None:
            self.vendors.write_templates()
        if self.rng.random() < 0.3:
            self._report("nowhere")

    def actions(self):
        """(weight, action) of what happens."""
        vendors = [(1, self.vendors.change_templates)] if self.vendors is not None else []
        return [
            *vendors,
            (4, self._report_some),
            (3, self._fail_some),
            (3, self._heal_some),
            (0.7, self._lose_report),
            (0.4, self._rebuild_machine),
            (0.6, self._move),
        ]

    def tidy_up(self):
        """In the end every Device is there that ever was, and most devices are well. At rest some heal at last, some
        Devices come, and pods leave: others are woken by that."""
        if self.vendors is not None:
            self.vendors.write_templates()
        for node in self.server.objects("Node"):
            chance, name = self.rng.random(), node["metadata"]["name"]
            if self.rng.random() < 0.6:
                self._sick.pop(name, None)
            if self.rng.random() < 0.3:
                self._sick[name] = {(kind, minor) for kind in ("gpu", "rdma", "fpga") for minor in range(8)}
            if name in self._sick and self.rng.random() < 0.8:
                call_later(self.rng.uniform(8, 20), self._heal, name)
            if chance < 0.6:
                self._report(name)
            elif chance < 0.85 or name in self._ever:
                call_later(self.rng.uniform(10, 20), self._report, name)
        for _ in range(self.rng.choice([0, 8, 16])):
            self._ask_for_devices()
        self._end_some()
        if self._simulation.faults is None and self.rng.random() < 0.5:
            self._report("late")
            call_later(self.rng.uniform(20, 40), self._simulation.users.add_node, "late")

    def _ask_for_devices(self):
        """A pod to which little else matters."""
        users = self._simulation.users
        pod = users.new_pod("web", {"cpu": "100m"})
        pod["metadata"].pop("annotations", None)
        amounts = self.rng.choice([{GPU: "100"}, {GPU: "50"}, {WHOLE: "2"}, {RDMA: "1"}, {WHOLE: "1", RDMA: "1"}])
        _want(pod, amounts)
        if RDMA in amounts:
            pod["metadata"]["annotations"] = {HINT: json.dumps({"rdma": {"vfSelector": {}}})}
        users.insert(pod)

    def _has_some(self, pod):
        return bool(held_by(pod))

    # --- nodes ---------------------------------------------------------------------------------------

    def equip_node(self, node):
        """What the kubelet and Koordinator's manager say: the sum of what there is; in some worlds more of everything,
        so that devices alone refuse pods."""
        meta, machine = node["metadata"], self._machine(node["metadata"]["name"])
        gpus, percent = machine["gpus"], 100 * machine["gpus"]
        amounts = {GPU: percent, CORE: percent, RATIO: percent, SHARED: percent, MEMORY: gpus * machine["memory"]}
        amounts |= {WHOLE: gpus, RDMA: 100 * machine["nics"], FPGA: 100 * machine.get("fpgas", 0)}
        if self._is_generous:
            amounts = {name: 10_000 * GIB if name == MEMORY else 10_000 for name in amounts}
        node["status"]["allocatable"] |= {name: str(amount) for name, amount in amounts.items() if amount}
        if self._simulation.numa is None and self.rng.random() < 0.7:  # devices are scarcer than all else
            node["status"]["allocatable"] |= {"cpu": "16", "memory": "64Gi", "pods": "110"}
        if "vendor" in machine:
            meta["labels"] |= {MODEL: machine["model"], VENDOR: machine["vendor"]}
            node["status"]["allocatable"] |= {name: "10000" for name in machine.get("resources", ()) if "npu" in name}
        elif "model" in machine and self.rng.random() < 0.8:
            meta["labels"] |= {MODEL: machine["model"], VENDOR: "nvidia"}
            if self.rng.random() < 0.4:
                meta["labels"][POLICY] = self.rng.choice(["Honor", "Prefer"])
        if self._improved and self.more.random() < 0.5:
            meta["labels"][ISOLATION] = self.more.choice(["HAMi-core", "other"])

    def _machine(self, name):
        if name not in self._machines:
            machine = self.rng.choice(MACHINES)
            if self.vendors is not None:
                machine = self.vendors.machine() or machine
            memory = self.rng.choice([8, 16]) * GIB - self.rng.choice([0, 12345])
            self._machines[name] = {**machine, "memory": memory, "label": self.rng.choice(["fast", "slow"])}
        return self._machines[name]

    # --- Devices -------------------------------------------------------------------------------------

    def _report(self, name):
        machine, rng, sick = self._machine(name), self.rng, self._sick.get(name, ())
        self._ever.add(name)
        zones = self._simulation.numa.zones(name) if self._simulation.numa is not None else 2
        gpus, nics = machine["gpus"], machine["nics"]

        def place(number, count):
            if "per_switch" not in machine:
                return None
            return str(number * max(gpus, 1) // count // machine["per_switch"]), number * zones // count

        own = machine.get("resources", {})
        entries = [gpu(minor, str(machine["memory"]), place(minor, gpus), **own) for minor in range(gpus)]
        entries += [
            nic(minor, place(minor, nics), functions=machine.get("functions", 0), labels={"type": machine["label"]})
            for minor in range(nics)
        ]
        entries += [fpga(minor) for minor in range(machine.get("fpgas", 0))]
        for entry in entries:
            entry["health"] = (entry["type"], entry["minor"]) not in sick
        labels = {VENDOR: machine["vendor"], MODEL: machine["model"]} if "vendor" in machine else {}
        annotations = {}
        if machine.get("table"):
            annotations[TABLE] = rng.choice(TABLES)
            if rng.random() < 0.5:
                labels[POLICY] = rng.choice(["Honor", "Prefer"])
        if rng.random() < 0.05:
            labels[WELL_PLANNED] = rng.choice(["true", "false"])
        self._write(name, {"labels": labels, "annotations": annotations}, {"spec": {"devices": entries}})

    def _fail_some(self):
        """Devices of a node are not healthy any more."""
        name = self._some_report()
        if name is None:
            return
        entries = self.server.get(KIND, name, api_version=API_VERSION)["spec"]["devices"]
        if entries:
            entry = self.rng.choice(entries)
            self._sick.setdefault(name, set()).add((entry["type"], entry["minor"]))
            self._set_health(name)

    def _heal_some(self):
        if self._sick:
            self._heal(self.rng.choice(sorted(self._sick)))

    def _heal(self, name):
        self._sick.pop(name, None)
        self._set_health(name)

    def _set_health(self, name):
        sick = self._sick.get(name, ())

        def make(thing):
            for entry in thing["spec"]["devices"]:
                entry["health"] = (entry["type"], entry["minor"]) not in sick

        self._change_report(name, make)

    # --- pods ----------------------------------------------------------------------------------------

    def equip_pod(self, pod):
        """What a pod asks for."""
        rng, meta = self.rng, pod["metadata"]
        if rng.random() < 0.2:
            return
        annotations, hints = {}, {}
        amounts = rng.choice(
            [
                *[{GPU: rng.choice(["25", "50", "60"])}] * 3,
                *[{WHOLE: rng.choice(["1", "1", "2", "4"])}] * 4,
                {RATIO: rng.choice(["30", "100", "200"])},
                {CORE: "50", MEMORY: str(rng.choice([2, 3]) * GIB + 1)},
                {MEMORY: str(3 * GIB)},
                {SHARED: "2", CORE: "100", RATIO: "60"},
                {GPU: "101"},
                {FPGA: rng.choice(["50", "100", "200"])},
                {},
            ]
        )
        amounts = (self.vendors.amounts() if self.vendors is not None else None) or amounts
        if not amounts or rng.random() < 0.35:
            amounts = {**amounts, RDMA: rng.choice(["1", "1", "2", "50", "100"])}
            hint = hints.setdefault("rdma", {})
            if rng.random() < 0.6:
                hint["vfSelector"] = {}
            if rng.random() < 0.2:
                hint["selector"] = {"matchLabels": {"type": "fast"}}
            if rng.random() < 0.3:
                hint["allocateStrategy"] = rng.choice(["ApplyForAll", "RequestsAsCount"])
            if len(amounts) > 1 and rng.random() < 0.6:
                scope = {"requiredScope": "SamePCIe"} if rng.random() < 0.5 else {}
                annotations[JOINT] = json.dumps({"deviceTypes": ["gpu", "rdma"], **scope})
        if rng.random() < 0.1:
            hints["gpu"] = {"requiredTopologyScope": rng.choice(["PCIe", "NUMANode", "Node"])}
        if rng.random() < 0.15:
            annotations[PARTITION] = rng.choice(["{}", '{"allocatePolicy":"Restricted"}', "{}", "null"])
        if self._improved:
            if self.more.random() < 0.2:
                meta["labels"] = {**meta.get("labels", {}), ISOLATION: self.more.choice(["HAMi-core", ""])}
            if self.more.random() < 0.2:
                hints.setdefault(self.more.choice(["gpu", "rdma"]), {})["exclusivePolicy"] = "PCIeLevel"
        if hints:
            annotations[HINT] = json.dumps(hints) if rng.random() < 0.97 else "{"
        if rng.random() < (0.4 if pod["spec"].get("nodeName") else 0.1):
            annotations[ALLOCATED] = rng.choice(FOREIGN)
            if rng.random() < 0.3:
                annotations[SCHEDULING_HINTS[0]] = '{"extensions":{"DeviceShare":{}}}'
        _want(pod, amounts)
        meta["annotations"] = {**meta.get("annotations", {}), **annotations}


def believed(scheduler):
    """Node -> what the columns say about its devices."""
    return agentusers.believed(scheduler, "DeviceShare", row_state)


def _want(pod, amounts):
    resources = pod["spec"]["containers"][0]["resources"]
    resources["requests"] = {**resources.get("requests", {}), **amounts}
    resources["limits"] = {**resources.get("limits", {}), **amounts}
