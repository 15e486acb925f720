"""Random nodes with NUMA topologies, the pods on them and pods to place, as plain API objects, from a seed.

The same seed gives the same state. The naive model places part of the bound pods, so that nodes fill as real ones;
others hold CPUs and NUMA amounts that no scheduler would have given, or nothing that is recorded.
"""

import json
import random
from dataclasses import dataclass, field

from tests.plugins.nodenumaresource.naive import Naive
from tests.plugins.nodenumaresource.naivemachine import NODE, SCHEDULING, Machine, format_cpus

GIB = 1 << 30
MANY_NUMA_NODES = 4
"""With more of them zones have cpu and memory only: hints are merged over all combinations of subsets and resources."""

BIND_POLICIES = ("FullPCPUs", "SpreadByPCPUs", "Default", "ConstrainedBurst", "whatever")
EXCLUSIVE = ("None", "PCPULevel", "NUMANodeLevel")
NUMA_POLICIES = ("SingleNUMANode", "Restricted", "BestEffort")
REPORTED_POLICIES = ("None", "SingleNUMANodePodLevel", "SingleNUMANodeContainerLevel", "Restricted",
                     "RestrictedPodLevel", "BestEffort", "BestEffortPodLevel")  # fmt: skip
MALFORMED = ("{", "[]", '"text"', '{"requiredCPUBindPolicy": 5}')
HINT = "internal.scheduling.koordinator.sh/scheduling-hint"


@dataclass
class State:
    """API objects: nodes, their topology objects, pods that are bound and pods to place, in this order."""

    args: dict
    nodes: list = field(default_factory=list)
    topologies: list = field(default_factory=list)
    bound: list = field(default_factory=list)
    pending: list = field(default_factory=list)

    def machines(self):
        """{node name: naive.Machine}."""
        topologies = {thing["metadata"]["name"]: thing for thing in self.topologies}
        return {
            node["metadata"]["name"]: Machine(
                node,
                topologies.get(node["metadata"]["name"]),
                [pod for pod in self.bound if pod["spec"]["nodeName"] == node["metadata"]["name"]],
            )
            for node in self.nodes
        }


def random_state(seed, nodes=4, pending=6):
    """The State of a seed."""
    return Draw(random.Random(f"numa-{seed}"), nodes, pending).state


