"""Allocations in flight: what Reserve chose for claims, until the API server has it or the placement is taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set

import msgspec
from msgspec.structs import replace

from koordsched.api.resource import AllocationResult, ResourceClaim


class InFlight(msgspec.Struct, frozen=True):
    """An allocation in flight, for a pod (`holder`, its uid). `claim` has it in its status.

    `sharers`: the uids of other pods that get it as well, in the order in which they joined.
    """

    holder: str
    claim: ResourceClaim
    sharers: tuple[str, ...] = ()

    @property
    def holders(self) -> tuple[str, ...]:
        """All pods that it is for."""
        return (self.holder, *self.sharers)

    @property
    def allocation(self) -> AllocationResult:
        """The devices."""
        allocation = self.claim.status.allocation
        assert allocation is not None, "that is what is in flight"
        return allocation


class AllocationsInFlight:
    """By claim. `changed(uid, allocation)` is called with what a claim gets, and with None when that is over.

    A keeper of state for journals: how far writes have come is not among the objects there are.
    """

    def __init__(self, changed: Callable[[str, AllocationResult | None], None]) -> None:
        self.state_type = list[InFlight]
        self._changed = changed
        self._by_claim: dict[str, InFlight] = {}
        self._by_holder: dict[str, dict[str, None]] = {}

    def __contains__(self, uid: str) -> bool:
        """Whether the claim of this uid is being allocated."""
        return uid in self._by_claim

    def __len__(self) -> int:
        return len(self._by_claim)

    def get(self, uid: str) -> ResourceClaim | None:
        """The claim of this uid with its allocation in flight."""
        found = self._by_claim.get(uid)
        return found.claim if found is not None else None

    def entry(self, uid: str) -> InFlight | None:
        """The allocation in flight for the claim of this uid."""
        return self._by_claim.get(uid)

    def shared_with(self, uid: str, pods: Set[str]) -> ResourceClaim | None:
        """The claim of this uid with its allocation, if that is in flight for one of these pods (their uids)."""
        found = self._by_claim.get(uid)
        return found.claim if found is not None and not pods.isdisjoint(found.holders) else None

    def __iter__(self) -> Iterator[InFlight]:
        """All of them, oldest first."""
        return iter(list(self._by_claim.values()))

    def begin(self, claim: ResourceClaim, holder: str) -> None:
        """The claim, whose status has the allocation, gets it for the pod of this uid."""
        entry = InFlight(holder, claim)
        uid = claim.metadata.uid
        self._by_claim[uid] = entry
        self._by_holder.setdefault(holder, {})[uid] = None
        self._changed(uid, entry.allocation)

    def join(self, uid: str, sharer: str) -> bool:
        """The pod of the uid `sharer` gets what is in flight for a claim as well; False if nothing is."""
        entry = self._by_claim.get(uid)
        if entry is None:
            return False
        if sharer not in entry.holders:
            self._by_claim[uid] = replace(entry, sharers=(*entry.sharers, sharer))
            self._by_holder.setdefault(sharer, {})[uid] = None
        return True

    def end(self, uid: str) -> InFlight | None:
        """The claim is no longer in flight; returns what was."""
        entry = self._by_claim.pop(uid, None)
        if entry is not None:
            for holder in entry.holders:
                self._let_go(holder, uid)
            self._changed(uid, None)
        return entry

    def give_up(self, holder: str) -> list[InFlight]:
        """The pod does not get what is in flight for it, the newest first; returns what is in flight no longer.

        What it shares stays in flight for the others.
        """
        ended: list[InFlight] = []
        for uid in reversed(list(self._by_holder.get(holder, ()))):
            entry = self._by_claim[uid]
            left = tuple(each for each in entry.holders if each != holder)
            if left:
                self._by_claim[uid] = InFlight(left[0], entry.claim, left[1:])
                self._let_go(holder, uid)
            else:
                self.end(uid)
                ended.append(entry)
        return ended

    def _let_go(self, holder: str, uid: str) -> None:
        held = self._by_holder[holder]
        del held[uid]
        if not held:
            del self._by_holder[holder]

    # --- journals ----------------------------------------------------------------------------------

    def recorded_state(self) -> list[InFlight]:
        """All of them, oldest first."""
        return list(self)

    def restore_state(self, state: Iterable[InFlight]) -> None:
        """Takes over these in place of all there are."""
        for uid in list(self._by_claim):
            self.end(uid)
        for entry in state:
            self.begin(entry.claim, entry.holder)
            for sharer in entry.sharers:
                self.join(entry.claim.metadata.uid, sharer)
