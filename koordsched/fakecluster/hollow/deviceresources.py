"""What nodes offer of their devices as a whole: what koord-manager derives from Devices (deviceshare spec 2.5).

It follows the Devices of hollow nodes, also those that others write, while their definition is installed. A node that
never had a Device keeps the resources of its template; one whose Device is deleted has no devices any longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from koordsched.fakecluster.hollow.allocation import amounts
from koordsched.fakecluster.hollow.amounts import milli_text
from koordsched.fakecluster.hollow.batchedtimers import BatchedTimers
from koordsched.fakecluster.hollow.devicelayout import (
    DRIVER_VERSION,
    FPGA,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    MODEL,
    RDMA,
    VENDOR,
)
from koordsched.fakecluster.hollow.devicereports import DEVICE_KIND
from koordsched.fakecluster.hollow.hollownode import HollowNode
from koordsched.fakecluster.hollow.whileserved import WhileServed
from koordsched.fakecluster.quantities import canonical
from koordsched.fakecluster.registry import ChangeView, Registry
from koordsched.fakecluster.resources import Resource

Object = dict[str, Any]

WHOLE_GPU, GPU_SHARED = "koordinator.sh/gpu", "koordinator.sh/gpu.shared"
_NPU = ("huawei.com/npu-core", "huawei.com/npu-cpu", "huawei.com/npu-dvpp")
_OF_GPUS = (WHOLE_GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, *_NPU)


class Offer(NamedTuple):
    """What a node has because of its devices."""

    resources: Mapping[str, str]
    without: frozenset[str]
    """Resources that it does not have."""
    labels: Mapping[str, str]

    def applied_to(self, node: Object) -> Object:
        """The Node with it; the same object if it has it already."""
        metadata, status = node["metadata"], node.get("status") or {}
        changed = {
            field: {**{k: v for k, v in (status.get(field) or {}).items() if k not in self.without}, **self.resources}
            for field in ("capacity", "allocatable")
        }
        labels = {**(metadata.get("labels") or {}), **self.labels}
        if labels == (metadata.get("labels") or {}) and all(status.get(field) == changed[field] for field in changed):
            return node
        return {**node, "metadata": {**metadata, "labels": labels}, "status": {**status, **changed}}


def offered(device: Object | None, *, gpu_shared: bool = False) -> Offer:
    """What a node with this Device offers, None: one whose Device was deleted.

    `gpu_shared`: 100 of `koordinator.sh/gpu.shared` per GPU, too (gate EnableSyncGPUSharedResource).
    """
    metadata = device["metadata"] if device is not None else {}
    entries = ((device or {}).get("spec") or {}).get("devices") or ()
    healthy = [entry for entry in entries if entry.get("health")]
    gpus = [entry for entry in healthy if entry.get("type") == GPU]
    sums: dict[str, int] = {}
    for entry in gpus:
        for name, amount in amounts(entry.get("resources") or {}).items():
            if name in _OF_GPUS:
                sums[name] = sums.get(name, 0) + amount
    labels = metadata.get("labels") or {}
    if gpus and labels.get(VENDOR, "") in ("", "nvidia"):
        sums[WHOLE_GPU] = sums.get(GPU_CORE, 0)
    if gpus and gpu_shared:
        sums[GPU_SHARED] = len(gpus) * 100_000
    without = set() if gpus else set(_OF_GPUS)
    # koord-manager does not add FPGAs; here no other component does.
    for kind in (RDMA, FPGA):
        count = sum(entry.get("type") == kind for entry in healthy)
        if count:
            sums[f"koordinator.sh/{kind}"] = count * 100_000
        else:
            without.add(f"koordinator.sh/{kind}")
    told = {key: labels[key] for key in (VENDOR, MODEL, DRIVER_VERSION) if gpus and key in labels}
    return Offer({name: _quantity(name, milli) for name, milli in sums.items()}, frozenset(without), told)


def _quantity(name: str, milli: int) -> str:
    return (
        canonical(f"{milli // 1024_000}Ki")
        if name == GPU_MEMORY and milli % 1024_000 == 0
        else canonical(milli_text(milli))
    )


class DeviceResources:
    """Keeps the Nodes of `nodes`, by name, up to date."""

    def __init__(
        self, registry: Registry, timers: BatchedTimers, nodes: Mapping[str, HollowNode], *, gpu_shared: bool = False
    ) -> None:
        self._registry = registry
        self._timers = timers
        self._nodes = nodes
        self._gpu_shared = gpu_shared
        self._offers: dict[str, Offer] = {}
        self._node_resource = registry.resource("", "v1", "nodes")
        self._endings: list[Callable[[], None]] = []
        self._served = WhileServed(registry, DEVICE_KIND, self._begin, self._stop)

    def start(self) -> Callable[[], None]:
        """Begins as soon as the definition is there; returns what ends it."""
        return self._served.start()

    def follow(self, obj: Object) -> None:
        """A hollow node is there or has changed."""
        name = obj["metadata"]["name"]
        offer = self._offers.get(name)
        if offer is not None and offer.applied_to(obj) is not obj:
            self._timers.after(0.0, self._write, name)

    def _begin(self, resource: Resource) -> None:
        self._endings = [self._registry.subscribe_changes(resource, self._device_changed)]

    def _stop(self) -> None:
        for end in self._endings:
            end()
        self._endings = []
        self._offers.clear()

    def _device_changed(self, change: ChangeView) -> None:
        name = change.record.name
        self._offers[name] = offered(None if change.type == "DELETED" else change.new, gpu_shared=self._gpu_shared)
        self._timers.after(0.0, self._write, name)

    def _write(self, name: str) -> None:
        record = self._registry.collection(self._node_resource).get("", name)
        offer = self._offers.get(name)
        if offer is None or record is None or name not in self._nodes:
            return
        old = record.obj()
        new = offer.applied_to(old)
        if new is not old:
            self._registry.replace_record(self._node_resource, record, new)
