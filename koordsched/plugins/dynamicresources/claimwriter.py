"""What PreBind writes to claims: the finalizer, then in one write the allocation and who it is reserved for.

The observable requests are upstream's (dra spec 3.8). Each is a patch on condition of the version that was read, so
that what is not read here stays, and what others wrote meanwhile is seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from koordsched.api.resource import AllocationResult, ResourceClaim, ResourceClaimConsumerReference
from koordsched.cluster.builtinkinds import RESOURCE_CLAIMS
from koordsched.framework.handle import Clock, WriteConflict, WriteFailed, Writes
from koordsched.plugins.dynamicresources.claims import is_reserved_for, title_of
from koordsched.plugins.shared.moments import moment_text

FINALIZER = "resource.kubernetes.io/delete-protection"

_TRIES = 5
_PAUSE = 0.01
"""Seconds between them, as client-go's retry.DefaultRetry has it."""

T = TypeVar("T")


class ClaimFailed(Exception):
    """The claim is not the pod's; the message is upstream's."""


class ClaimWriter:
    """Writes claims. `timestamps`: allocations get the time at which they are made, for binding conditions.

    `show` gets claims that were read, deallocated, or are reserved for one pod less, as the API server has them then.
    """

    def __init__(
        self, writes: Writes, clock: Clock, *, timestamps: bool, show: Callable[[ResourceClaim], None]
    ) -> None:
        self._writes = writes
        self._clock = clock
        self._timestamps = timestamps
        self._show = show

    async def reserve(
        self,
        claim: ResourceClaim,
        allocation: AllocationResult | None,
        user: ResourceClaimConsumerReference,
        *,
        shared: bool = False,
    ) -> ResourceClaim:
        """Stores the allocation, if it is a new one, and reserves the claim for the user; returns it as it is then.

        `shared`: another pod may have stored the same allocation meanwhile. Raises ClaimFailed.
        """
        title = title_of(claim)
        for attempt in range(_TRIES):
            if attempt:
                await asyncio.sleep(_PAUSE)
                read = await _or_fail(
                    self._writes.read(RESOURCE_CLAIMS, claim.metadata.namespace, claim.metadata.name),
                    f"get updated claim {title} after conflict",
                )
                if read.metadata.uid != claim.metadata.uid:
                    raise ClaimFailed(f"claim {title} got deleted in the meantime")
                claim = read
                self._show(claim)
                if allocation is not None and _is_done(claim, allocation, user):
                    return claim
            if shared and allocation is not None and _has(claim, allocation):
                allocation = None
            self._check(claim, allocation)
            if allocation is None and is_reserved_for(claim, user.uid):
                return claim
            try:
                return await self._reserve_once(claim, allocation, user)
            except WriteConflict as error:
                conflict = error
        step = "add allocation and reservation" if allocation is not None else "add reservation"
        raise ClaimFailed(f"{step} to claim {title}: {conflict}")

    @staticmethod
    def _check(claim: ResourceClaim, allocation: AllocationResult | None) -> None:
        title = title_of(claim)
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimFailed(f"claim {title} got deleted in the meantime")
        if allocation is not None and claim.status.allocation is not None:
            raise ClaimFailed(f"claim {title} got allocated elsewhere in the meantime")
        if allocation is None and claim.status.allocation is None:
            raise ClaimFailed(f"claim {title} got deallocated elsewhere in the meantime")

    async def _reserve_once(
        self, claim: ResourceClaim, allocation: AllocationResult | None, user: ResourceClaimConsumerReference
    ) -> ResourceClaim:
        """Raises WriteConflict if the claim is of another version by now, ClaimFailed for other failures."""
        title = title_of(claim)
        status: dict[str, Any] = {}
        if allocation is not None:
            finalizers = claim.metadata.finalizers
            if FINALIZER not in finalizers:
                changes = {"metadata": {"finalizers": [*finalizers, FINALIZER]}}
                claim = await _or_fail(
                    self._writes.patch(RESOURCE_CLAIMS, claim, changes), f"add finalizer to claim {title}"
                )
                self._check(claim, allocation)
            status["allocation"] = msgspec.to_builtins(allocation)
            if self._timestamps:
                # Of a new allocation only: one that there is already must not be changed.
                status["allocation"]["allocationTimestamp"] = moment_text(self._clock.wall())
        status["reservedFor"] = msgspec.to_builtins((*claim.status.reserved_for, user))
        step = "add allocation and reservation" if allocation is not None else "add reservation"
        return await _or_fail(
            self._writes.patch(RESOURCE_CLAIMS, claim, {"status": status}, subresource="status"),
            f"{step} to claim {title}",
        )

    async def unreserve(self, claim: ResourceClaim, uid: str) -> None:
        """Removes the pod, or PodGroup, of this uid from those that the claim is reserved for. Raises WriteFailed.

        It is shown at once: the next attempt must not find a reservation there that a late watch still has.
        """
        entry = {"$patch": "delete", "uid": uid}
        changes = {"status": {"reservedFor": [entry]}}
        meta = claim.metadata
        self._show(await self._writes.merge(RESOURCE_CLAIMS, meta, changes, subresource="status", strategic=True))

    async def deallocate(self, claim: ResourceClaim) -> None:
        """Takes the devices from the claim, if it still is of this version. Raises WriteFailed."""
        changes = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
        self._show(await self._writes.patch(RESOURCE_CLAIMS, claim, changes, subresource="status"))

    async def delete(self, claim: ResourceClaim) -> None:
        """Deletes the claim, which our finalizer keeps no longer. Raises WriteFailed."""
        meta = claim.metadata
        for attempt in range(_TRIES):
            if attempt:
                claim = await self._writes.read(RESOURCE_CLAIMS, meta.namespace, meta.name)
            finalizers = claim.metadata.finalizers
            if claim.metadata.uid != meta.uid or FINALIZER not in finalizers:
                break
            left = [each for each in finalizers if each != FINALIZER]
            try:
                await self._writes.patch(RESOURCE_CLAIMS, claim, {"metadata": {"finalizers": left or None}})
                break
            except WriteConflict:
                await asyncio.sleep(_PAUSE)
        await self._writes.delete(RESOURCE_CLAIMS, meta)


def _is_done(claim: ResourceClaim, allocation: AllocationResult, user: ResourceClaimConsumerReference) -> bool:
    """Whether an attempt whose answer was lost did it: no other client reserves for the user what was chosen for it."""
    return is_reserved_for(claim, user.uid) and _has(claim, allocation)


def _has(claim: ResourceClaim, allocation: AllocationResult) -> bool:
    """Whether the claim is allocated these devices."""
    stored = claim.status.allocation
    return stored is not None and _devices(stored) == _devices(allocation)


def _devices(allocation: AllocationResult) -> list[tuple[str, ...]]:
    results = allocation.devices.results
    return [(each.request, each.driver, each.pool, each.device, each.share_id or "") for each in results]


async def _or_fail(write: Awaitable[T], step: str) -> T:
    """The result. Raises WriteConflict, or ClaimFailed with the step that failed."""
    try:
        return await write
    except WriteConflict:
        raise
    except WriteFailed as error:
        raise ClaimFailed(f"{step}: {error}") from error
