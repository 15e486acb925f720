"""Writes allocations for the device plugins of vendors, in their own annotations (deviceshare spec 3.9).

Source: koordinator `pkg/scheduler/plugins/deviceshare/device_plugin_adapter.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from weakref import WeakValueDictionary

import msgspec

from koordsched.api import core
from koordsched.cluster.builtinkinds import NODES
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle, WriteFailed
from koordsched.framework.interface import CycleState
from koordsched.framework.podpatch import PodPatch
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.plugins.deviceshare import kinds
from koordsched.plugins.shared.devices.allocation import Allocation, Given
from koordsched.plugins.shared.devices.kinds import GPU_ISOLATION_PROVIDER, GPU_MODEL, GPU_VENDOR, Device
from koordsched.plugins.shared.devices.resources import GPU, GPU_CORE, GPU_MEMORY

LOCK_SECONDS = 300.0
"""A lock of a node that is older has expired."""

_CAMBRICON_UNIT = 256 << 20
_METAX_UNIT = 1 << 20
_DUO = "Ascend-310P3-300I-DUO"


class AdaptionError(Exception):
    """The annotations for a vendor's device plugin cannot be written; the message is for the owner of the pod."""


class _MetaXDevice(msgspec.Struct):
    uuid: str
    compute: int
    memory: int = msgspec.field(name="vRam")


class DevicePluginAdapters:
    """Writes annotations of the pod, and locks of the node."""

    def __init__(self, handle: Handle) -> None:
        handle.cluster.read_annotations.update((kinds.CAMBRICON_LOCK, kinds.HAMI_LOCK))
        self._handle = handle
        self._cluster = handle.cluster
        self._mutexes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._written: dict[str, tuple[core.Node, core.Node]] = {}
        """By node, the version that was written on, and the one that this made, until a watch event shows another."""

    async def adapt(self, cycle: CycleState, pod: Pod, given: Allocation, device: Device) -> Status:
        """Adds to the pod's patch; ERROR if a device plugin could not serve the pod."""
        now, node = self._handle.clock.wall(), device.metadata.name
        patch = cycle.patch
        nanoseconds = str(int(now * 10**9))
        patch.annotate(kinds.BIND_TIMESTAMP, nanoseconds)
        gpus = [each for each in given if each.type == GPU]
        if not gpus:
            return SUCCESS
        patch.annotate(kinds.GPU_MINORS, _minors(gpus))
        if pod.shape.meta.labels.get(GPU_ISOLATION_PROVIDER) == kinds.HAMI_CORE:
            patch.label(kinds.VGPU_NODE, node)
        labels = device.metadata.labels
        vendor = labels.get(GPU_VENDOR, "")
        try:
            if vendor == "huawei":
                patch.annotate(kinds.PREDICATE_TIME, nanoseconds)
                _huawei(patch, gpus, labels.get(GPU_MODEL, ""))
            elif vendor in _LOCKING:
                adapt, key = _LOCKING[vendor]
                adapt(patch, gpus)
                if not pod.virtual:  # no device plugin serves a reservation: it would never take the mark away
                    await self._lock(pod, node, key)
        except AdaptionError as error:
            text = f'failed to adapt for GPU device plugin of vendor "{vendor}": {error}'
            return Status(Code.ERROR, (text,))
        return SUCCESS

    async def _lock(self, pod: Pod, node: str, key: str) -> None:
        """Locks a node for this pod, until the device plugin removes the lock."""
        mutex = self._mutexes.get(node)
        if mutex is None:
            mutex = self._mutexes[node] = asyncio.Lock()
        async with mutex:
            seen, wire = self._newest(node)
            if seen is None or wire is None:
                raise AdaptionError(f'failed to get node "{node}": it is gone')
            now = self._handle.clock.wall()
            held = wire.metadata.annotations.get(key)
            if held is not None and self._holds(held, pod, now):
                raise AdaptionError(f'failed to lock node: node "{node}" has been locked')
            stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            changes = {"metadata": {"annotations": {key: f"{stamp},{pod.namespace},{pod.name}"}}}
            try:
                changed: core.Node = await self._handle.writes.patch(NODES, wire, changes)
            except WriteFailed as error:
                raise AdaptionError(f'failed to patch node "{node}": {error}') from error
            # The table itself changes by watch events alone: an attempt at another pod may be under way.
            for other in [other for other in self._written if other not in self._cluster.table.row_of]:
                del self._written[other]
            self._written[node] = (seen, changed)

    def _newest(self, node: str) -> tuple[core.Node | None, core.Node | None]:
        """The node as the table has it, and as it is known to be; None if it is gone."""
        row = self._cluster.table.row_of.get(node)
        seen = self._cluster.table.nodes[row] if row is not None else None
        before, changed = self._written.get(node, (None, None))
        if seen is not None and before is seen:
            return seen, changed
        self._written.pop(node, None)
        return seen, seen

    def _holds(self, value: str, pod: Pod, now: float) -> bool:
        """Whether a lock still counts. Raises AdaptionError if it cannot be read."""
        parts = value.split(",")
        if len(parts) != 3:
            raise AdaptionError(f'failed to lock node: invalid node lock value "{value[:128]}"')
        stamp, namespace, name = parts
        try:
            since = datetime.fromisoformat(stamp)
        except ValueError as error:
            raise AdaptionError(f"failed to lock node: {error}") from error
        if since.tzinfo is None:
            raise AdaptionError(f'failed to lock node: "{stamp[:64]}" has no time zone')
        if now - since.timestamp() > LOCK_SECONDS:
            return False
        return any((held.namespace, held.name) == (namespace, name) for held in self._cluster.assigned.values())


