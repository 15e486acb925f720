"""Claims that an earlier binding has left with a pod that waits: reserved for it, or with devices that it does not use.

A binding that fails takes its reservations back, but the scheduler may have ended before; and allocations stay for the
next attempt, which another member of the pod's gang may keep from coming. Others could have the devices. A claim that
is being deleted, moreover, goes only when it is reserved for no pod, and its pod is not tried until then. (Upstream
frees claims only where they keep a pod from all nodes.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from koordsched.api.resource import ResourceClaim
from koordsched.cluster.pod import Pod
from koordsched.framework.controller import ControllerHandle
from koordsched.plugins.dynamicresources.claims import is_owned_by, is_reserved_for, names_of_entries
from koordsched.plugins.dynamicresources.extended.claim import is_special
from koordsched.plugins.dynamicresources.plugin import DynamicResources

_log = logging.getLogger(__name__)

INTERVAL = 10.0
"""Seconds between looks. What is left has to be there at two of them: a binding that a replica sent before it lost the
lease may arrive until then, and mostly the pod is tried again.
"""

Found = set[tuple[str, str]]
"""(pod, claim), by uid."""

_AT_ONCE = 200
"""Pods between which others get their turn: less than a millisecond."""


class LeftClaims:
    """Looks for such claims while this replica leads, and frees them."""

    def __init__(self, plugin: DynamicResources, args: object, handle: ControllerHandle) -> None:
        self._books = plugin.books
        self._binding = plugin.binding
        self._profiles = handle.profiles
        self._waiting: dict[str, Pod] = {}
        """By uid, our pods that may have claims and are not bound, in their newest version."""
        self._placed: set[str] = set()
        """Those of them that are being bound."""
        handle.cluster.add_observer(self)

    async def run(self) -> None:
        """Looks until cancelled."""
        found: Found = set()
        while True:
            found = await self.look(found)
            await asyncio.sleep(INTERVAL)

    async def look(self, before: Found) -> Found:
        """Frees what the last look found, too. Returns what this one finds."""
        found: Found = set()
        for number, uid in enumerate(list(self._waiting), start=1):
            if (pod := self._waiting.get(uid)) is not None and uid not in self._placed:
                left = [claim for claim in self._claims_of(pod) if self._is_left(claim, pod)]
                found.update((uid, claim.metadata.uid) for claim in left)
                if due := [claim for claim in left if (uid, claim.metadata.uid) in before]:
                    names = sorted(claim.metadata.name for claim in due)
                    _log.info("pod %s waits, and an earlier binding has left it claims: %s; freed", pod.title, names)
                    self._binding.take_back(pod, due)
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
        return found

    def _claims_of(self, pod: Pod) -> Iterator[ResourceClaim]:
        for _, name in names_of_entries(pod):
            claim = self._books.claims.get(pod.namespace, name)
            if claim is not None:
                yield claim
        special = self._books.special_claims.of(pod)
        if special is not None:
            yield special

    @staticmethod
    def _is_left(claim: ResourceClaim, pod: Pod) -> bool:
        if is_special(claim) or is_reserved_for(claim, pod.uid):
            return True
        return claim.status.allocation is not None and not claim.status.reserved_for and is_owned_by(claim, pod)

    # --- pods ----------------------------------------------------------------------------------------

    def pod_seen(self, pod: Pod, assigned: bool) -> None:
        """See PodObserver."""
        if not pod.node and pod.shape.scheduler_name in self._profiles and self._may_claim(pod):
            self._waiting[pod.uid] = pod
            self.pod_assigned(pod, assigned)
        else:
            self.pod_gone(pod.uid)

    def _may_claim(self, pod: Pod) -> bool:
        served = self._books.served
        return bool(pod.shape.spec.resource_claims) or (served is not None and served.may_concern(pod.shape))

    def pod_assigned(self, pod: Pod, assigned: bool) -> None:
        """See PodObserver."""
        if assigned and pod.uid in self._waiting:
            self._placed.add(pod.uid)
        else:
            self._placed.discard(pod.uid)

    def pod_gone(self, uid: str) -> None:
        """See PodObserver."""
        self._waiting.pop(uid, None)
        self._placed.discard(uid)
