"""Why a request is not served on a node: its devices, counted by what speaks against them (L4).

Each (sub-)request is looked at by itself. Where all have enough, they do not go together. Devices in use are those that
it could have otherwise: a search does not look at them, so a selector that fails on one of them is no error.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from koordsched.plugins.dynamicresources.structured.claiming import Claiming, Refused
from koordsched.plugins.dynamicresources.structured.ground import Ground
from koordsched.plugins.dynamicresources.structured.plans import Plan, Planner, Suits
from koordsched.plugins.dynamicresources.structured.requests import MOST_DEVICES, Alternative, Demand
from koordsched.plugins.dynamicresources.structured.selectors import Expired

IN_USE = "in use"
_OF_SUITS = {
    Suits.NOT_SELECTED: "not selected",
    Suits.TOO_SMALL: "too small",
    Suits.NO_COUNTERS: "partitions, which are not supported",
    Suits.TAINTED: "tainted",
    Suits.FAILED: "with a selector that fails",
    Suits.FAULTY: "with a selector that fails",
}
PARTIAL = "of a driver that has a pool which is not in order"
TOO_MANY = "too many for one claim"
_OF_REFUSED = {
    Refused.CAPACITY: "without enough capacity left",
    Refused.COUNTERS: "without enough counters left",
    Refused.CONSTRAINT: "without the attribute of a constraint",
}


class RequestReasons(NamedTuple):
    """Of a (sub-)request: how many devices it needs (0: all), how many of the node's it could have, and how many not,
    by reason.
    """

    claim: str
    request: str
    needed: int
    free: int
    reasons: dict[str, int]

    @property
    def enough(self) -> bool:
        """Whether there is enough for this request, if it were alone."""
        return self.free >= max(self.needed, 1)

    @property
    def text(self) -> str:
        """In words."""
        needed = str(self.needed) if self.needed else "all"
        against = "".join(f", {number} {reason}" for reason, number in sorted(self.reasons.items()))
        return f"claim {self.claim}, request {self.request}: needs {needed}, {self.free} available{against}"


def reasons_of(
    demand: Demand, planner: Planner, plan: Plan, ground: Ground, expired: Expired
) -> tuple[RequestReasons, ...]:
    """For all (sub-)requests. Raises SearchExpired."""
    return tuple(
        _of_alternative(demand, planner, plan, ground, alternative, expired)
        for alternative in demand.prepared.alternatives
        if alternative.claim < len(demand.prepared.claims)
    )


def _of_alternative(
    demand: Demand, planner: Planner, plan: Plan, ground: Ground, alternative: Alternative, expired: Expired
) -> RequestReasons:
    claiming = Claiming(demand.prepared, plan, ground)
    open_ = claiming.free(alternative)
    against: Counter[str] = Counter()
    free = 0
    for position in range(len(plan.kinds)):
        suits = planner.look(plan, alternative, position, expired)
        if not open_ >> position & 1 and suits in (Suits.YES, Suits.FAILED):
            against[IN_USE] += 1
            continue
        if suits is not Suits.YES:
            failure = plan.kinds[position].failures.get(alternative.number) if suits is Suits.FAULTY else None
            why = f" ({demand.text(failure, alternative.claim)})" if failure is not None else ""
            against[_OF_SUITS[suits] + why] += 1
            continue
        if alternative.everything and plan.kinds[position].equipment.model.driver in plan.partial:
            against[PARTIAL] += 1
            continue
        refused = claiming.take(alternative, position)
        if refused is Refused.NO:
            free += 1
            claiming.undo(0)
        else:
            against[_OF_REFUSED[refused]] += 1
    if demand.prepared.lenient and alternative.everything and free > MOST_DEVICES:
        against[TOO_MANY], free = free, 0
    return RequestReasons(demand.names[alternative.claim], alternative.name, alternative.wanted, free, dict(against))
