"""Devices that pods request: what koord-manager's webhooks do with them (deviceshare spec 2.5)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum
from typing import Any

from koordsched.api.quantity import QuantityError, value
from koordsched.fakecluster.errors import bad_request
from koordsched.fakecluster.quantities import canonical

Object = dict[str, Any]

GPU, CORE = "koordinator.sh/gpu", "koordinator.sh/gpu-core"
MEMORY, RATIO = "koordinator.sh/gpu-memory", "koordinator.sh/gpu-memory-ratio"
SHARED, NPU_CORE = "koordinator.sh/gpu.shared", "huawei.com/npu-core"
_OF_GPUS = frozenset({GPU, CORE, MEMORY, RATIO, SHARED})
_FIELD = "pod.spec.containers[*].resources.requests"


class PodWebhook(Enum):
    """A webhook for pods."""

    DEVICE_RESOURCE_SPEC = "device-resource-spec"
    """Requests for GPUs get the form that the scheduler takes (koord-manager: unless DisableDeviceResourceSpec)."""
    DEVICE_RESOURCE_VALIDATION = "device-resource-validation"
    """Pods with requests that contradict each other are refused (koord-manager: gate ValidatePodDeviceResource)."""


class DeviceAdmission:
    """Does what these webhooks do."""

    def __init__(self, webhooks: Collection[PodWebhook]) -> None:
        self._rewrites = PodWebhook.DEVICE_RESOURCE_SPEC in webhooks
        self._checks = PodWebhook.DEVICE_RESOURCE_VALIDATION in webhooks

    def admit(self, spec: Object) -> None:
        """Rewrites requests of a new pod in place. 400 for those that contradict each other."""
        if not (self._rewrites or self._checks):
            return
        containers = [container for container in spec.get("containers") or () if container.get("resources")]
        try:
            for container in containers if self._rewrites else ():
                _rewrite(container["resources"])
            problems = [text for container in containers for text in _problems(container["resources"])]
        except (QuantityError, TypeError):
            # What is no quantity is refused in any case.
            return
        if problems and self._checks:
            texts = [f"{_FIELD}: {text}" for text in dict.fromkeys(problems)]
            message = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
            raise bad_request(f'admission webhook "vpod.koordinator.sh" denied the request: {message}')

    def readmit(self, spec: Object, before: Object) -> None:
        """Rewrites requests of an update in place that says them as the pod was created, e.g. by `kubectl apply`.

        Others stay: requests of a stored pod cannot be changed anyway.
        """
        if not self._rewrites or spec.get("containers") == before.get("containers"):
            return
        for container, old in zip(spec.get("containers") or (), before.get("containers") or (), strict=False):
            resources = container.get("resources")
            if resources and resources != old.get("resources"):
                try:
                    _rewrite(resources)
                except (QuantityError, TypeError):
                    continue


def _rewrite(resources: Object) -> None:
    requests = resources.get("requests") or {}
    if _OF_GPUS.isdisjoint(requests):
        return
    added: dict[str, int] = {}
    if GPU in requests:
        added[CORE] = added[RATIO] = value(requests[GPU])
    if SHARED not in requests:
        stated = added or {name: value(requests[name]) for name in (CORE, RATIO) if name in requests}
        amount = stated.get(RATIO, stated.get(CORE, 0))
        added[SHARED] = amount // 100 if amount > 100 and amount % 100 == 0 else 1
    for kind in ("requests", "limits"):
        kept = {name: amount for name, amount in (resources.get(kind) or {}).items() if name != GPU}
        resources[kind] = kept | {name: str(amount) for name, amount in added.items()}


def _problems(resources: Object) -> Iterator[str]:
    """What is wrong with the requests of a container, in the words of field errors."""
    requests = resources.get("requests") or {}
    if GPU in requests and SHARED in requests:
        yield "Forbidden: Forbidden declare GPU and GPU share at same time"
        return
    if GPU in requests:
        yield from _problems_of_gpu(requests[GPU])
    if SHARED in requests:
        yield from _problems_of_shared(requests)


def _problems_of_gpu(text: str) -> Iterator[str]:
    amount = value(text)
    if not amount:
        yield _invalid(text, "the requested GPU must be greater than zero")
    if amount > 100 and amount % 100:
        yield _invalid(text, "the requested GPU must be percentage of 100")


def _problems_of_shared(requests: Object) -> Iterator[str]:
    amounts = {name: value(requests.get(name, "0")) for name in (SHARED, CORE, MEMORY, RATIO, NPU_CORE)}
    if not amounts[SHARED]:
        yield _invalid(requests[SHARED], "the requested GPU must be greater than zero")
    if amounts[NPU_CORE]:
        return
    if not amounts[MEMORY] and not amounts[RATIO]:
        yield "Forbidden: GPU memory and GPU memory ratio all is zero"
    if amounts[MEMORY] and amounts[RATIO]:
        yield "Forbidden: declare GPU memory and GPU memory ratio at same time"
    for name, title in ((CORE, "gpuCore"), (RATIO, "gpuMemoryRatio")):
        if amounts[SHARED] and amounts[name] % amounts[SHARED]:
            yield _invalid(requests[name], f"the requested {title} must multiple of shared")


def _invalid(text: str, problem: str) -> str:
    return f'Invalid value: "{canonical(text)}": {problem}'
