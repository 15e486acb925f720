"""What happens to claims between Reserve and the binding, and when a placement is taken back (dra spec 3.7, 3.8)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from koordsched.api.meta import ObjectMeta
from koordsched.api.resource import AllocationResult, ResourceClaim, ResourceClaimConsumerReference
from koordsched.cluster.builtinkinds import PODS, RESOURCE_CLAIMS
from koordsched.cluster.claimedresources import as_status
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import NORMAL, Handle, ObjectGone, WriteFailed
from koordsched.framework.interface import CycleState
from koordsched.plugins.dynamicresources.allocatable.takings import updating_failed
from koordsched.plugins.dynamicresources.assumed import is_older, key_of
from koordsched.plugins.dynamicresources.books import DeviceBooks
from koordsched.plugins.dynamicresources.claims import is_reserved_for, reference_to, title_of
from koordsched.plugins.dynamicresources.claimwriter import ClaimFailed, ClaimWriter
from koordsched.plugins.dynamicresources.cyclestate import DeviceCycle
from koordsched.plugins.dynamicresources.extended.claim import (
    CREATES_METRIC,
    create_failed,
    is_in_memory,
    is_special,
    pod_status,
    requesting,
    status_failed,
    to_create,
)
from koordsched.plugins.dynamicresources.leftstatus import CLAIMED, SPECIAL, left_in_status
from koordsched.plugins.dynamicresources.readiness import Readiness, any_conditions

PENDING = "BindingConditionsPending"

SEEN_WITHIN = 120.0
"""Seconds in which the watch is expected to show a claim that was created."""

ASKED_AFTER = 5.0
"""Seconds without news of such a claim, after which the API server is asked whether it is still there."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class ClaimBinding:
    """Writes claims before their pod is bound. `readiness`: waits for devices, None without binding conditions."""

    def __init__(self, handle: Handle, books: DeviceBooks, writer: ClaimWriter, readiness: Readiness | None) -> None:
        self._writes = handle.writes
        self._count = handle.count
        self._events = handle.events
        self._launch = handle.launch
        self._show = handle.show
        self._books = books
        self._in_flight = books.in_flight
        self._claims = books.claims
        self._changes = books.claim_changes
        self._writer = writer
        self._readiness = readiness
        self._releases: dict[str, asyncio.Event] = {}
        """uid of a pod -> set when the claims that it was placed with are no longer reserved for it."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """uid of a claim that members of a job may share -> held by the one that writes it."""

    def has_left(self, state: DeviceCycle | None, pod: Pod) -> bool:
        """Whether `bind` has to remove what an earlier binding of the pod has left. `state`: see there."""
        return (
            pod.uid in self._releases
            or self._books.special_claims.of(pod) is not None
            or bool(left_in_status(pod, state))
        )

    async def bind(self, cycle: CycleState, state: DeviceCycle | None, pod: Pod, node: str) -> None:
        """Allocates and reserves what is not yet, one claim after the other, and waits until devices are ready.
        `state`: None if the pod claims nothing.

        Raises ClaimFailed, BindingFailed or BindingTimeout.
        """
        if (release := self._releases.get(pod.uid)) is not None:
            # Of an earlier attempt: it would undo what is written now.
            await release.wait()
        await self._remove_left(state, pod)
        if state is None:
            return
        bound = [await self._reserve(state, claim, pod, node) for claim in self._to_reserve(state)]
        if state.claimed:
            await self._show_claimed(state, pod)
        if self._readiness is not None and any_conditions(bound):
            text = f"waiting for binding conditions for device on node {node}"
            self._events.pod_event(pod, NORMAL, PENDING, text, action="Scheduling")
            await self._readiness.wait(bound, cycle.waiting_for_others)

    async def _remove_left(self, state: DeviceCycle | None, pod: Pod) -> None:
        if fields := left_in_status(pod, state):
            try:
                await self._clear_status(pod, fields)
            except WriteFailed as error:
                raise ClaimFailed(updating_failed(pod, str(error))) from error
        if (left := self._books.special_claims.of(pod)) is not None:
            await _attempted("delete", left, self._writer.delete(left))

    async def _show_claimed(self, state: DeviceCycle, pod: Pod) -> None:
        """Writes to the pod's status what its claims take of the node, for the kubelet and for schedulers to come."""
        state.shown.append(CLAIMED)
        status = {"status": as_status(state.claimed)}
        try:
            await _uninterrupted(self._writes.merge(PODS, _meta(pod), status, subresource="status", strategic=True))
        except WriteFailed as error:
            raise ClaimFailed(updating_failed(pod, str(error))) from error

    @staticmethod
    def _to_reserve(state: DeviceCycle) -> Sequence[ResourceClaim]:
        """The pod's claims, and the special one if there is something to claim on the node."""
        special = [chosen.claim for chosen in state.chosen if is_in_memory(chosen.claim)]
        return (*state.claims, *special)

    async def _reserve(self, state: DeviceCycle, claim: ResourceClaim, pod: Pod, node: str) -> ResourceClaim:
        chosen = next((each for each in state.chosen if each.claim.metadata.uid == claim.metadata.uid), None)
        allocation = chosen.allocation if chosen is not None else None
        if is_in_memory(claim):
            assert allocation is not None, "it is among what was chosen"
            return await self._make_special(state, claim, pod, node)
        if not state.in_job:
            return await self._reserve_named(state, claim, allocation, pod)
        # Pods that share it would only meet with conflicts.
        turn = self._turns.setdefault(claim.metadata.uid, asyncio.Lock())
        async with turn:
            return await self._reserve_named(state, claim, allocation, pod)

    async def _reserve_named(
        self, state: DeviceCycle, claim: ResourceClaim, allocation: AllocationResult | None, pod: Pod
    ) -> ResourceClaim:
        known = self._claims.get(*key_of(claim))
        if known is not None and known.metadata.uid == claim.metadata.uid and not is_older(known, claim):
            claim = known
        user = self._books.user_of(claim, pod)
        if user.uid == pod.uid:
            state.reserved.append(claim)
        if allocation is None and is_reserved_for(claim, user.uid):
            return claim
        if allocation is not None and claim.status.allocation is None and claim.metadata.uid not in self._in_flight:
            # It was written for a member that shared it, and taken back since: others may have the devices.
            raise ClaimFailed(f"claim {title_of(claim)} got deallocated elsewhere in the meantime")
        return await _uninterrupted(self._write(claim, allocation, user, shared=state.in_job))

    async def _write(
        self,
        claim: ResourceClaim,
        allocation: AllocationResult | None,
        user: ResourceClaimConsumerReference,
        *,
        shared: bool,
    ) -> ResourceClaim:
        """Reserves the claim and shows it: before the placement may be taken back, whatever ends the binding."""
        written = await self._writer.reserve(claim, allocation, user, shared=shared)
        self._show(RESOURCE_CLAIMS, written)
        return written

    # --- the special claim -----------------------------------------------------------------------------

    async def _make_special(self, state: DeviceCycle, claim: ResourceClaim, pod: Pod, node: str) -> ResourceClaim:
        """Creates the claim for extended resources, allocated and reserved for the pod, whose status then names it."""
        special = state.requests
        assert special is not None, "there is something to claim"
        (allocation,) = (each.allocation for each in state.chosen if each.claim is claim)
        written = await _uninterrupted(self._create(state, requesting(claim, special), allocation, pod))
        state.shown.append(SPECIAL)
        try:
            status = pod_status(written.metadata.name, special)
            await self._writes.merge(PODS, _meta(pod), status, subresource="status", strategic=True)
        except WriteFailed as error:
            raise ClaimFailed(status_failed(pod, str(error))) from error
        finally:
            await self._until_seen(written)
        return written

    async def _create(
        self, state: DeviceCycle, claim: ResourceClaim, allocation: AllocationResult, pod: Pod
    ) -> ResourceClaim:
        """How far it comes is in the state, for `release`."""
        try:
            state.created = await self._writes.create(RESOURCE_CLAIMS, pod.namespace, to_create(claim))
        except WriteFailed as error:
            self._count(CREATES_METRIC, "failure")
            raise ClaimFailed(create_failed(pod, str(error))) from error
        self._count(CREATES_METRIC, "success")
        state.created = await self._writer.reserve(state.created, allocation, reference_to(pod))
        return state.created

    async def _until_seen(self, written: ResourceClaim) -> None:
        """Until then the allocation stays in flight; that it takes long is no failure. Raises ClaimFailed if the claim
        is gone: a watch that began anew meanwhile will never show it.
        """
        key = key_of(written)
        with suppress(TimeoutError):
            async with asyncio.timeout(SEEN_WITHIN):
                while not self._is_seen(written):
                    await self._changes.wait((key,), ASKED_AFTER)
                    if not self._is_seen(written) and await self._is_gone(written):
                        raise ClaimFailed(f"claim {title_of(written)} got deleted in the meantime")
            return
        _log.warning("claim %s was created, but its watch does not show it", title_of(written))

    def _is_seen(self, written: ResourceClaim) -> bool:
        known = self._claims.get(*key_of(written))
        return known is not None and not is_older(known, written)

    async def _is_gone(self, written: ResourceClaim) -> bool:
        """Whether the API server has the claim no longer; False if that cannot be found out."""
        try:
            await self._writes.read(RESOURCE_CLAIMS, *key_of(written))
        except ObjectGone:
            return True
        except WriteFailed:
            pass
        return False

    # --- taking back -------------------------------------------------------------------------------------

    def release(self, state: DeviceCycle, pod: Pod) -> None:
        """What PreBind wrote for a pod that is not bound after all is undone, but for allocations."""
        if state.reserved or state.created is not None or state.shown:
            done = self._releases[pod.uid] = asyncio.Event()
            claims, state.reserved = state.reserved, []
            created, state.created = state.created, None
            shown, state.shown = state.shown, []
            if created is not None:
                self._books.special_claims.disown(created)
                if created.status.allocation is not None:
                    # Its devices are in use until it is deleted, also if no watch has shown it.
                    self._in_flight.begin(created, created.metadata.uid)
            self._launch(self._undo(claims, created, shown, pod, done))

    async def _undo(
        self,
        claims: Sequence[ResourceClaim],
        created: ResourceClaim | None,
        shown: Sequence[str],
        pod: Pod,
        done: asyncio.Event,
    ) -> None:
        try:
            for claim in claims:
                await _attempted("unreserve", claim, self._writer.unreserve(claim, pod.uid))
            if created is not None:
                await _attempted("delete", created, self._writer.delete(created))
                self._books.give_up(created.metadata.uid)
            if shown:
                try:
                    await self._clear_status(pod, shown)
                except WriteFailed as error:
                    _log.warning("cannot clear the status of pod %s: %s", pod.key, error)
        finally:
            self._released(pod, done)

    def _released(self, pod: Pod, done: asyncio.Event) -> None:
        done.set()
        if self._releases.get(pod.uid) is done:
            del self._releases[pod.uid]

    def take_back(self, pod: Pod, claims: Sequence[ResourceClaim]) -> None:
        """Frees claims that an earlier binding has left with a pod that waits. If it is tried now, PreBind follows."""
        if pod.uid not in self._releases:
            done = self._releases[pod.uid] = asyncio.Event()
            self._launch(self._free(claims, pod, done))

    async def _free(self, claims: Sequence[ResourceClaim], pod: Pod, done: asyncio.Event) -> None:
        try:
            for claim in claims:
                if is_special(claim):
                    await _attempted("delete", claim, self._writer.delete(claim))
                    continue
                if is_reserved_for(claim, pod.uid):
                    await _attempted("unreserve", claim, self._writer.unreserve(claim, pod.uid))
                known = self._claims.get(*key_of(claim))
                if known is not None and known.metadata.uid == claim.metadata.uid and _is_idle(known):
                    await _attempted("deallocate", known, self._writer.deallocate(known))
        finally:
            self._released(pod, done)

    async def _clear_status(self, pod: Pod, fields: Sequence[str]) -> None:
        """Raises WriteFailed; but that the pod is gone is no failure."""
        cleared = {"status": dict.fromkeys(fields)}
        with suppress(ObjectGone):
            await self._writes.merge(PODS, _meta(pod), cleared, subresource="status", strategic=True)


async def _attempted(what: str, claim: ResourceClaim, write: Awaitable[None]) -> None:
    """A write that nothing depends on: the claim controller does the same when the pod is gone."""
    try:
        await write
    except WriteFailed as error:
        _log.warning("cannot %s claim %s: %s", what, title_of(claim), error)


def _is_idle(claim: ResourceClaim) -> bool:
    return claim.status.allocation is not None and not claim.status.reserved_for


async def _uninterrupted(write: Coroutine[Any, Any, T]) -> T:
    """The result. If the binding is cancelled, it is waited for all the same: it decides who has the devices."""
    task = asyncio.ensure_future(write)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)  # whether it fails does not matter any more
        raise


def _meta(pod: Pod) -> ObjectMeta:
    return ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid)
