"""What a search may skip: choices that are like one that failed, and choices after which the rest cannot be had.

All here is on the safe side: what is called hopeless has no solution, because even fewer conditions cannot be met
(devices counted per request, with the counters that are left, shared out between requests without looking at
constraints); and nothing is skipped where a selector or a constraint could end the search with an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from koordsched.plugins.dynamicresources.structured.claiming import Claiming
from koordsched.plugins.dynamicresources.structured.constraints import Value
from koordsched.plugins.dynamicresources.structured.matching import can_be_shared_out
from koordsched.plugins.dynamicresources.structured.plans import DeviceKind, Planner
from koordsched.plugins.dynamicresources.structured.requests import Alternative, Prepared, Request
from koordsched.plugins.dynamicresources.structured.selectors import Expired

_GROUPS_KEPT = 1000


class Need(NamedTuple):
    """So many devices out of a set are needed; `counted` says how far counters go for such a request."""

    number: int
    devices: int
    counted: tuple[CounterGroup, ...]
    admin: bool


class CounterGroup(NamedTuple):
    """Devices of a pool that take counters of the same set, and the least that any of them takes of each."""

    devices: int
    pool: int
    least: tuple[tuple[tuple[str, str], int], ...]


class Bounds:
    """Of one search. Looks at all devices for all requests; raises SearchExpired."""

    def __init__(self, prepared: Prepared, planner: Planner, claiming: Claiming, expired: Expired) -> None:
        self._prepared = prepared
        self._claiming = claiming
        self._plan = plan = claiming.plan
        for alternative in prepared.alternatives:
            planner.look_at_all(plan, alternative, expired)
        strict = any(self._is_strict(alternative) for alternative in prepared.alternatives)
        self._symmetric = not strict
        self.prunes = not strict and not any(self._may_fail(alternative) for alternative in prepared.alternatives)
        self._alike: dict[object, int] = {}
        self._of: list[int] = []
        keys = [self._key(position, kind) for position, kind in enumerate(plan.kinds)]
        for position, key in enumerate(keys):
            self._alike[key] = self._alike.get(key, 0) | 1 << position
        self._of = [self._alike[key] for key in keys]
        self._groups = tuple(self._alike.values())
        self._counted = [self._counter_groups(plan.suited[each.number]) for each in prepared.alternatives]
        self._counter_groups_of: dict[int, tuple[CounterGroup, ...]] = {}
        self._values: dict[tuple[int, int], dict[Value, int]] = {}
        for claim, demand in enumerate(prepared.claims):
            for at in range(len(demand.constraints)):
                by_value = self._values[claim, at] = {}
                for position, kind in enumerate(plan.kinds):
                    value = kind.values[claim][at]
                    if value is not None:
                        by_value[value] = by_value.get(value, 0) | 1 << position

    def _may_fail(self, alternative: Alternative) -> bool:
        """Whether a selector of a request may end the search with an error."""
        reachable = self._plan.every if alternative.admin else ~self._claiming.ground.used
        return self._plan.failed[alternative.number] & reachable != 0

    def _is_strict(self, alternative: Alternative) -> bool:
        """Whether a constraint may end the search with an error. Whether it does depends on the order of devices: one
        that is in use before the one that is not allowed prevents it.
        """
        if self._prepared.lenient:
            return False
        constraints = self._prepared.claims[alternative.claim].constraints
        return alternative.everything and any(alternative.number in each.alternatives for each in constraints)

    def _key(self, position: int, kind: DeviceKind) -> object:
        plan, model = self._plan, kind.equipment.model
        return (
            tuple(kind.suits),
            tuple(sorted(kind.failures.items())),
            kind.values,
            self._claiming.ground.used >> position & 1,
            (plan.pool_of(position), model.counters) if model.counters else None,
            (model.number, position if position in self._claiming.ground.shared else -1) if model.multi else None,
        )

    def _counter_groups(self, suited: int) -> tuple[CounterGroup, ...]:
        devices: dict[tuple[int, str], int] = {}
        least: dict[tuple[int, str], dict[tuple[str, str], int]] = {}
        remaining = suited & self._plan.counted & ~self._plan.multi
        while remaining:
            low = remaining & -remaining
            remaining ^= low
            position = low.bit_length() - 1
            counters = self._plan.kinds[position].equipment.model.counters
            group = (self._plan.pool_of(position), counters[0][0][0])
            takes = {key: amount for key, amount in counters if amount > 0}
            known = least.get(group)
            least[group] = (
                takes if known is None else {key: min(known[key], takes[key]) for key in known.keys() & takes.keys()}
            )
            devices[group] = devices.get(group, 0) | low
        return tuple(CounterGroup(devices[group], group[0], tuple(least[group].items())) for group in devices)

    # --- devices that are alike --------------------------------------------------------------------------

    def like(self, position: int) -> int:
        """The devices that may stand for this one in what is left of the search, itself among them."""
        claiming, bit = self._claiming, 1 << position
        if not self._symmetric or claiming.shares.get(position):
            return bit
        found = self._of[position]
        for devices in (claiming.taken, *claiming.claimed):
            found &= devices if devices & bit else ~devices
        for shared, number in claiming.shares.items():
            if number:
                found &= ~(1 << shared)
        return found

    def state(self, request: int) -> object:
        """What the rest of the search depends on, from the beginning of a request on: equal for choices of devices that
        are alike.
        """
        claiming = self._claiming
        claim = self._prepared.requests[request].claim
        taken, claimed = claiming.taken, claiming.claimed[claim]
        counts = tuple(
            ((group & taken).bit_count(), (group & claimed).bit_count(), (group & taken & claimed).bit_count())
            for group in self._groups
            if group & (taken | claimed)
        )
        where = tuple(at for at, group in enumerate(self._groups) if group & (taken | claimed))
        shared = tuple(
            (position, number, tuple(sorted(claiming.consumed.get(position, {}).items())), claimed >> position & 1)
            for position, number in sorted(claiming.shares.items())
            if number
        )
        return where, counts, shared, claiming.states[claim], claiming.numbers[claim]

    # --- what cannot be had ------------------------------------------------------------------------------

    def hopeless(self, request: int, alternative: Alternative | None, left: int, start: int) -> bool:
        """Whether `left` more devices, from a position on, for an alternative of a request, and all requests after it,
        cannot be had; without an alternative, the request and all after it.
        """
        if not self.prunes:
            return False
        needs = list(self._needs(request, alternative, left, start))
        if any(self._most(need.devices, need.counted) < need.number for need in needs):
            return True
        normal = [need for need in needs if not need.admin]
        if len(normal) < 2:
            return False
        plan = self._plan
        shared = [(max(0, need.number - (need.devices & plan.multi).bit_count()), need.devices) for need in normal]
        exclusive = [(number, devices & ~plan.multi) for number, devices in shared if number]
        together = 0
        for _, devices in exclusive:
            together |= devices
        if sum(number for number, _ in exclusive) > self._most(together, self._groups_of(together)):
            return True
        return not can_be_shared_out(exclusive, self._groups)

    def _groups_of(self, devices: int) -> tuple[CounterGroup, ...]:
        counted = devices & self._plan.counted
        found = self._counter_groups_of.get(counted)
        if found is None:
            if len(self._counter_groups_of) > _GROUPS_KEPT:
                self._counter_groups_of.clear()
            found = self._counter_groups_of[counted] = self._counter_groups(counted)
        return found

    def _needs(self, request: int, alternative: Alternative | None, left: int, start: int) -> Iterator[Need]:
        requests = self._prepared.requests
        if alternative is not None:
            yield self._need((alternative,), left, -1 << start)
            request += 1
        for following in requests[request:]:
            if (need := self._fewest(following)) is not None:
                yield need

    def _fewest(self, request: Request) -> Need | None:
        alternatives = request.alternatives
        if not alternatives or any(each.everything for each in alternatives):
            return None
        return self._need(alternatives, min(each.wanted for each in alternatives), -1)

    def _need(self, alternatives: tuple[Alternative, ...], number: int, within: int) -> Need:
        devices = 0
        counted: tuple[CounterGroup, ...] = ()
        for alternative in alternatives:
            found = self._plan.suited[alternative.number] & self._claiming.free(alternative) & within
            devices |= self._allowed(alternative, number if len(alternatives) == 1 else 1, found)
            counted = self._counted[alternative.number]
        admin = any(each.admin for each in alternatives)
        if admin or len(alternatives) > 1:
            counted = ()  # what is taken for admin access leaves all counters as they are
        return Need(number, devices, counted, admin)

    def _allowed(self, alternative: Alternative, number: int, devices: int) -> int:
        """Those of the devices that the constraints may allow; 0 if not so many can go together."""
        claim = alternative.claim
        for at, constraint in enumerate(self._prepared.claims[claim].constraints):
            if alternative.number not in constraint.alternatives:
                continue
            by_value = self._values[claim, at]
            state = self._claiming.states[claim][at]
            if constraint.distinct:
                used = state if isinstance(state, frozenset) else frozenset()
                open_ = [mask for value, mask in by_value.items() if value not in used and mask & devices]
                if all(len(value[1]) == 1 for value in by_value) and len(open_) < number:
                    return 0
                devices &= _union(open_)
            elif isinstance(state, tuple):
                devices &= _union(
                    [mask for value, mask in by_value.items() if value[0] == state[0] and value[1] & state[1]]
                )
            else:
                if all(len(value[1]) == 1 for value in by_value):
                    open_ = [mask for mask in by_value.values() if (mask & devices).bit_count() >= number]
                else:
                    open_ = list(by_value.values())
                devices &= _union(open_)
        return devices

    def _most(self, devices: int, counted: tuple[CounterGroup, ...]) -> int:
        """The most of the devices that could be had."""
        number = devices.bit_count()
        for group in counted:
            here = (devices & group.devices).bit_count()
            if here:
                number -= here - min(here, self._room(group))
        return number

    def _room(self, group: CounterGroup) -> int:
        available = self._claiming.ground.available[group.pool]
        taken = self._claiming.counters.get(group.pool, {})
        if any(amount < taken.get(key, 0) for key, amount in available.items()):
            return 0
        rooms = [(available.get(key, 0) - taken.get(key, 0)) // least for key, least in group.least]
        return min(rooms, default=group.devices.bit_count())


def _union(masks: list[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found
