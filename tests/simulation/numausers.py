"""The agents of nodes, which report CPUs and NUMA nodes, administrators who set policies, users who want CPUs of their
own."""

import json
from math import prod

from tests.plugins.nodenumaresource.cluster import row_state
from tests.plugins.nodenumaresource.machines import detail
from tests.plugins.nodenumaresource.naivemachine import NODE, SCHEDULING, Allocation, format_cpus, holding
from tests.simulation import agentusers
from tests.simulation.agentusers import AgentUsers, annotate
from tests.simulation.apiserver import call_later
from tests.simulation.configuration import numa_args

API_VERSION, KIND = "topology.node.k8s.io/v1alpha1", "NodeResourceTopology"
STATUS, SPEC = f"{SCHEDULING}resource-status", f"{SCHEDULING}resource-spec"
RATIO = f"{NODE}resource-amplification-ratio"

NOTHING = Allocation()
MACHINES = ((1, 1, 2, 2), (1, 2, 2, 2), (2, 1, 2, 2), (2, 1, 3, 2), (1, 1, 4, 1), (2, 2, 1, 2), (2, 2, 2, 2))
"""Sockets, NUMA nodes per socket, cores per NUMA node, CPUs per core."""
NUMA_POLICIES = ("SingleNUMANode", "Restricted", "BestEffort")
BIND_POLICIES = ("FullPCPUs", "SpreadByPCPUs")
SPECS = (
    *(({"requiredCPUBindPolicy": policy}) for policy in BIND_POLICIES),
    *(({"preferredCPUBindPolicy": policy}) for policy in BIND_POLICIES),
    {"requiredCPUBindPolicy": "FullPCPUs", "preferredCPUExclusivePolicy": "PCPULevel"},
    {"preferredCPUExclusivePolicy": "NUMANodeLevel"},
    {"preferredCPUBindPolicy": "Default"},
    {},
)
FOREIGN = (
    '{"cpuset":"0-1"}',
    '{"cpuset":"2,70"}',
    '{"cpuset":"0-',
    '{"numaNodeResources":[{"node":0,"resources":{"cpu":"1"}}]}',
    "{}",
)