class Draw:
    """Draws one thing after the other. `state`: what was drawn."""

    def __init__(self, rng, nodes, pending):
        self.rng = rng
        self.state = State(self.args())
        self.model = Naive(self.state.args)
        for at in range(nodes):
            node, topology, shape = self.node(f"m{at}")
            self.state.nodes.append(node)
            if topology is not None:
                self.state.topologies.append(topology)
            self.fill(node, topology, shape)
        for at in range(pending):
            self.state.pending.append(self.pod(f"p{at}", random.Random(rng.random())))

    def often(self, share):
        return self.rng.random() < share

    def args(self):
        args = {}
        if self.often(0.3):
            args["defaultCPUBindPolicy"] = self.rng.choice(["", "FullPCPUs", "SpreadByPCPUs"])
        for key in ("scoringStrategy", "numaScoringStrategy"):
            if self.often(0.4):
                names = self.rng.sample(["cpu", "memory", "kubernetes.io/batch-cpu", "hugepages-2Mi"], 2)
                weights = [{"name": name, "weight": self.rng.randint(1, 5)} for name in names]
                args[key] = {"type": self.rng.choice(["LeastAllocated", "MostAllocated"]), "resources": weights}
        return args

    # Nodes

    def node(self, name):
        rng = self.rng
        sockets = rng.choice([1, 1, 2, 2, 2, 4])
        per_socket = rng.choice([1, 1, 2, 2, 4] if sockets < 3 else [1, 2])
        shape = Shape(rng, sockets, per_socket, rng.choice([1, 2, 2, 3, 4]), rng.choice([1, 2, 2, 2, 4]))
        ratio = rng.choice([1.15, 1.5, 2]) if self.often(0.3) else 0
        cpus = len(shape.detail)
        memory = sum(shape.memory)
        labels, annotations = {"kubernetes.io/hostname": name}, {}
        if self.often(0.25):
            labels[f"{NODE}cpu-bind-policy"] = rng.choice(["FullPCPUsOnly", "SpreadByPCPUs", "None"])
        if self.often(0.4):
            labels[f"{NODE}numa-allocate-strategy"] = rng.choice(
                ["MostAllocated", "LeastAllocated", "DistributeEvenly"]
            )
        if self.often(0.6):
            labels[f"{NODE}numa-topology-policy"] = rng.choice([*NUMA_POLICIES, *NUMA_POLICIES, "None"])
        own_ratio = ratio and self.often(0.4)
        if ratio and (not own_ratio or self.often(0.5)):
            ratios = {"cpu": ratio, **({"memory": 1.25} if self.often(0.3) else {})}
            annotations[f"{NODE}resource-amplification-ratio"] = json.dumps(ratios)
        elif self.often(0.04):
            annotations[f"{NODE}resource-amplification-ratio"] = rng.choice(["{", "[]", '{"cpu": "2"}'])
        allocatable = {"cpu": f"{int(cpus * 1000 * max(1, ratio))}m", "memory": str(memory), "pods": "110"}
        if shape.batch:
            allocatable |= {"kubernetes.io/batch-cpu": str(cpus * 500), "kubernetes.io/batch-memory": str(memory // 2)}
        if shape.pages:
            allocatable["hugepages-2Mi"] = str(sum(shape.pages))
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels, "annotations": annotations},
            "spec": {},
            "status": {
                "allocatable": allocatable,
                "capacity": dict(allocatable),
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        if self.often(0.05):
            return node, None, shape
        return node, self.topology(name, shape, ratio if own_ratio else 0), shape

    def topology(self, name, shape, ratio):
        rng = self.rng
        annotations = {}
        if not self.often(0.06):
            annotations[f"{NODE}cpu-topology"] = json.dumps({"detail": shape.detail})
        elif self.often(0.5):
            annotations[f"{NODE}cpu-topology"] = json.dumps({"detail": []})
        if self.often(0.15):
            policy = {
                "policy": rng.choice(["static", "none"]),
                "options": {"full-pcpus-only": rng.choice(["true", "false"])},
            }
            annotations["kubelet.koordinator.sh/cpu-manager-policy"] = json.dumps(
                {**policy, "reservedCPUs": self.some_cpus(shape, 2)}
            )
        if self.often(0.1):
            held = {"namespace": "default", "name": "g", "uid": "g", "cpuset": self.some_cpus(shape, 2)}
            annotations[f"{NODE}pod-cpu-allocs"] = json.dumps([{**held, "managedByKubelet": self.often(0.7)}])
        if self.often(0.1):
            annotations[f"{NODE}reservation"] = json.dumps({"reservedCPUs": self.some_cpus(shape, 2)})
        if self.often(0.1):
            system = {"cpuset": self.some_cpus(shape, 2), **({"cpusetExclusive": False} if self.often(0.4) else {})}
            annotations[f"{NODE}system-qos-resource"] = json.dumps(system)
        if ratio:
            annotations[f"{NODE}resource-amplification-ratio"] = json.dumps({"cpu": ratio})
        zones = [] if self.often(0.06) else [self.zone(shape, numa, max(1, ratio)) for numa in range(shape.numa_nodes)]
        return {
            "apiVersion": "topology.node.k8s.io/v1alpha1",
            "kind": "NodeResourceTopology",
            "metadata": {
                "name": name,
                "labels": {"app.kubernetes.io/managed-by": "Koordinator"},
                "annotations": annotations,
            },
            "topologyPolicies": [rng.choice(REPORTED_POLICIES) if self.often(0.5) else "None"],
            "zones": zones,
        }

    def zone(self, shape, numa, ratio):
        cpus = sum(entry["node"] == numa for entry in shape.detail)
        quantities = {"cpu": f"{int(cpus * 1000 * ratio)}m", "memory": str(shape.memory[numa])}
        if shape.batch:
            quantities["kubernetes.io/batch-cpu"] = str(cpus * 500)
            quantities["kubernetes.io/batch-memory"] = str(shape.memory[numa] // 2)
        if shape.pages and not self.often(0.1):
            quantities["hugepages-2Mi"] = str(shape.pages[numa])
        resources = [
            {"name": key, "capacity": text, "allocatable": text, "available": text} for key, text in quantities.items()
        ]
        return {"name": f"node-{numa}", "type": "Node", "resources": resources}

    def some_cpus(self, shape, most):
        cpus = [entry["id"] for entry in shape.detail]
        return format_cpus(self.rng.sample(cpus, min(len(cpus), self.rng.randint(1, most))))

    # Pods

    def fill(self, node, topology, shape):
        """Pods onto the node, one after the other."""
        name = node["metadata"]["name"]
        own = []
        for at in range(self.rng.randint(0, 7)):
            pod = self.pod(f"{name}-h{at}", random.Random(self.rng.random()))
            pod["metadata"]["annotations"].pop(HINT, None)
            pod["spec"]["nodeName"] = name
            pod["status"] = {"phase": self.rng.choice(["Running"] * 9 + ["Succeeded"])}
            kind = self.rng.choice(["placed", "placed", "placed", "foreign", "plain"])
            if kind == "placed":
                machine = Machine(node, topology, own)
                _, asked = self.model.pre_filter(pod)
                verdict, allocation = self.model.reserve(asked, machine) if asked else (None, None)
                if verdict is None or not verdict.passed:
                    continue
                pod["metadata"]["annotations"] |= self.model.written(asked, machine, allocation)
            elif kind == "foreign":
                self.hold(pod, shape)
            own.append(pod)
        self.state.bound += own

    def hold(self, pod, shape):
        """CPUs and NUMA amounts by chance."""
        status = {}
        if self.often(0.6):
            status["cpuset"] = self.some_cpus(shape, 4)
        if self.often(0.6):
            chosen = self.rng.sample(range(shape.numa_nodes), min(shape.numa_nodes, self.rng.randint(1, 2)))
            status["numaNodeResources"] = [
                {
                    "node": numa,
                    "resources": {
                        "cpu": f"{self.rng.randint(0, 6) * 500}m",
                        "memory": str(self.rng.randint(0, 8 * GIB)),
                    },
                }
                for numa in sorted(chosen)
            ]
        text = json.dumps(status) if self.often(0.95) else '{"cpuset": "0-'
        pod["metadata"]["annotations"][f"{SCHEDULING}resource-status"] = text

    def pod(self, name, rng):
        qos = rng.choice(["LSR", "LSR", "LSR", "LSE", "LS", "LS", "BE", None])
        labels, annotations, spec = {}, {}, {}
        if qos:
            labels["koordinator.sh/qosClass"] = qos
        priority = rng.choice([9500] * 8 + [9000, 9999, 7500, 5500, 10000, 0, None])
        if rng.random() < 0.05:
            labels["koordinator.sh/priority-class"] = rng.choice(["koord-prod", "koord-mid", "nothing"])
        if rng.random() < 0.5:
            for key in ("requiredCPUBindPolicy", "preferredCPUBindPolicy"):
                if rng.random() < 0.5:
                    spec[key] = rng.choice([*BIND_POLICIES[:2] * 3, *BIND_POLICIES])
            if rng.random() < 0.5:
                spec["preferredCPUExclusivePolicy"] = rng.choice(EXCLUSIVE)
            annotations[f"{SCHEDULING}resource-spec"] = (
                json.dumps(spec) if rng.random() < 0.95 else rng.choice(MALFORMED)
            )
        if rng.random() < 0.25:
            numa = {"numaTopologyPolicy": rng.choice([*NUMA_POLICIES, *NUMA_POLICIES, ""])}
            if rng.random() < 0.5:
                numa["singleNUMANodeExclusive"] = rng.choice(["Required", "Preferred"])
            annotations[f"{SCHEDULING}numa-topology-spec"] = json.dumps(numa)
        if rng.random() < 0.03:
            annotations[HINT] = json.dumps({"extensions": {"NodeNUMAResource": {}}})
            annotations[f"{SCHEDULING}resource-status"] = json.dumps({"cpuset": f"0-{rng.randint(0, 5)}"})
        pod = {
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
                "containers": [{"name": "main", "image": "app", "resources": {"requests": self.requested(qos, rng)}}],
            },
        }
        if priority is not None:
            pod["spec"]["priority"] = priority
        return pod

    @staticmethod
    def requested(qos, rng):
        if rng.random() < 0.03:
            return {}
        memory = rng.choice([f"{rng.randint(1, 12)}Gi", str(rng.randint(1, 6 * GIB)), f"{rng.randint(1, 4000)}M"])
        if qos == "BE" and rng.random() < 0.7:
            return {"kubernetes.io/batch-cpu": str(rng.randint(1, 40) * 100), "kubernetes.io/batch-memory": memory}
        wanted = {}
        if rng.random() < 0.95:
            whole = rng.choice([1, 2, 2, 3, 4, 4, 5, 6, 8, 10, 12, 16, 24])
            wanted["cpu"] = str(whole) if rng.random() < 0.85 else f"{whole * 1000 - 500}m"
        if rng.random() < 0.9:
            wanted["memory"] = memory
        if rng.random() < 0.1:
            wanted["hugepages-2Mi"] = f"{rng.randint(1, 64) * 2}Mi"
        return wanted or {"memory": memory}


class Shape:
    """Sockets, NUMA nodes, cores and threads of a machine, numbered in one of the ways that machines do."""

    def __init__(self, rng, sockets, per_socket, cores, threads):
        self.numa_nodes = sockets * per_socket
        numbering = rng.choice(["siblings adjacent", "siblings apart", "core ids per socket"])
        self.detail = []
        total = self.numa_nodes * cores
        for core in range(total):
            numa = core // cores
            socket = numa // per_socket
            for thread in range(threads):
                cpu = core + thread * total if numbering == "siblings apart" else core * threads + thread
                number = core % (cores * per_socket) if numbering == "core ids per socket" else core
                self.detail.append({"id": cpu, "core": number, "socket": socket, "node": numa})
        self.detail.sort(key=lambda entry: entry["id"])
        odd = rng.choice([0, 0, 1, 4097])
        self.memory = [rng.choice([8, 16, 16, 32]) * GIB - odd * (numa + 1) for numa in range(self.numa_nodes)]
        small = self.numa_nodes <= MANY_NUMA_NODES
        self.batch = small and rng.random() < 0.3
        self.pages = (
            [rng.choice([0, 64, 128]) << 20 for _ in range(self.numa_nodes)] if small and rng.random() < 0.3 else []
        )
