"""Takes devices of one type one after the other, in an order: NICs, FPGAs, and GPUs without topology.

Source: koordinator `pkg/scheduler/plugins/deviceshare/device_allocator.go`; deviceshare spec 3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import NamedTuple

from koordsched.api.selectors import Selector
from koordsched.plugins.deviceshare.devicescore import DeviceScore
from koordsched.plugins.deviceshare.reasons import Refusal, insufficient
from koordsched.plugins.deviceshare.supply import Amounts, TypeSupply, fits, has_any
from koordsched.plugins.shared.devices.inventory import Place
from koordsched.plugins.shared.devices.request import Hint
from koordsched.plugins.shared.devices.resources import ABSENT

Functions = tuple[tuple[str, int], ...]

Chosen = list[tuple[int, Functions]]
"""(minor, virtual functions)."""


class Order(NamedTuple):
    """What devices are preferred by: `score`, if there is one. Before that the minors that are `preferred`; if none
    are, devices on PCIe `switches`, one of each after the other."""

    score: DeviceScore | None = None
    switches: frozenset[str] = frozenset()
    preferred: frozenset[int] = frozenset()


class FunctionChoice(NamedTuple):
    """Which virtual functions may be given. `taken`: the bus ids that pods hold of a device, by its minor;
    `designated`: by minor, the only ones that are allowed."""

    hint: Hint
    taken: Callable[[int], set[str]]
    designated: Mapping[int, frozenset[str]]


def take(
    kind: str,
    request: Amounts,
    supply: TypeSupply,
    desired: int,
    most: int,
    order: Order,
    functions: FunctionChoice,
) -> Chosen | Refusal:
    """From `desired` to `most` devices, as many as there are."""
    chosen: Chosen = []
    for minor in _in_order(kind, request, supply, order):
        free = supply.free[minor]
        if not has_any(free) or not fits(request, free):
            continue
        given: Functions = ()
        if functions.hint.function_selector is not None:
            function = _function(minor, supply, functions)
            if function is None:
                continue
            given = (function,)
        chosen.append((minor, given))
        if len(chosen) == most:
            break
    return chosen if len(chosen) >= desired else insufficient(kind)


def _in_order(kind: str, request: Amounts, supply: TypeSupply, order: Order) -> Iterable[int]:
    if order.score is None:
        keys = {minor: (0, minor) for minor in supply.free}
    else:
        nothing = (ABSENT,) * len(request)
        keys = {
            minor: (-order.score.of(kind, request, supply.total.get(minor, nothing), free), minor)
            for minor, free in supply.free.items()
        }
    ordered = sorted(keys, key=keys.__getitem__)
    if order.preferred:
        return sorted(ordered, key=lambda minor: minor not in order.preferred)
    if not order.switches:
        return ordered
    groups: dict[str, list[int]] = {}
    rest = []
    for minor in ordered:
        pcie = supply.places[minor].pcie
        if pcie is not None and pcie in order.switches:
            groups.setdefault(pcie, []).append(minor)
        else:
            rest.append(minor)
    preferred: list[int] = []
    for turn in range(max(map(len, groups.values()), default=0)):
        preferred += sorted((group[turn] for group in groups.values() if turn < len(group)), key=keys.__getitem__)
    return preferred + rest


def free_functions(place: Place, selector: Selector | None, taken: Set[str]) -> Functions:
    """The virtual functions of a device that match and that no pod holds."""
    return tuple(
        function
        for group in place.functions
        if selector is None or selector.matches(dict(group.labels))
        for function in group.functions
        if function[0] not in taken
    )


def _function(minor: int, supply: TypeSupply, choice: FunctionChoice) -> tuple[str, int] | None:
    """The first virtual function of a device, by its bus id, that is free and matches."""
    free = free_functions(supply.places[minor], choice.hint.function_selector, choice.taken(minor))
    allowed = choice.designated.get(minor)
    return min((function for function in free if allowed is None or function[0] in allowed), default=None)
