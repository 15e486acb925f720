"""Nodes, topology objects and pods as plain API objects, for cases that state little of them."""

import json

from tests.plugins.nodenumaresource.naivemachine import NODE, SCHEDULING


def detail(sockets, numa_per_socket, cores, threads=2, apart=False):
    """The CPUs of a machine: core k has the CPUs 2k and 2k+1, or k and k + all cores where siblings are `apart`."""
    total = sockets * numa_per_socket * cores
    found = []
    for core in range(total):
        numa = core // cores
        for thread in range(threads):
            cpu = core + thread * total if apart else core * threads + thread
            found.append({"id": cpu, "core": core, "socket": numa // numa_per_socket, "node": numa})
    return found


def topology(cpus, zones=(), policies=("None",), annotations=()):
    """A NodeResourceTopology; `zones`: (cpu, memory) of each NUMA node; annotations are written as JSON."""
    texts = {key: json.dumps(value) for key, value in dict(annotations).items()}
    if cpus is not None:
        texts[f"{NODE}cpu-topology"] = json.dumps({"detail": cpus})
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "m1", "annotations": texts},
        "topologyPolicies": list(policies),
        "zones": [
            {
                "name": f"node-{numa}",
                "type": "Node",
                "resources": [{"name": "cpu", "allocatable": cpu}, {"name": "memory", "allocatable": memory}],
            }
            for numa, (cpu, memory) in enumerate(zones)
        ],
    }


def node(cpu="64", memory="256Gi", ratio=None, **labels):
    """A node m1; keyword labels are labels of `node.koordinator.sh`."""
    texts = {f"{NODE}{key.replace('_', '-')}": value for key, value in labels.items()}
    annotations = {f"{NODE}resource-amplification-ratio": json.dumps({"cpu": ratio})} if ratio else {}
    amounts = {"cpu": cpu, "memory": memory, "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "m1", "labels": texts, "annotations": annotations},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def pod(name="p", cpu="4", memory="40Gi", qos="LS", priority=9500, spec=None, numa=None, status=None, **requests):
    """A pod; `spec`, `numa` and `status` are its resource-spec, numa-topology-spec and resource-status."""
    wanted = {name: text for name, text in {"cpu": cpu, "memory": memory, **requests}.items() if text is not None}
    given = {"resource-spec": spec, "numa-topology-spec": numa, "resource-status": status}
    annotations = {f"{SCHEDULING}{key}": json.dumps(value) for key, value in given.items() if value is not None}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"koordinator.sh/qosClass": qos} if qos else {},
            "annotations": annotations,
        },
        "spec": {"priority": priority, "containers": [{"name": "main", "resources": {"requests": wanted}}]},
    }


def holder(name, cpuset=None, numa=None, cpu=None, memory="0", level=None, qos="LSR"):
    """A bound pod that holds CPUs and, as {NUMA node: (cpu, memory)}, NUMA amounts; it requests what it holds."""
    status = {}
    if cpuset:
        status["cpuset"] = cpuset
    if numa:
        status["numaNodeResources"] = [
            {"node": at, "resources": {"cpu": zone[0], "memory": zone[1]}} for at, zone in numa.items()
        ]
    spec = {"preferredCPUExclusivePolicy": level} if level else None
    bound = pod(name, cpu, memory, qos, spec=spec, status=status)
    bound["spec"]["nodeName"] = "m1"
    return bound