def _huawei(patch: PodPatch, gpus: list[Given], model: str) -> None:
    if model == _DUO:
        patch.annotate(kinds.HUAWEI_ASCEND_310P, _minors(gpus, "Ascend310P-"))
    elif gpus[0].template:
        patch.annotate(kinds.HUAWEI_NPU_CORE, f"{gpus[0].minor}-{gpus[0].template}")
    else:
        patch.annotate(kinds.HUAWEI_NPU_CORE, _minors(gpus))


def _cambricon(patch: PodPatch, gpus: list[Given]) -> None:
    if len(gpus) > 1:
        raise AdaptionError("multiple gpu share is not supported on device side")
    core, memory = _core_and_memory(gpus[0], _CAMBRICON_UNIT)
    patch.annotate(kinds.CAMBRICON_ASSIGNED, "false")
    patch.annotate(kinds.CAMBRICON_PROFILE, f"{gpus[0].minor}_{core}_{memory}")


def _metax(patch: PodPatch, gpus: list[Given]) -> None:
    devices = [_MetaXDevice(gpu.id, *_core_and_memory(gpu, _METAX_UNIT)) for gpu in gpus]
    patch.annotate(kinds.METAX_DEVICES, msgspec.json.encode([devices]).decode())


_LOCKING: dict[str, tuple[Callable[[PodPatch, list[Given]], None], str]] = {
    "cambricon": (_cambricon, kinds.CAMBRICON_LOCK),
    "metax": (_metax, kinds.HAMI_LOCK),
}
"""By vendor: what writes the annotations, and the lock of the node."""


def _core_and_memory(gpu: Given, unit: int) -> tuple[int, int]:
    """Per cent of the cores, and units of memory. Raises AdaptionError."""
    amounts = dict(gpu.amounts)
    core = amounts.get(GPU_CORE)
    if core is None:
        raise AdaptionError("gpu core resource is required")
    memory = amounts.get(GPU_MEMORY, 0)
    if memory < unit:
        raise AdaptionError(f"gpu memory must not be less than {unit} bytes")
    return core, memory // unit


def _minors(gpus: list[Given], prefix: str = "") -> str:
    return ",".join(f"{prefix}{gpu.minor}" for gpu in gpus)