class NumaUsers(AgentUsers):
    """Acts on the objects."""

    API_VERSION, KIND, ALLOCATION, FOREIGN = API_VERSION, KIND, STATUS, FOREIGN
    STREAM = "numa users"

    def __init__(self, simulation):
        super().__init__(simulation, numa_args(simulation.plan), "noderesourcetopologies")

    def actions(self):
        """(weight, action) of what happens."""
        return [
            (6, self._report_some),
            (0.6, self._lose_report),
            (0.6, self._garble_report),
            (0.5, self._rebuild_machine),
            (2, self._set_policy),
            (0.5, self._amplify),
            (0.7, self._move),
        ]

    def tidy_up(self):
        """Most agents are well in the end. At rest some report at last, and pods leave: others are woken by that."""
        for node in self.server.objects("Node"):
            chance, name = self.rng.random(), node["metadata"]["name"]
            if chance < 0.6:
                self._report(name)
            elif chance < 0.9:
                call_later(self.rng.uniform(10, 20), self._report, name)
        for _ in range(self.rng.choice([0, 4, 8])):
            self._ask_for_cores()
        self._end_some()

    def _ask_for_cores(self):
        """A pod to which little else matters than CPUs of its own."""
        users = self._simulation.users
        pod = users.new_pod("web", {"cpu": "2", "memory": "100Mi"})
        pod["metadata"]["labels"]["koordinator.sh/qosClass"] = "LSR"
        pod["metadata"]["annotations"] = {SPEC: json.dumps({"requiredCPUBindPolicy": self.rng.choice(BIND_POLICIES)})}
        users.insert(pod)

    def _has_some(self, pod):
        return bool((holding(pod) or NOTHING).cpus)

    # --- nodes ---------------------------------------------------------------------------------------

    def equip_node(self, node):
        """A node is of a machine, which it keeps when it comes back; what it is to be used for may be another."""
        meta, rng = node["metadata"], self.rng
        machine = self._machine(meta["name"])
        cpus, memory = len(machine["detail"]), machine["memory"] * machine["zones"]
        ratio = rng.choice([1.5, 2]) if rng.random() < 0.3 else 1
        node["status"]["allocatable"] |= {"cpu": f"{int(cpus * ratio * 1000)}m", "memory": f"{memory}Gi"}
        meta["labels"] |= self._policies()
        if ratio > 1:
            meta["annotations"] = {**meta.get("annotations", {}), RATIO: json.dumps({"cpu": ratio})}

    def _machine(self, name):
        if name not in self._machines:
            layout = self.rng.choice(MACHINES)
            zones = prod(layout[:2])
            apart, memory = self.rng.random() < 0.5, self.rng.choice([2, 4])
            self._machines[name] = {"detail": detail(*layout, apart=apart), "zones": zones, "memory": memory}
        return self._machines[name]

    def zones(self, name):
        """How many NUMA nodes a machine has."""
        return self._machine(name)["zones"]

    def _policies(self):
        rng, labels = self.rng, {}
        if rng.random() < 0.5:
            labels[f"{NODE}numa-topology-policy"] = rng.choice([*NUMA_POLICIES, "SingleNUMANode", "None"])
        if rng.random() < 0.3:
            labels[f"{NODE}cpu-bind-policy"] = rng.choice(["FullPCPUsOnly", "SpreadByPCPUs", "None"])
        if rng.random() < 0.3:
            labels[f"{NODE}numa-allocate-strategy"] = rng.choice(["MostAllocated", "LeastAllocated"])
        return labels

    def _change_node(self, make):
        name = self._some_node()
        if name is not None:
            self.server.change("Node", name, make)

    def _set_policy(self):
        policies = self._policies()
        self._change_node(lambda node: node["metadata"].update(labels={**_others(node), **policies}))

    def _amplify(self):
        """Less or more is offered than there is; sometimes the annotation makes no sense."""
        text = self.rng.choice(['{"cpu":1.5}', '{"cpu":2}', '{"cpu":1}', "{", None])
        self._change_node(lambda node: annotate(node, RATIO, text))

    # --- reports -------------------------------------------------------------------------------------

    def _report(self, name):
        machine, rng = self._machine(name), self.rng
        cpus = [cpu["id"] for cpu in machine["detail"]]
        shown = machine["detail"]
        if rng.random() < 0.07:  # some CPUs are offline
            shown = [cpu for cpu in shown if rng.random() < 0.8] or shown
        annotations = {f"{NODE}cpu-topology": {"detail": shown}}
        if rng.random() < 0.3:
            pinned = format_cpus(rng.sample(cpus, rng.choice([1, 2])))
            alloc = {"namespace": "default", "name": "pinned", "uid": "pinned", "cpuset": pinned}
            annotations[f"{NODE}pod-cpu-allocs"] = [{**alloc, "managedByKubelet": rng.random() < 0.8}]
        if rng.random() < 0.2:
            manager = {"policy": rng.choice(["static", "none"]), "reservedCPUs": format_cpus(rng.sample(cpus, 1))}
            manager["options"] = {"full-pcpus-only": rng.choice(["true", "false"])}
            annotations["kubelet.koordinator.sh/cpu-manager-policy"] = manager
        if rng.random() < 0.1:
            annotations[f"{NODE}reservation"] = {"reservedCPUs": format_cpus(rng.sample(cpus, 1))}
        if rng.random() < 0.1:
            annotations[f"{NODE}system-qos-resource"] = {"cpuset": format_cpus(rng.sample(cpus, 1))}
        zones = [self._zone(machine, shown, zone) for zone in range(machine["zones"])]
        policies = [rng.choice(["None", "None", "SingleNUMANodePodLevel", "Restricted", "BestEffort"])]
        texts = {key: json.dumps(value) for key, value in annotations.items()}
        content = {"zones": zones if rng.random() < 0.95 else [], "topologyPolicies": policies}
        self._write(name, {"annotations": texts}, content)

    def _zone(self, machine, shown, zone):
        cpus = sum(cpu["node"] == zone for cpu in shown)
        amounts = {"cpu": str(cpus), "memory": f"{machine['memory']}Gi"}
        if self.rng.random() < 0.05:
            del amounts["memory"]
        listed = [{"name": k, "capacity": q, "allocatable": q, "available": q} for k, q in amounts.items()]
        return {"name": f"node-{zone}", "type": "Node", "resources": listed}

    def _garble_report(self):
        name = self._some_report()
        if name is not None:
            manager = "kubelet.koordinator.sh/cpu-manager-policy"
            key = self.rng.choice([f"{NODE}cpu-topology", f"{NODE}cpu-topology", f"{NODE}pod-cpu-allocs", manager])
            text = self.rng.choice(["{", "", '{"detail": []}'] if key.endswith("topology") else ["{", ""])
            self._change_report(name, lambda thing: annotate(thing, key, text))

    # --- pods ----------------------------------------------------------------------------------------

    def equip_pod(self, pod):
        """What a pod asks for."""
        rng, meta = self.rng, pod["metadata"]
        qos = rng.choice(["LSR", "LSR", "LSR", "LSE", "LS", None])
        if qos is not None:
            meta["labels"]["koordinator.sh/qosClass"] = qos
        if rng.random() < 0.8:
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = rng.choice(["1", "2", "2", "3", "4"])
        annotations = {}
        if rng.random() < 0.5:
            annotations[SPEC] = json.dumps(rng.choice(SPECS)) if rng.random() < 0.97 else "{"
        if rng.random() < 0.2:
            wanted = {"numaTopologyPolicy": rng.choice(NUMA_POLICIES)}
            if rng.random() < 0.5:
                wanted["singleNUMANodeExclusive"] = rng.choice(["Required", "Preferred"])
            annotations[f"{SCHEDULING}numa-topology-spec"] = json.dumps(wanted)
        if rng.random() < (0.4 if pod["spec"].get("nodeName") else 0.1) and annotations.get(SPEC) != "{":
            annotations[STATUS] = rng.choice(FOREIGN)
        if annotations:
            meta["annotations"] = annotations


def believed(scheduler):
    """Node -> what the columns say about its CPUs and NUMA nodes."""
    return agentusers.believed(scheduler, "NodeNUMAResource", row_state)


def _others(node):
    own = ("numa-topology-policy", "cpu-bind-policy", "numa-allocate-strategy")
    return {key: value for key, value in node["metadata"]["labels"].items() if key.removeprefix(NODE) not in own}
