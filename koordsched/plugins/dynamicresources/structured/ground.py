"""What is in use on a node when a search begins, by the positions of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from koordsched.plugins.dynamicresources.structured.plans import Plan, arranged
from koordsched.plugins.dynamicresources.structured.pools import Counters
from koordsched.plugins.dynamicresources.structured.views import Shared, View


class Ground:
    """`used`: devices that are in use as a whole; `shared`: those in use in part; `available`: what is left of the
    counters of each usable pool, which may be negative.
    """

    __slots__ = ("available", "shared", "used")

    def __init__(self, plan: Plan, views: Sequence[View]) -> None:
        self.used = 0
        self.shared: dict[int, Shared] = {}
        self.available: list[Counters] = []
        for start, number, counters in zip(plan.pools, plan.usable, plan.counters, strict=True):
            view = views[number]
            self.used |= view.used << start
            for slot, shared in view.shared.items():
                self.shared[start + slot] = shared
            taken = view.counters_used
            self.available.append(
                {key: amount - taken.get(key, 0) for key, amount in counters.items()} if taken else counters
            )

    def arranged(self, order: Sequence[int]) -> Ground:
        """The same with the devices in another order: for each position, that in this one."""
        found = copy(self)
        found.used = arranged(self.used, order)
        found.shared = {at: self.shared[before] for at, before in enumerate(order) if before in self.shared}
        return found
