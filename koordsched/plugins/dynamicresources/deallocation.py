"""PostFilter: frees a claim that keeps the pod from nodes and that no other pod uses (dra spec 3.7)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

from koordsched.api.resource import ResourceClaim
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import WARNING, EventRecorder, Launch, WriteConflict, WriteFailed
from koordsched.framework.interface import PostFilterResult
from koordsched.framework.status import Code, Status
from koordsched.plugins.dynamicresources.assumed import AssumedClaims, key_of
from koordsched.plugins.dynamicresources.claims import title_of
from koordsched.plugins.dynamicresources.claimwriter import ClaimWriter
from koordsched.plugins.dynamicresources.cyclestate import DeviceCycle
from koordsched.plugins.dynamicresources.extended.claim import DELETED
from koordsched.plugins.dynamicresources.groups import ClaimGroups

NOTHING_TO_DEALLOCATE = "no new claims to deallocate"
DEALLOCATED = "deallocation of ResourceClaim completed"
UNRESERVED = "ResourceClaim unreserved for PodGroup"
STILL_NOT = "still not schedulable"

_log = logging.getLogger(__name__)


class Deallocation:
    """Decides what to free; it is written in the background once the decision is carried out.

    Upstream writes first, and an attempt whose write fails ends in an error. Here an Event says so.
    """

    def __init__(
        self,
        claims: AssumedClaims,
        groups: ClaimGroups | None,
        writer: ClaimWriter,
        rng: Random,
        launch: Launch,
        events: EventRecorder,
    ) -> None:
        """`groups`: None without claims of groups."""
        self._claims = claims
        self._groups = groups
        self._writer = writer
        self._rng = rng
        self._launch = launch
        self._events = events

    def decide(self, state: DeviceCycle | None, pod: Pod) -> PostFilterResult:
        """UNSCHEDULABLE; the text says what is freed. UNRESOLVABLE if the pod's group loses a reservation: the claim is
        freed when the pod is tried again, and others are not evicted for it.
        """
        if state is None:
            return _unschedulable(NOTHING_TO_DEALLOCATE)
        for claim in self._in_random_order(state):
            users = claim.status.reserved_for
            if claim.status.allocation is not None and (not users or [user.uid for user in users] == [pod.uid]):
                return self._freeing(DEALLOCATED, pod, claim, self._writer.deallocate)
            if self._groups is not None and (group := self._groups.idle_user(claim, pod)):
                write = partial(self._writer.unreserve, uid=group)
                return self._freeing(UNRESERVED, pod, claim, write, Code.UNRESOLVABLE)
        if state.leftover and state.special is not None:
            return self._freeing(DELETED, pod, state.special, self._writer.delete)
        return _unschedulable(STILL_NOT)

    def _in_random_order(self, state: DeviceCycle) -> list[ResourceClaim]:
        """The newest state of the claims that keep the pod from nodes."""
        found: list[ResourceClaim] = []
        for index in sorted(state.unavailable):
            claim = state.claims[index]
            known = self._claims.get(*key_of(claim))
            if known is not None and known.metadata.uid == claim.metadata.uid:
                found.append(known)
        if len(found) > 1:
            self._rng.shuffle(found)
        return found

    def _freeing(
        self,
        text: str,
        pod: Pod,
        claim: ResourceClaim,
        write: Callable[[ResourceClaim], Coroutine[Any, Any, None]],
        code: Code = Code.UNSCHEDULABLE,
    ) -> PostFilterResult:
        result = PostFilterResult(Status(code, (text,)))
        result.actuate = lambda: self._launch(self._free(pod, claim, write))
        return result

    async def _free(
        self, pod: Pod, claim: ResourceClaim, write: Callable[[ResourceClaim], Coroutine[Any, Any, None]]
    ) -> None:
        try:
            await write(claim)
        except WriteConflict:
            _log.debug("%s changed before it was freed; the pod is tried again for that", title_of(claim))
        except WriteFailed as error:
            _log.warning("cannot free claim %s for pod %s: %s", title_of(claim), pod.title, error)
            text = f"cannot free claim {claim.metadata.name}: {error}"
            self._events.pod_event(pod, WARNING, "FailedDeallocation", text)


def _unschedulable(text: str) -> PostFilterResult:
    return PostFilterResult(Status(Code.UNSCHEDULABLE, (text,)))
