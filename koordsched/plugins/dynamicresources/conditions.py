"""Binding conditions: devices that become ready only after they were allocated (dra spec 3.8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from koordsched.api.resource import (
    AllocatedDeviceStatus,
    DeviceCondition,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from koordsched.plugins.shared.moments import moment


class BindingFailed(Exception):
    """A driver says that a device will not be ready; the message is upstream's."""


class BindingTimeout(Exception):
    """A device was not ready in time; the message is upstream's."""


class _Device(NamedTuple):
    """An allocated device with conditions, and what its driver says about it."""

    result: DeviceRequestAllocationResult
    status: AllocatedDeviceStatus | None

    def condition(self, kind: str) -> DeviceCondition | None:
        """The condition of that type if it is true."""
        for condition in self.status.conditions if self.status is not None else ():
            if condition.type == kind and condition.status == "True":
                return condition
        return None


def has_conditions(claim: ResourceClaim) -> bool:
    """Whether a device of the claim has binding conditions."""
    allocation = claim.status.allocation
    return allocation is not None and any(result.binding_conditions for result in allocation.devices.results)


def failure_of(claim: ResourceClaim) -> DeviceCondition | None:
    """The first binding failure condition that is true."""
    for device in _devices(claim):
        for kind in device.result.binding_failure_conditions:
            if (found := device.condition(kind)) is not None:
                return found
    return None


def is_ready(claim: ResourceClaim) -> bool:
    """Whether all devices with conditions are reported and all their conditions true, and no failure is."""
    return failure_of(claim) is None and all(
        device.condition(kind) is not None for device in _devices(claim) for kind in device.result.binding_conditions
    )


def is_overdue(claim: ResourceClaim, timeout: float, now: float) -> bool:
    """Whether the claim was allocated longer than `timeout` seconds before `now`, seconds since the epoch."""
    allocation = claim.status.allocation
    allocated = moment(allocation.allocation_timestamp) if allocation is not None else None
    return allocated is not None and allocated + timeout < now


def is_usable(claim: ResourceClaim, timeout: float, now: float) -> bool:
    """Whether the devices of an allocated claim are ready, or may still become so."""
    return failure_of(claim) is None and (is_ready(claim) or not is_overdue(claim, timeout, now))


def check(claim: ResourceClaim, timeout: float, now: float) -> bool:
    """Whether the claim is ready. Raises BindingFailed or BindingTimeout if it will not be."""
    failure = failure_of(claim)
    if failure is not None:
        raise BindingFailed(
            f'device binding failed: claim={claim.metadata.name}, reason={failure.reason}, message="{failure.message}"'
        )
    if is_ready(claim):
        return True
    if is_overdue(claim, timeout, now):
        raise BindingTimeout(f"device binding timeout: claim={claim.metadata.name}")
    return False


def _devices(claim: ResourceClaim) -> Iterator[_Device]:
    allocation = claim.status.allocation
    if allocation is None:
        return
    reported = {(status.driver, status.pool, status.device): status for status in claim.status.devices}
    for result in allocation.devices.results:
        if result.binding_conditions:
            yield _Device(result, reported.get((result.driver, result.pool, result.device)))
