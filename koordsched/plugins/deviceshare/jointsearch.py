"""Other places where devices of several types are on the same PCIe switches, if the first choice fails.

Upstream takes the primary devices as if there were no others, and refuses the node if these are not near them
(deviceshare spec 3.4, 6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

from koordsched.plugins.deviceshare.supply import Supply, TypeSupply, only
from koordsched.plugins.shared.devices.inventory import Scope
from koordsched.plugins.shared.devices.request import DeviceRequest, TopologyScope, TypeRequest
from koordsched.plugins.shared.devices.resources import GPU

Fits = Callable[[str, int], bool]
"""Whether a device, by type and minor, has what is asked of each."""

_OnSwitches = Mapping[str, Sequence[int]]
"""The devices of a type that fit, by their switch."""


def narrowed(
    request: DeviceRequest, supply: Supply, requests: Mapping[str, TypeRequest], fits: Fits
) -> Iterator[Supply]:
    """The supply with some devices left out: in one of these there are devices together, if there are any at all."""
    kinds = [kind for kind in request.joint if kind in requests]
    fitting = {kind: _by_switch(supply.types[kind], kind, fits) for kind in kinds}
    shared = sorted(set.intersection(*(set(of_kind) for of_kind in fitting.values())))
    if not shared:
        return
    yield only(supply, {kind: _on(shared, fitting[kind]) for kind in kinds})
    for size in range(1, len(shared) + 1):
        if any(requests[kind].number < size for kind in kinds if kind in (kinds[0], GPU)):
            break  # each switch needs one of them
        for switches in combinations(shared, size):
            chosen = {kind: _on(switches, fitting[kind]) for kind in kinds}
            if any(len(chosen[kind]) < requests[kind].number for kind in kinds):
                continue
            if kinds[0] != GPU:
                chosen[kinds[0]] = _covering(chosen[kinds[0]], switches, fitting[kinds[0]], requests[kinds[0]].number)
            if GPU not in kinds:
                yield only(supply, chosen)
                continue
            for pool in _pools(request, supply, chosen[GPU], requests[GPU].number):
                on_pool = {switch: [minor for minor in fitting[GPU][switch] if minor in pool] for switch in switches}
                if len(pool) >= requests[GPU].number and all(on_pool.values()):
                    selected = _covering(pool, switches, on_pool, requests[GPU].number)
                    yield only(supply, {**chosen, GPU: selected})


def _by_switch(supply: TypeSupply, kind: str, fits: Fits) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for minor in sorted(supply.total):
        pcie = supply.places[minor].pcie
        if pcie is not None and fits(kind, minor):
            found.setdefault(pcie, []).append(minor)
    return found


def _on(switches: Sequence[str], fitting: _OnSwitches) -> list[int]:
    return [minor for switch in switches for minor in fitting[switch]]


def _covering(minors: Sequence[int], switches: Sequence[str], fitting: _OnSwitches, number: int) -> list[int]:
    """So many of the devices, one of each switch among them."""
    first = [fitting[switch][0] for switch in switches]
    return first + [minor for minor in minors if minor not in first][: number - len(first)]


def _pools(request: DeviceRequest, supply: Supply, minors: Sequence[int], number: int) -> Iterator[Sequence[int]]:
    """The GPUs that may be taken together: a partition, or those of a scope."""
    gpus, inventory = request.gpus, supply.inventory
    assert gpus is not None, "the pod asks for GPUs"
    if not gpus.shared:
        groups = (inventory.partitions or {}).get(number, ())
        for partition in (each for group in groups for each in group):
            yield [minor for minor in minors if minor in partition.minors]
        if gpus.honours or inventory.honours:
            return
    if gpus.scope > TopologyScope.NODE and inventory.scopes is not None:
        for scope in _of_level(inventory.scopes, gpus.scope):
            yield [minor for minor in minors if minor in scope.minors]
    else:
        yield minors


def _of_level(scope: Scope, level: int) -> Iterator[Scope]:
    if scope.level == level:
        yield scope
    for child in scope.children:
        yield from _of_level(child, level)
