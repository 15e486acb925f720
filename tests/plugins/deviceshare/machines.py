"""Nodes with devices, and pods, as API objects: the machines of deviceshare spec 7."""

import json

from tests.plugins.deviceshare.naive.books import NODE, POLICY
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
    SHARED,
)
from tests.plugins.deviceshare.randomstates import topology

GIB = 1 << 30
G8_BUSES = [f"0000:{bus}:00" for bus in ("1f", "3f", "5f", "7f")]


def node(name="n", labels=None, annotations=None):
    sizes = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels or {}, "annotations": annotations or {}},
        "spec": {},
        "status": {"allocatable": sizes, "capacity": sizes, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def device(*entries, name="n", labels=None, annotations=None):
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"devices": list(entries)},
    }


def at(pcie, numa):
    return {"socketID": -1, "nodeID": numa, "pcieID": pcie, "busID": "0000:00:00.0"}


def gpu(minor, memory="80Gi", place=None, health=True, **resources):
    """A GPU; `place`: (PCIe, NUMA node)."""
    resources = resources or {CORE: "100", RATIO: "100", MEMORY: memory}
    entry = {"type": "gpu", "id": f"GPU-{minor}", "minor": minor, "health": health, "resources": resources}
    return {**entry, **({"topology": at(*place)} if place else {})}


def nic(minor, place=None, bus=None, functions=0, labels=None):
    """A NIC with virtual functions .2, .3 and so on."""
    bus = bus or f"0000:{16 + minor:02x}:00"
    entry = {"type": "rdma", "id": f"{bus}.0", "minor": minor, "health": True, "resources": {RDMA: "100"}}
    if place:
        entry["topology"] = at(*place)
    if labels:
        entry["labels"] = labels
    if functions:
        vfs = [{"minor": -1, "busID": f"{bus}.{number + 2}"} for number in range(functions)]
        entry["vfGroups"] = [{"vfs": vfs}]
    return entry


def fpga(minor):
    return {"type": "fpga", "id": f"F{minor}", "minor": minor, "health": True, "resources": {FPGA: "100"}}


def g8(name="n", nics=(1, 2, 3, 4), numa_policy=None):
    """Eight GPUs in PCIe pairs, a NIC at each pair."""
    gpus = [gpu(minor, place=(str(minor // 2), minor // 4)) for minor in range(8)]
    cards = [nic(n, (str(n - 1), (n - 1) // 2), G8_BUSES[n - 1], functions=2) for n in nics]
    labels = {f"{NODE}numa-topology-policy": numa_policy} if numa_policy else {}
    reports = [topology(name, 2)] if numa_policy else []
    return [node(name, labels), *reports, device(*gpus, *cards, name=name)]


def h8(name="n", policy=None, model="H800", nics=False):
    """Eight GPUs with a PCIe each, the model with a table of its own."""
    pcies = ["0", "2", "3", "4", "5", "6", "7", "8"]
    gpus = [gpu(minor, place=(pcie, minor // 4)) for minor, pcie in enumerate(pcies)]
    cards = [nic(n + 1, (pcie, n // 4), functions=2) for n, pcie in enumerate(pcies)]
    labels = {f"{NODE}gpu-model": model, **({POLICY: policy} if policy else {})}
    return [node(name, labels), device(*gpus, *cards, name=name)]


def m2(name="n"):
    """Two GPUs of 8Gi without topology."""
    return [node(name), device(gpu(0, "8Gi"), gpu(1, "8Gi"), name=name)]


def pod(name="p", hints=None, joint=None, partition=None, labels=None, annotations=None, priority=100, **requests):
    """A pod that waits; `requests`: of devices, by short names."""
    wanted = {"cpu": "1", "memory": "1Gi", **{full_name(name): str(amount) for name, amount in requests.items()}}
    annotations = dict(annotations or {})
    for key, value in ((HINT, hints), (JOINT, joint), (PARTITION, partition)):
        if value is not None:
            annotations[key] = json.dumps(value)
    limits = {name: amount for name, amount in wanted.items() if "/" in name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "labels": labels or {},
            "annotations": annotations,
        },
        "spec": {
            "schedulerName": "koord-scheduler",
            "priority": priority,
            "containers": [{"name": "main", "image": "app", "resources": {"requests": wanted, "limits": limits}}],
        },
    }


SHORT = {
    "gpu": GPU,
    "core": CORE,
    "memory": MEMORY,
    "ratio": RATIO,
    "shared": SHARED,
    "rdma": RDMA,
    "fpga": FPGA,
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "dcu": "dcu.com/gpu",
    "npu_core": NPU_CORE,
    "npu_cpu": NPU_CPU,
    "npu_dvpp": NPU_DVPP,
}


def full_name(name):
    return "cpu" if name == "cpu" else SHORT[name]


def bound(thing, name, node="n", phase="Running", **allocation):
    """The pod on a node with an allocation: {device type: [(minor, {short name: amount})]}."""
    listed = {
        kind: [
            {"minor": minor, "resources": {SHORT[key]: str(amount) for key, amount in amounts.items()}}
            for minor, amounts in entries
        ]
        for kind, entries in allocation.items()
    }
    metadata = {**thing["metadata"], "name": name, "uid": f"uid-{name}", "annotations": {ALLOCATED: json.dumps(listed)}}
    return {**thing, "metadata": metadata, "spec": {**thing["spec"], "nodeName": node}, "status": {"phase": phase}}


def used(*minors, node="n", share=100, memory="80Gi", priority=0):
    """A pod that holds a share of GPUs."""
    amounts = {"core": share, "ratio": share, "memory": int(memory[:-2]) * GIB * share // 100}
    name = f"used-{node}-{'-'.join(map(str, minors))}"
    return bound(pod(priority=priority, ratio=share * len(minors)), name, node, gpu=[(n, amounts) for n in minors])


def used_nic(minor, amount=100, node="n"):
    """A pod that holds a part of a NIC."""
    return bound(pod(rdma=amount), f"used-{node}-nic-{minor}", node, rdma=[(minor, {"rdma": amount})])
