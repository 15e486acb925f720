"""Plugins that a configuration may name and that are not implemented: pods that need one of them wait.

Placed without it they would be placed wrongly: one pod of a gang alone, two pods on one GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from koordsched.api.meta import ObjectMeta
from koordsched.cluster.pod import Pod
from koordsched.framework.interface import BeforePreFilter, CycleState
from koordsched.framework.status import SUCCESS, Code, Status

_GANG_LABELS = ("pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io/name")
_GANG_ANNOTATION = "gang.scheduling.koordinator.sh/name"
_RESERVATION_AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
_VENDOR_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu", "huawei.com/npu-core")
_DEVICE_KINDS = ("gpu", "gpu.shared", "gpu-core", "gpu-memory", "gpu-memory-ratio", "rdma", "fpga")
_DEVICES = frozenset(_VENDOR_GPUS) | {
    f"{domain}/{kind}" for domain in ("koordinator.sh", "kubernetes.io") for kind in _DEVICE_KINDS
}

Need = Callable[[ObjectMeta, Iterable[str]], str]
"""What of a pod needs the plugin, by its metadata and the names of the resources that it requests; "" if nothing."""


def _gang(meta: ObjectMeta, resources: Iterable[str]) -> str:
    names = (*map(meta.labels.get, _GANG_LABELS), meta.annotations.get(_GANG_ANNOTATION))
    name = next(filter(None, names), "")
    return f"it belongs to gang {name}" if name else ""


def _devices(meta: ObjectMeta, resources: Iterable[str]) -> str:
    wanted = sorted(_DEVICES.intersection(resources))
    return f"it requests {', '.join(wanted)}" if wanted else ""


def _reservation(meta: ObjectMeta, resources: Iterable[str]) -> str:
    return f"it has the annotation {_RESERVATION_AFFINITY}" if _RESERVATION_AFFINITY in meta.annotations else ""


NEEDS: Mapping[str, Need] = {"Coscheduling": _gang, "DeviceShare": _devices, "Reservation": _reservation}
"""By plugin."""


class Unimplemented(BeforePreFilter):
    """Stands in for plugins of a profile that are not implemented."""

    name = "Unimplemented"

    def __init__(self, plugins: Iterable[str], resource_names: list[str]) -> None:
        """`resource_names`: by index."""
        self._needs = [(name, NEEDS[name]) for name in plugins if name in NEEDS]
        self._resource_names = resource_names

    def before_pre_filter(self, cycle: CycleState, pod: Pod) -> Status:
        """UNRESOLVABLE for pods that need one of the plugins."""
        if pod.wire is None:
            return SUCCESS
        requested = [self._resource_names[index] for index, _ in pod.requests.amounts]
        for name, need in self._needs:
            if why := need(pod.wire.metadata, requested):
                reason = f"pod needs plugin {name}, which this scheduler does not implement: {why}"
                return Status(Code.UNRESOLVABLE, (reason,))
        return SUCCESS
