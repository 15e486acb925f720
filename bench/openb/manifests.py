"""Machines and tasks of the traces as objects of the API."""

from __future__ import annotations

from collections.abc import Iterator

from bench.manifests import Manifest
from bench.openb.traces import GPU, Machine, TraceTask
from koordsched.plugins.shared.devices.kinds import GPU_MODEL
from koordsched.plugins.shared.devices.resources import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO

_MEMORY = "32Gi"
"""Of each GPU: the traces do not say, and no task asks for it."""

_PODS = "1000"
"""As many as the traces put on a machine."""


def machine(one: Machine) -> Iterator[Manifest]:
    """Node and Device."""
    labels = {"kubernetes.io/hostname": one.name, GPU_MODEL: one.model}
    amounts = {
        "cpu": f"{one.cpu}m",
        "memory": f"{one.memory}Mi",
        "pods": _PODS,
        GPU_CORE: str(one.gpus * 100),
        GPU_MEMORY_RATIO: str(one.gpus * 100),
    }
    yield {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": one.name, "uid": one.name, "labels": labels},
        "status": {"allocatable": amounts, "capacity": amounts},
    }
    gpu = {GPU_CORE: "100", GPU_MEMORY_RATIO: "100", GPU_MEMORY: _MEMORY}
    devices = [
        {"type": "gpu", "id": f"{one.name}-{minor}", "minor": minor, "health": True, "resources": gpu}
        for minor in range(one.gpus)
    ]
    yield {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": one.name, "uid": one.name},
        "spec": {"devices": devices},
    }


def pod(task: TraceTask, name: str, scheduler: str) -> Manifest:
    """A pod that waits. Parts of a GPU are rounded up to a hundredth."""
    requests = {"cpu": f"{task.cpu}m", "memory": f"{task.memory}Mi"}
    if task.number:
        share = -(-task.share * 100 // GPU) * task.number
        requests |= {GPU_CORE: str(share), GPU_MEMORY_RATIO: str(share)}
    spec: Manifest = {
        "schedulerName": scheduler,
        "containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}],
    }
    if task.models:
        expression = {"key": GPU_MODEL, "operator": "In", "values": list(task.models)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    metadata = {"name": name, "namespace": "default", "uid": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
