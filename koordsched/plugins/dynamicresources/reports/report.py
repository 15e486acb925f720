"""Pools of devices in a line each, and the devices that a node can reach, with who has them, as values."""

from __future__ import annotations

from collections.abc import Generator, Iterable

import msgspec

from koordsched.api.resource import AllocationResult, Device, DeviceAttribute
from koordsched.framework.declaration import NotFound, finished
from koordsched.plugins.dynamicresources.claims import title_of
from koordsched.plugins.dynamicresources.claimstates import holders_of, pods_of
from koordsched.plugins.dynamicresources.plugin import DynamicResources
from koordsched.plugins.dynamicresources.structured.inspection import PoolState, Use
from koordsched.plugins.dynamicresources.structured.slices import PoolKey
from koordsched.plugins.dynamicresources.structured.taints import keeping_off

_POOLS_AT_ONCE = 20
_CLAIMS_AT_ONCE = 200


class PoolReport(msgspec.Struct, rename="camel"):
    """A pool. `nodes` of them reach it, `node` if that is one; `slices` of the `expected` ones are published; `state`:
    `usable`, `incomplete` or `invalid`, for which `problem` says why. Of its `devices` are `free`, `allocated`,
    `shared` (in use in part), `blocked` (others took too much of the counters), and `tainted`; `gone`: in use, and not
    published any more.
    """

    driver: str
    pool: str
    node: str
    nodes: int
    generation: int
    slices: int
    expected: int
    state: str
    problem: str
    devices: int
    free: int
    allocated: int
    shared: int
    blocked: int
    tainted: int
    gone: int


class Pools(msgspec.Struct, rename="camel"):
    """All pools, by driver and name."""

    pools: list[PoolReport]


class ClaimReport(msgspec.Struct, rename="camel"):
    """A claim (`namespace/name`) that has a device for a request. `pods`: for which it is reserved; `in_flight`: the
    API server does not have the allocation yet; `consumed`: what is used of a shared device.
    """

    claim: str
    request: str
    pods: list[str]
    in_flight: bool
    admin_access: bool
    consumed: dict[str, str]


class DeviceReport(msgspec.Struct, rename="camel"):
    """A device. `state`: `free`, `allocated`, `shared`, `blocked` or `gone`, as counted in a PoolReport."""

    driver: str
    pool: str
    device: str
    state: str
    taints: list[str]
    attributes: dict[str, str]
    capacity: dict[str, str]
    claims: list[ClaimReport]


class NodePools(msgspec.Struct, rename="camel"):
    """What a node can reach."""

    node_name: str
    pools: list[PoolReport]
    pool_devices: list[DeviceReport]


def overview(plugin: DynamicResources) -> Pools:
    """All pools."""
    return finished(overviewing(plugin))


def overviewing(plugin: DynamicResources) -> Generator[None, None, Pools]:
    """The same, step by step."""
    index = plugin.books.index
    found = []
    for number, key in enumerate(index.pool_keys(), start=1):
        state = index.pool_state(key)
        if state is not None:
            found.append(_pool_report(state, *index.reaching(key)))
        if number % _POOLS_AT_ONCE == 0:
            yield
    return Pools(found)


def report_on(plugin: DynamicResources, name: str) -> NodePools:
    """The devices of one node. Raises NotFound for one that is unknown, or reaches no devices."""
    return finished(reporting_on(plugin, name))


def reporting_on(plugin: DynamicResources, name: str) -> Generator[None, None, NodePools]:
    """The same, step by step. Raises NotFound."""
    index = plugin.books.index
    if name not in plugin.cluster.table.row_of:
        raise NotFound(f'node "{name}" not found')
    keys = index.pools_of(name)
    if not keys:
        raise NotFound(f'node "{name}" reaches no devices of ResourceSlices')
    holders = yield from _holders(plugin, frozenset(keys))
    pools: list[PoolReport] = []
    devices: list[DeviceReport] = []
    for number, key in enumerate(keys, start=1):
        state = index.pool_state(key)
        if state is not None:
            pools.append(_pool_report(state, *index.reaching(key)))
            devices += _device_reports(state, holders)
        if number % _POOLS_AT_ONCE == 0:
            yield
    return NodePools(name, pools, devices)


_Holders = dict[tuple[str, str, str], list[ClaimReport]]
"""By driver, pool and device."""


def _holders(plugin: DynamicResources, keys: frozenset[PoolKey]) -> Generator[None, None, _Holders]:
    """The claims that have devices of these pools."""
    books = plugin.books
    found: _Holders = {}
    for number, claim in enumerate(list(books.claims), start=1):
        if claim.status.allocation is not None:
            _add(found, keys, title_of(claim), pods_of(claim), claim.status.allocation)
        if number % _CLAIMS_AT_ONCE == 0:
            yield
    for entry in books.in_flight:
        pods = holders_of(entry, plugin.cluster)
        _add(found, keys, title_of(entry.claim), pods, entry.allocation, in_flight=True)
    return found


def _add(
    found: _Holders,
    keys: frozenset[PoolKey],
    claim: str,
    pods: list[str],
    allocation: AllocationResult,
    *,
    in_flight: bool = False,
) -> None:
    for result in allocation.devices.results:
        if (result.driver, result.pool) in keys:
            consumed = {name: str(amount) for name, amount in result.consumed_capacity.items()}
            report = ClaimReport(claim, result.request, pods, in_flight, bool(result.admin_access), consumed)
            found.setdefault((result.driver, result.pool, result.device), []).append(report)


def _pool_report(state: PoolState, nodes: int, node: str) -> PoolReport:
    driver, pool = state.key
    tainted = sum(device.found is not None and bool(_taints(device.found.wire)) for device in state.devices)
    return PoolReport(
        driver,
        pool,
        node,
        nodes,
        state.generation,
        state.slices,
        state.expected,
        state.condition,
        state.problem,
        sum(device.found is not None for device in state.devices),
        state.count(Use.FREE),
        state.count(Use.ALLOCATED),
        state.count(Use.SHARED),
        state.count(Use.BLOCKED),
        tainted,
        state.count(Use.GONE),
    )


def _device_reports(state: PoolState, holders: _Holders) -> Iterable[DeviceReport]:
    driver, pool = state.key
    for device in state.devices:
        wire = device.found.wire if device.found is not None else Device()
        yield DeviceReport(
            driver,
            pool,
            device.name,
            str(device.use),
            _taints(wire),
            {name: _value(attribute) for name, attribute in sorted(wire.attributes.items())},
            {name: str(capacity.value) for name, capacity in sorted(wire.capacity.items())},
            sorted(holders.get((driver, pool, device.name), []), key=lambda report: (report.claim, report.request)),
        )


def _taints(device: Device) -> list[str]:
    """Those that keep requests off."""
    taints = keeping_off(device.taints)
    return [f"{each.key}={each.value}:{each.effect}" if each.value else f"{each.key}:{each.effect}" for each in taints]


def _value(attribute: DeviceAttribute) -> str:
    for value in (attribute.int_value, attribute.string_value, attribute.version_value):
        if value is not None:
            return str(value)
    if attribute.bool_value is not None:
        return str(attribute.bool_value).lower()
    several = (*attribute.ints, *map(str.lower, map(str, attribute.bools)), *attribute.strings, *attribute.versions)
    return ", ".join(map(str, several))
