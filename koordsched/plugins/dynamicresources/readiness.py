"""Waits in PreBind until devices with binding conditions are ready (dra spec 3.8), and counts how that ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from koordsched.api.resource import ResourceClaim
from koordsched.framework.handle import Clock, Count, Observe
from koordsched.plugins.dynamicresources.assumed import AssumedClaims, is_older, key_of
from koordsched.plugins.dynamicresources.changes import ClaimChanges
from koordsched.plugins.dynamicresources.claims import title_of
from koordsched.plugins.dynamicresources.claimwriter import ClaimFailed
from koordsched.plugins.dynamicresources.conditions import BindingFailed, BindingTimeout, check, has_conditions

POLL = 5.0
"""Seconds between checks while no claim changes."""

_ALLOCATIONS = "scheduler_dra_bindingconditions_allocations_total"
_WAIT = "scheduler_dra_bindingconditions_wait_duration_seconds"


class Readiness:
    """Waits for the devices of claims, at most `timeout` seconds."""

    def __init__(
        self,
        claims: AssumedClaims,
        changes: ClaimChanges,
        clock: Clock,
        timeout: float,
        profile: str,
        count: Count,
        observe: Observe,
    ) -> None:
        self._claims = claims
        self._changes = changes
        self._clock = clock
        self._timeout = timeout
        self._profile = profile
        self._count = count
        self._observe = observe

    async def wait(self, claims: Sequence[ResourceClaim], waiting: Callable[[], AbstractContextManager[None]]) -> None:
        """Returns when all devices are ready. Raises BindingFailed or BindingTimeout if they will not be, ClaimFailed
        if a claim is gone.

        `waiting` is entered while only drivers have work to do.
        """
        began = self._clock.monotonic()
        outcome = "error"
        try:
            with waiting():
                await self._wait(claims)
            outcome = "success"
        except BindingFailed:
            outcome = "failure"
            raise
        except BindingTimeout:
            outcome = "timeout"
            raise
        finally:
            self._measure(claims, outcome, self._clock.monotonic() - began)

    async def _wait(self, claims: Sequence[ResourceClaim]) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                while not self._all_ready(claims):
                    await self._changes.wait(map(key_of, claims), POLL)
        except TimeoutError as error:
            raise BindingTimeout("device binding timeout: context deadline exceeded") from error

    def _all_ready(self, claims: Sequence[ResourceClaim]) -> bool:
        now = self._clock.wall()
        ready = True
        for claim in claims:
            known = self._claims.get(*key_of(claim))
            if known is None or known.metadata.uid != claim.metadata.uid:
                raise ClaimFailed(f'could not find ResourceClaim "{title_of(claim)}"')
            ready &= check(claim if is_older(known, claim) else known, self._timeout, now)
        return ready

    def _measure(self, claims: Sequence[ResourceClaim], outcome: str, seconds: float) -> None:
        for claim in claims:
            allocation = claim.status.allocation
            for result in allocation.devices.results if allocation is not None else ():
                if result.binding_conditions:
                    self._count(_ALLOCATIONS, self._profile, result.driver, outcome)
                self._observe(_WAIT, seconds, self._profile, result.driver, outcome)


def any_conditions(claims: Sequence[ResourceClaim]) -> bool:
    """Whether there is something to wait for."""
    return any(map(has_conditions, claims))
