"""Allocations in flight: what Reserve chose for claims, until the API server has it or the placement is taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from koordsched.api.resource import AllocationResult, ResourceClaim


class InFlight(msgspec.Struct, frozen=True):
    """An allocation in flight, for a pod (`holder`, its uid). `claim` has it in its status."""

    holder: str
    claim: ResourceClaim

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

    def end(self, uid: str) -> InFlight | None:
        """The claim is no longer in flight; returns what was."""
        entry = self._by_claim.pop(uid, None)
        if entry is not None:
            held = self._by_holder[entry.holder]
            del held[uid]
            if not held:
                del self._by_holder[entry.holder]
            self._changed(uid, None)
        return entry

    def give_up(self, holder: str) -> list[InFlight]:
        """The pod does not get what is in flight for it, the newest first; returns what was."""
        uids = reversed(list(self._by_holder.get(holder, ())))
        return [entry for uid in uids if (entry := self.end(uid)) is not None]

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
