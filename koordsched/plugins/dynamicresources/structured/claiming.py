"""Devices taken in the course of a search: taking one, with all checks that depend on what is in use, and undoing it.

Source: dra spec 3.6, candidate checks, with B1, B2, B4, B5 and B10 put right: what is refused leaves nothing
behind, and devices that are taken for admin access are in no other request's way.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from koordsched.plugins.dynamicresources.structured.constraints import State, extended
from koordsched.plugins.dynamicresources.structured.ground import Ground
from koordsched.plugins.dynamicresources.structured.plans import Plan
from koordsched.plugins.dynamicresources.structured.requests import Alternative, Prepared

States = tuple[State, ...]


class Refused(IntEnum):
    """Why a device that suits a request cannot be taken for it now."""

    NO = 0
    CAPACITY = 1
    COUNTERS = 2
    CONSTRAINT = 3


class Taken(NamedTuple):
    """A device that was taken, and what is needed to undo that. `first`: its claim did not have it before."""

    alternative: Alternative
    position: int
    states: States | None
    counters: bool
    first: bool


class Claiming:
    """The devices that are taken, and what that leaves. `picks` are in the order of taking.

    `taken`: devices that normal requests took as a whole; `claimed`: by claim, all that its requests took; `shares` and
    `consumed`: of shared devices, by position; `states`: of the constraints, by claim.
    """

    __slots__ = (
        "_constraints",
        "claimed",
        "consumed",
        "counters",
        "ground",
        "numbers",
        "picks",
        "plan",
        "shares",
        "states",
        "taken",
    )

    def __init__(self, prepared: Prepared, plan: Plan, ground: Ground) -> None:
        self.plan = plan
        self.ground = ground
        self.picks: list[Taken] = []
        self.taken = 0
        self.claimed = [0] * len(prepared.claims)
        self.numbers = [0] * len(prepared.claims)
        self.shares: dict[int, int] = {}
        self.consumed: dict[int, dict[str, int]] = {}
        self.counters: dict[int, dict[tuple[str, str], int]] = {}
        self.states: list[States] = [(None,) * len(claim.constraints) for claim in prepared.claims]
        self._constraints = [claim.constraints for claim in prepared.claims]

    def free(self, alternative: Alternative) -> int:
        """The devices that are not in use for such a request."""
        if alternative.admin:
            return self.plan.every & ~self.claimed[alternative.claim]
        return self.plan.every & ~(self.ground.used | self.taken)

    def take(self, alternative: Alternative, position: int) -> Refused:
        """Takes a device that is free and suits."""
        plan, bit = self.plan, 1 << position
        multi = plan.multi & bit
        normal = not alternative.admin
        if multi and normal and not self._has_capacity(alternative, position):
            return Refused.CAPACITY
        consumes = plan.counted & bit and not (multi and self._is_shared(position))
        if consumes and not self._has_counters(position):
            return Refused.COUNTERS
        before: States | None = None
        if self._constraints[alternative.claim]:
            before = self.states[alternative.claim]
            after = self._extended(alternative, position, before)
            if after is None:
                return Refused.CONSTRAINT
            self.states[alternative.claim] = after
        counted = bool(consumes) and normal
        if counted:
            self._consume_counters(position, 1)
        if normal and multi:
            self._share(alternative, position, 1)
        elif normal:
            self.taken |= bit
        first = not self.claimed[alternative.claim] & bit
        self.claimed[alternative.claim] |= bit
        self.numbers[alternative.claim] += 1
        self.picks.append(Taken(alternative, position, before, counted, first))
        return Refused.NO

    def undo(self, mark: int) -> None:
        """Gives back all but the first `mark` devices."""
        while len(self.picks) > mark:
            alternative, position, states, counted, first = self.picks.pop()
            bit, claim = 1 << position, alternative.claim
            self.numbers[claim] -= 1
            if states is not None:
                self.states[claim] = states
            if counted:
                self._consume_counters(position, -1)
            if not alternative.admin:
                if self.plan.multi & bit:
                    self._share(alternative, position, -1)
                else:
                    self.taken &= ~bit
            if first:
                self.claimed[claim] &= ~bit

    # --- checks ------------------------------------------------------------------------------------------

    def _has_capacity(self, alternative: Alternative, position: int) -> bool:
        kind = self.plan.kinds[position]
        needs = kind.consumes[alternative.number]
        before = self.ground.shared.get(position)
        here = self.consumed.get(position)
        if before is None and here is None:
            return True
        limits = kind.limits
        for name, amount in needs:
            left = limits[name] - amount.nano
            if before is not None:
                left -= before.consumed.get(name, 0)
            if here is not None:
                left -= here.get(name, 0)
            if left < 0:
                return False
        return True

    def _is_shared(self, position: int) -> bool:
        return position in self.ground.shared or self.shares.get(position, 0) > 0

    def _has_counters(self, position: int) -> bool:
        pool = self.plan.pool_of(position)
        available = self.ground.available[pool]
        here = self.counters.get(pool, {})
        needs = dict(self.plan.kinds[position].equipment.model.counters)
        return all(left >= here.get(key, 0) + needs.get(key, 0) for key, left in available.items())

    def _extended(self, alternative: Alternative, position: int, states: States) -> States | None:
        values = self.plan.kinds[position].values[alternative.claim]
        found = list(states)
        for at, constraint in enumerate(self._constraints[alternative.claim]):
            if alternative.number not in constraint.alternatives:
                continue
            value = values[at]
            state = None if value is None else extended(constraint, states[at], value)
            if state is None:
                return None
            found[at] = state
        return tuple(found)

    # --- effects -----------------------------------------------------------------------------------------

    def _consume_counters(self, position: int, sign: int) -> None:
        here = self.counters.setdefault(self.plan.pool_of(position), {})
        for key, amount in self.plan.kinds[position].equipment.model.counters:
            here[key] = here.get(key, 0) + sign * amount

    def _share(self, alternative: Alternative, position: int, sign: int) -> None:
        self.shares[position] = self.shares.get(position, 0) + sign
        here = self.consumed.setdefault(position, {})
        for name, amount in self.plan.kinds[position].consumes[alternative.number]:
            here[name] = here.get(name, 0) + sign * amount.nano
