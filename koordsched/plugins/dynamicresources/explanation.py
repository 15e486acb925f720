"""Explains with numbers why the devices of a node suffice for a pod's claims, or do not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from koordsched.api.resource import ResourceClaim
from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.plugins.dynamicresources.books import DeviceBooks
from koordsched.plugins.dynamicresources.claims import title_of
from koordsched.plugins.dynamicresources.claimstates import devices_of, nodes_text, pods_of
from koordsched.plugins.dynamicresources.conditions import failure_of
from koordsched.plugins.dynamicresources.cyclestate import DeviceCycle
from koordsched.plugins.dynamicresources.filtering import TIMED_OUT, DeviceFilter
from koordsched.plugins.dynamicresources.structured import SearchExpired
from koordsched.plugins.dynamicresources.structured.reasons import IN_USE, RequestReasons

_SHOWN = 8
"""Devices, pods or pools that are named one by one."""

_COMPARED = 100
"""States of nodes that are compared to find the nearest."""

_TOGETHER = "each request has enough devices by itself, but they do not go together"


class Explainer:
    """Explains one profile's verdicts. All methods are about a pod of which a cycle has the state."""

    def __init__(self, books: DeviceBooks, filter_: DeviceFilter, table: NodeTable) -> None:
        self._books = books
        self._filter = filter_
        self._table = table

    def notes(self, state: DeviceCycle) -> list[str]:
        """The claims that have their devices already."""
        return [_allocated(claim, _users(state, claim)) for _, claim, _ in state.allocated]

    def lines(self, state: DeviceCycle, pod: Pod, rows: RowArray) -> list[list[str]]:
        """For each row what speaks against claims that are allocated, how many devices requests could have and what
        keeps them from others, and the pools that cannot be used."""
        if state.leftover and state.special is not None:
            return [[f"claim {title_of(state.special)} of an earlier attempt is in the way"]] * len(rows)
        answers = self._answers(state, pod, rows)
        return [
            [*self._unavailable(state, row), *answer, *self._taken(state, pod, row), *self._pools(row)]
            for row, answer in zip(rows.tolist(), answers, strict=True)
        ]

    def remedy(self, state: DeviceCycle, pod: Pod, row: int) -> str:
        """What would have to change on a row that is refused."""
        if state.leftover and state.special is not None:
            return f"claim {title_of(state.special)} deleted, which the scheduler does"
        reasons = self._reasons(state, pod, row)
        if isinstance(reasons, str):
            return f"less to search: {reasons}"
        changes = [_remedy(each) for each in reasons if not each.enough]
        changes += [
            f"claim {title_of(claim)} freed, or the node among those where it can be used"
            for claim in self._elsewhere(state, row)
        ]
        changes += [f"pool {text}" for text in self._books.allocator.troubled_pools(row)]
        if not changes and (shared := self._filter.used_by_others(state, pod, row)) is not None:
            return f"claim {title_of(shared)} given up by its other pods, since it takes something of the node"
        if not changes and (taken := self._filter.taken_on(state, pod, row)):
            return f"room for the pod and what its devices take of the node: {taken}"
        return " and ".join(changes) or "devices that go together"

    def nearest(self, state: DeviceCycle, pod: Pod, rows: RowArray) -> int:
        """The position of the row where time helps, with fewest devices missing; else that of fewest missing."""
        keys = self._books.allocator.keys(rows)
        _, examples = np.unique(keys, axis=0, return_index=True)
        return min(
            sorted(examples.tolist())[:_COMPARED],
            key=lambda at: self._distance(state, pod, int(rows[at])),
            default=0,
        )

    def _distance(self, state: DeviceCycle, pod: Pod, row: int) -> tuple[bool, int]:
        reasons = self._reasons(state, pod, row)
        short = () if isinstance(reasons, str) else [each for each in reasons if not each.enough]
        missing = sum(max(each.needed, 1) - each.free for each in short)
        return not self.waits_for(state, pod, row), missing

    def waits_for(self, state: DeviceCycle, pod: Pod, row: int) -> str:
        """What time may bring on a row that is refused, "" if nothing."""
        name = self._table.names[row]
        if state.leftover:
            return "its claim of an earlier attempt to be deleted"
        idle = [
            claim
            for claim in self._elsewhere(state, row)
            if not claim.status.reserved_for and claim not in state.shared
        ]
        if idle:
            return f"claim {title_of(idle[0])} to be freed, which no pod uses and the scheduler frees"
        if self._elsewhere(state, row):
            return ""
        reasons = self._reasons(state, pod, row)
        if isinstance(reasons, str):
            return ""
        short = [each for each in reasons if not each.enough]
        if short and all(_in_use(each) + each.free >= max(each.needed, 1) and _in_use(each) for each in short):
            return f"devices: {name} has enough of them, which other claims have"
        if self._books.allocator.troubled_pools(row):
            return f"the driver to complete a pool of {name}"
        return ""

    # --- claims that are allocated ------------------------------------------------------------------

    def _elsewhere(self, state: DeviceCycle, row: int) -> list[ResourceClaim]:
        """The claims that keep the pod from a row, with the devices that they have."""
        rows = np.array([row], dtype=np.intp)
        return [
            claim
            for _, claim, nodes in state.allocated
            if not self._filter.is_usable_now(claim) or (nodes is not None and not nodes.mask(self._table, rows)[0])
        ]

    def _unavailable(self, state: DeviceCycle, row: int) -> list[str]:
        lines = []
        for claim in self._elsewhere(state, row):
            if self._filter.is_usable_now(claim):
                allocation = claim.status.allocation
                where = nodes_text(allocation.node_selector if allocation is not None else None)
                lines.append(f"claim {title_of(claim)} can be used on {where} only{_users(state, claim)}")
                continue
            failure = failure_of(claim)
            why = f"{failure.type}: {failure.reason} {failure.message}".rstrip() if failure is not None else "too late"
            lines.append(f"claim {title_of(claim)}: its devices will not be ready ({why})")
        return lines

    # --- claims to be allocated ---------------------------------------------------------------------

    def _answers(self, state: DeviceCycle, pod: Pod, rows: RowArray) -> list[list[str]]:
        """By row; rows in the same state are looked at once."""
        keys = self._books.allocator.keys(rows)
        known: dict[tuple[object, ...], list[str]] = {}
        found = []
        for row, key in zip(rows.tolist(), map(tuple, keys.tolist()), strict=True):
            # What a node has of extended resources says what the special claim asks for.
            special = self._filter.special_on(state, pod, row)
            if (key, special) not in known:
                known[key, special] = self._answer(state, pod, row)
            found.append(known[key, special])
        return found

    def _answer(self, state: DeviceCycle, pod: Pod, row: int) -> list[str]:
        reasons = self._reasons(state, pod, row)
        if isinstance(reasons, str):
            return [reasons]
        lines = [each.text for each in reasons]
        if reasons and all(each.enough for each in reasons) and not self._fits(state, pod, row):
            lines.append(_TOGETHER)
        return lines

    def _reasons(self, state: DeviceCycle, pod: Pod, row: int) -> Sequence[RequestReasons] | str:
        """Of all requests, or why they cannot be told."""
        _, demand = self._filter.demand_on(state, pod, row)
        if demand is None:
            return ()
        try:
            return self._books.allocator.explain(demand, row, self._filter.deadline())
        except SearchExpired:
            return TIMED_OUT

    def _fits(self, state: DeviceCycle, pod: Pod, row: int) -> bool:
        _, demand = self._filter.demand_on(state, pod, row)
        if demand is None:
            return True
        found = self._books.allocator.verdicts(demand, np.array([row], dtype=np.intp), self._filter.deadline())
        return not found.outcomes.any()

    def _taken(self, state: DeviceCycle, pod: Pod, row: int) -> list[str]:
        taken = self._filter.taken_on(state, pod, row)
        return [f"its devices take of the node {taken}"] if taken else []

    def _pools(self, row: int) -> list[str]:
        return [f"pool {text}" for text in self._books.allocator.troubled_pools(row)[:_SHOWN]]


