"""What is worked out once per shape: what its pods ask for, and what they have to get."""

from __future__ import annotations

from typing import NamedTuple

from koordsched.api import gojson
from koordsched.cluster.shape import PodShape
from koordsched.plugins.shared.devices import allocation, kinds
from koordsched.plugins.shared.devices.allocation import Allocation
from koordsched.plugins.shared.devices.request import (
    NOTHING,
    DeviceRequest,
    InvalidAnnotation,
    InvalidRequest,
    request_of,
)
from koordsched.plugins.shared.devices.resources import GPU, NAMES


class PodRequest(NamedTuple):
    """What the pods of a shape ask for. `problem`: why they cannot be placed, "" if they can; then `devices` asks for
    nothing. `designated`: what they have to get, for a scheduling hint says so. `templated`: shared GPUs must match a
    template.
    """

    devices: DeviceRequest
    problem: str = ""
    designated: Allocation | None = None
    templated: bool = False

    @property
    def types(self) -> tuple[str, ...]:
        """The types of devices asked for."""
        return tuple(self.devices.types)


class CompiledRequests:
    """Reads requests; `matched_resources`: those of GPUs that templates are for."""

    def __init__(self, matched_resources: tuple[str, ...]) -> None:
        self._matched = frozenset(matched_resources)

    def of(self, shape: PodShape) -> PodRequest:
        """What the pods of a shape ask for."""
        return shape.compiled(self, self._compile)

    def _compile(self, shape: PodShape) -> PodRequest:
        later = ""
        devices = NOTHING
        try:
            devices = request_of(shape)
        except InvalidAnnotation as error:
            later = str(error)
        except InvalidRequest as error:
            return PodRequest(NOTHING, str(error))
        designated = None
        if (text := shape.meta.annotations.get(kinds.DEVICE_ALLOCATED)) is not None:
            try:
                designated = allocation.parse(text)
            except (ValueError, RecursionError) as error:
                return PodRequest(NOTHING, gojson.message(text, error, "extension.DeviceAllocations"))
        if later:
            return PodRequest(NOTHING, later)
        templated = False
        if devices.gpus is not None and devices.gpus.shared:
            asked = zip(NAMES[GPU], devices.types[GPU].amounts, strict=True)
            templated = any(amount and name in self._matched for name, amount in asked)
        return PodRequest(devices, "", designated if devices.types else None, templated)
