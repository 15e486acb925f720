"""What PreFilter finds about the claims of a pod, before any node is looked at (dra spec 3.4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from koordsched.api.resource import DeviceClass, ResourceClaim
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.plugins.dynamicresources.claims import title_of
from koordsched.plugins.dynamicresources.inflight import AllocationsInFlight

ClassOf = Callable[[str], DeviceClass | None]
"""The class of a name."""


def problem_of(
    claims: Sequence[ResourceClaim], in_flight: AllocationsInFlight, class_of: ClassOf, *, prioritized_list: bool
) -> Status:
    """The first problem of a claim that is not allocated yet, in order; SUCCESS if there is none."""
    for claim in claims:
        if claim.status.allocation is not None:
            continue
        if claim.metadata.uid in in_flight:
            return _refused(f"resource claim {title_of(claim)} is in the process of being allocated")
        status = _of_requests(claim, class_of, prioritized_list)
        if not status.ok:
            return status
    return SUCCESS


def _of_requests(claim: ResourceClaim, class_of: ClassOf, prioritized_list: bool) -> Status:
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            names = [(request.name, request.exactly.device_class_name)]
        elif not request.first_available:
            return _refused(f"resource claim {title_of(claim)}, request {request.name}: unknown request type")
        elif not prioritized_list:
            return _refused(
                f"resource claim {title_of(claim)}, request {request.name}: has subrequests, "
                "but the DRAPrioritizedList feature is disabled"
            )
        else:
            names = [(f"{request.name}/{each.name}", each.device_class_name) for each in request.first_available]
        for name, device_class in names:
            if not device_class:
                return Status(Code.ERROR, (f"request {name}: unsupported request type",))
            if class_of(device_class) is None:
                return _refused(f"request {name}: device class {device_class} does not exist")
    return SUCCESS


def _refused(text: str) -> Status:
    return Status(Code.UNRESOLVABLE, (text,))
