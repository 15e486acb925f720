"""What expressions that select devices may use (dra spec 3.6): Kubernetes' environment for stored expressions."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from koordsched.plugins.dynamicresources.cel import (
    conversions,
    formats,
    lists,
    networks,
    operators,
    optionals,
    quantities,
    regexes,
    strings,
    times,
    types,
    urls,
    versions,
)
from koordsched.plugins.dynamicresources.cel.declarations import Environment, functions, method
from koordsched.plugins.dynamicresources.cel.errors import Failure
from koordsched.plugins.dynamicresources.cel.types import Type, map_of
from koordsched.plugins.dynamicresources.cel.values import TYPE_NAMES, Value, equal

MOST_VALUES = 48
"""Values of all attributes of a device (resource.k8s.io: ResourceSliceMaxAttributeValuesPerDevice)."""

DEVICE = "device"


class Features(NamedTuple):
    """The feature gates DRAConsumableCapacity and DRAListTypeAttributes."""

    consumable_capacity: bool = True
    list_type_attributes: bool = False


def _includes(target: Value, wanted: Value) -> bool:
    if type(target) is not tuple:
        return _equal(target, wanted)
    for each in target[:MOST_VALUES]:
        if _equal(each, wanted):
            return True
    if len(target) > MOST_VALUES:
        raise Failure(f"'includes' function cannot be applied to lists longer than {MOST_VALUES} values")
    return False


def _equal(one: Value, other: Value) -> bool:
    try:
        return equal(one, other)
    except Failure:
        return False


_INCLUDES = method("includes", "dra_includes_dyn_dyn", "dyn, dyn", "bool", _includes)


@lru_cache
def environment(features: Features) -> Environment:
    """The environment of these features."""
    overloads = [
        *operators.OVERLOADS,
        *conversions.OVERLOADS,
        *strings.OVERLOADS,
        *regexes.OVERLOADS,
        *times.OVERLOADS,
        *lists.OVERLOADS,
        *optionals.OVERLOADS,
        *quantities.OVERLOADS,
        *versions.OVERLOADS,
        *networks.OVERLOADS,
        *urls.OVERLOADS,
        *formats.OVERLOADS,
    ]
    if features.list_type_attributes:
        overloads.append(_INCLUDES)
    attribute = attribute_type(features)
    fields = {
        "driver": types.STRING,
        "attributes": map_of(types.STRING, map_of(types.STRING, attribute)),
        "capacity": map_of(types.STRING, map_of(types.STRING, types.QUANTITY)),
    }
    if features.consumable_capacity:
        fields["allowMultipleAllocations"] = types.BOOL
    return Environment(
        functions(overloads, operators.SINGLETONS),
        {DEVICE: types.DEVICE},
        dict(TYPE_NAMES),
        {types.DEVICE.name: fields},
    )


def attribute_type(features: Features) -> Type:
    """The type of an attribute's value; only dyn can be iterated."""
    return types.DYN if features.list_type_attributes else types.ANY
