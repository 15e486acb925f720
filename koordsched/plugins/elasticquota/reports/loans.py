"""Which quotas use what is guaranteed to their siblings.

Resources are not marked: what a quota uses beyond its min comes from what is no quota's min, and when that is not
enough, from unused parts of mins. Which of several lends is a convention: all borrowers borrow from all lenders, in
proportion to what they borrow and leave unused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

UNCLAIMED = ""
"""Instead of a lender: what is guaranteed to no sibling."""


class Position(NamedTuple):
    """A sibling's min and usage of one resource."""

    min: int
    used: int


class Loan(NamedTuple):
    """`borrower` uses `amount` of the `lender`'s min, or of no quota's (UNCLAIMED)."""

    borrower: str
    lender: str
    amount: int


def loans(positions: Mapping[str, Position], available: int) -> list[Loan]:
    """The loans among siblings that share `available`, by borrower and lender; parts are rounded down."""
    beyond = {name: used - floor for name, (floor, used) in sorted(positions.items()) if used > floor}
    borrowed = sum(beyond.values())
    if not borrowed:
        return []
    idle = {name: floor - used for name, (floor, used) in sorted(positions.items()) if used < floor}
    unclaimed = min(borrowed, max(0, available - sum(position.min for position in positions.values())))
    from_siblings = min(borrowed - unclaimed, sum(idle.values()))
    lenders = {UNCLAIMED: unclaimed}
    if from_siblings:
        total = sum(idle.values())
        lenders.update({name: from_siblings * amount // total for name, amount in idle.items()})
    found = [
        Loan(borrower, lender, amount * lent // borrowed)
        for borrower, amount in beyond.items()
        for lender, lent in lenders.items()
    ]
    return [loan for loan in found if loan.amount]
