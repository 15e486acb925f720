"""From the layout of a driver to the devices of a pool and its ResourceSlices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import NAMESPACE_DNS, uuid5

import msgspec

from koordsched.fakecluster.deviceapi.slicerules import (
    MOST_COMPLEX_DEVICES,
    MOST_COUNTER_SETS,
    MOST_DEVICES,
    is_complex,
    slice_errors,
)
from koordsched.fakecluster.hollow.driverlayout import DeviceKind, DriverLayout, Partition, PoolLayout

Object = dict[str, Any]
PoolId = tuple[str, str]
"""Driver and name."""


class Pool(NamedTuple):
    """The devices that a driver publishes as one pool."""

    id: PoolId
    reach: Object
    """The fields of a ResourceSlice that say which nodes reach the devices."""
    devices: dict[str, Object]
    """By name, as the API has them."""
    counters: dict[str, Object]
    """Counter sets by name, likewise."""
    ready: str
    """How long binding conditions take; empty: for ever."""
    devices_per_slice: int


def node_pools(drivers: tuple[DriverLayout, ...], node: str) -> list[Pool]:
    """The pools of a node. Raises ValueError for pools or devices that come twice, and for what the API refuses."""
    pools = [_pool(each, (each.name, each.pool or node), {"nodeName": node}) for each in drivers]
    if len({pool.id for pool in pools}) < len(pools):
        raise ValueError("two drivers have the same name and pool")
    return pools


def attached_pool(layout: PoolLayout) -> Pool:
    """A pool that is attached to no node. Raises ValueError likewise."""
    reach: Object = {"allNodes": True}
    if layout.node_selector:
        expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in layout.node_selector.items()]
        reach = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    return _pool(layout, (layout.driver, layout.name), reach)


def _pool(layout: DriverLayout | PoolLayout, pool: PoolId, reach: Object) -> Pool:
    devices: dict[str, Object] = {}
    counters: dict[str, Object] = {}
    for kind in layout.devices:
        for device in _devices(kind, pool):
            if device["name"] in devices:
                raise ValueError(f"two devices have the name {device['name']}")
            devices[device["name"]] = device
        if kind.partitions:
            counters |= {name: _amounts("name", name, kind.counters) for name in _counter_sets(kind)}
    made = Pool(pool, reach, devices, counters, layout.ready, layout.devices_per_slice)
    for spec in slice_specs(made, 1):
        if wrong := slice_errors(spec, "slice"):
            raise ValueError(str(wrong[0]))
    return made


def slice_specs(pool: Pool, generation: int) -> list[Object]:
    """The specs of the pool's ResourceSlices, each with objects of its own: first those with counters."""
    devices, sets = list(pool.devices.values()), list(pool.counters.values())
    most = pool.devices_per_slice or (MOST_COMPLEX_DEVICES if any(map(is_complex, devices)) else MOST_DEVICES)
    parts = [{"sharedCounters": part} for part in _parts(sets, MOST_COUNTER_SETS)]
    parts += [{"devices": part} for part in _parts(devices, most)]
    driver, name = pool.id
    published = {"name": name, "generation": generation, "resourceSliceCount": len(parts)}
    specs = [{"driver": driver, "pool": published, **pool.reach, **part} for part in parts]
    return [msgspec.json.decode(msgspec.json.encode(spec)) for spec in specs]


def slice_name(pool: Pool, number: int) -> str:
    """The name of the pool's ResourceSlice with this number, from 0."""
    driver, name = pool.id
    return f"{name.replace('/', '.')}-{driver.lower()}-{number}"


def slice_objects(pool: Pool) -> list[Object]:
    """The ResourceSlices that a driver publishes first."""
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": slice_name(pool, number)},
            "spec": spec,
        }
        for number, spec in enumerate(slice_specs(pool, 1))
    ]


def _parts(items: list[Object], size: int) -> list[list[Object]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _counter_sets(kind: DeviceKind) -> list[str]:
    return [f"{kind.name}-{index}" for index in range(kind.count)]


def _amounts(key: str, name: str, amounts: dict[str, Any]) -> Object:
    """Amounts of counters of a set, which is named in the field `key`."""
    return {key: name, "counters": {counter: {"value": str(amount)} for counter, amount in amounts.items()}}


def _devices(kind: DeviceKind, pool: PoolId) -> Iterator[Object]:
    for index in range(kind.count):
        name = f"{kind.name}-{index}"
        spread = {key: values[index * len(values) // kind.count] for key, values in kind.spread.items()}
        attributes = {"index": index, **kind.attributes, **spread}
        whole = {"consumesCounters": [_amounts("counterSet", name, kind.counters)]} if kind.partitions else {}
        yield _device(kind, pool, name, attributes, kind.capacity, whole)
        for partition in kind.partitions:
            yield from _partitions(kind, partition, pool, name, attributes)


def _partitions(
    kind: DeviceKind, partition: Partition, pool: PoolId, whole: str, attributes: dict[str, Any]
) -> Iterator[Object]:
    for index in range(partition.count):
        own = {**attributes, "parent": whole, **partition.attributes}
        taken = {"consumesCounters": [_amounts("counterSet", whole, partition.counters)]}
        yield _device(kind, pool, f"{whole}-{partition.name}-{index}", own, partition.capacity, taken)


def _device(
    kind: DeviceKind,
    pool: PoolId,
    name: str,
    attributes: dict[str, Any],
    capacity: dict[str, Any],
    more: Object,
) -> Object:
    identity = {"uuid": f"GPU-{uuid5(NAMESPACE_DNS, '/'.join((*pool, name)))}"}
    device: Object = {
        "name": name,
        "attributes": {key: _attribute(value) for key, value in {**identity, **attributes}.items()},
        **more,
    }
    if capacity:
        device["capacity"] = {key: _capacity(value) for key, value in capacity.items()}
    if kind.shared:
        device["allowMultipleAllocations"] = True
    if kind.taints:
        device["taints"] = kind.taints
    if kind.binds_to_node:
        device["bindsToNode"] = True
    if kind.binding_conditions:
        device["bindingConditions"] = kind.binding_conditions
        device["bindingFailureConditions"] = kind.binding_failure_conditions
    return device


def _attribute(value: Any) -> Object:
    if isinstance(value, dict):
        return value
    # bool first: it is an int as well.
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
    return {kind: value}


def _capacity(value: Any) -> Object:
    return value if isinstance(value, dict) else {"value": str(value)}