def _allocated(claim: ResourceClaim, users: str) -> str:
    allocation = claim.status.allocation
    assert allocation is not None, "that is why it is listed"
    devices = devices_of(allocation)
    named = ", ".join(devices[:_SHOWN]) + (f" and {len(devices) - _SHOWN} more" if len(devices) > _SHOWN else "")
    where = nodes_text(allocation.node_selector)
    return f"claim {title_of(claim)} has {named or 'no device'}, usable on {where}{users}"


def _users(state: DeviceCycle, claim: ResourceClaim) -> str:
    if claim in state.shared:
        return ", chosen for another member"
    pods = pods_of(claim)
    if not pods:
        return ", reserved for no pod"
    rest = f" and {len(pods) - _SHOWN} more" if len(pods) > _SHOWN else ""
    return f", reserved for {', '.join(pods[:_SHOWN])}{rest}"


def _in_use(reasons: RequestReasons) -> int:
    return reasons.reasons.get(IN_USE, 0)


def _remedy(reasons: RequestReasons) -> str:
    request = f"for claim {reasons.claim}, request {reasons.request}"
    needed = max(reasons.needed, 1)
    if _in_use(reasons) + reasons.free >= needed:
        missing = needed - reasons.free
        return f"{missing} more device{'s' if missing > 1 else ''} free {request}"
    rest = sorted((reason, number) for reason, number in reasons.reasons.items() if reason != IN_USE)
    against = "".join(f", {number} {reason}" for reason, number in rest)
    return f"a node with {needed} device{'s' if needed > 1 else ''} {request} (this one has {reasons.free}{against})"
