"""Devices as the search sees them, interned: devices that are equal but for their names are one `Equipment`.

Drivers give each device attributes of its own (a uuid), so two levels are interned: what a device is without its
attributes (`Model`), and with them. A demand that does not read the attributes that differ takes both for equal.
"""

from __future__ import annotations

from itertools import count
from typing import Any
from weakref import WeakValueDictionary

from koordsched.api.quantity import nano_value, parse
from koordsched.api.resource import Device, DeviceAttribute
from koordsched.plugins.dynamicresources.structured.features import Features
from koordsched.plugins.dynamicresources.structured.taints import keeping_off


class Model:
    """All of a device that an allocation may depend on, but for its names and attributes.

    `counters`: what it takes of the pool, ((set, counter), billionths); `number` is never reused.
    """

    __slots__ = (
        "__weakref__",
        "capacity",
        "conditional",
        "counters",
        "driver",
        "mappings",
        "multi",
        "number",
        "taints",
    )

    def __init__(self, number: int, driver: str, device: Device, features: Features) -> None:
        self.number = number
        self.driver = driver
        self.multi = bool(device.allow_multiple_allocations) and features.consumable_capacity
        self.capacity = device.capacity
        self.taints = keeping_off(device.taints) if features.device_taints else ()
        self.conditional = bool(device.binding_conditions)
        self.mappings = device.node_allocatable_resource_mappings if features.node_allocatable else {}
        for mapping in self.mappings.values():
            parse(mapping.allocation_multiplier or 1)  # garbage is found here, with the slice, not in a cycle
        taken: dict[tuple[str, str], int] = {}
        for each in device.consumes_counters:
            for name, counter in each.counters.items():
                key = (each.counter_set, name)
                taken[key] = taken.get(key, 0) + nano_value(counter.value)
        self.counters = tuple(sorted(taken.items()))


class Equipment:
    """A model with attributes.

    `example` is one of the devices that are so; `converted`: the number of its attributes that a selector of any kind
    fails on if they are bad (versions and lists), 0 without any.
    """

    __slots__ = ("__weakref__", "attributes", "converted", "example", "model", "number")

    def __init__(self, number: int, model: Model, device: Device, converted: int) -> None:
        self.number = number
        self.model = model
        self.example = device
        self.attributes = device.attributes
        self.converted = converted

    def attribute(self, domain: str, name: str) -> DeviceAttribute | None:
        """An attribute by its domain and id; a bare name belongs to the driver's domain."""
        found = self.attributes.get(f"{domain}/{name}")
        return self.attributes.get(name) if found is None and domain == self.model.driver else found


class DeviceTypes:
    """The models and equipment that there are."""

    __slots__ = ("_conversions", "_equipment", "_features", "_models", "_numbers")

    def __init__(self, features: Features) -> None:
        self._features = features
        self._numbers = count(1)
        self._models: WeakValueDictionary[Any, Model] = WeakValueDictionary()
        self._equipment: WeakValueDictionary[Any, Equipment] = WeakValueDictionary()
        self._conversions: dict[Any, int] = {}

    def of(self, driver: str, device: Device) -> Equipment:
        """What the device is."""
        model = self._model(driver, device)
        attributes = tuple(sorted(device.attributes.items())) if device.attributes else ()
        key = (model.number, attributes)
        found = self._equipment.get(key)
        if found is None:
            checked = tuple(each for each in attributes if is_converted(each[1]))
            number = self._conversions.setdefault(checked, next(self._numbers)) if checked else 0
            found = self._equipment[key] = Equipment(next(self._numbers), model, device, number)
            if len(self._conversions) > _CONVERSIONS_KEPT:
                self._conversions.clear()
        return found

    def _model(self, driver: str, device: Device) -> Model:
        key = (
            driver,
            device.allow_multiple_allocations,
            tuple(sorted(device.capacity.items())) if device.capacity else (),
            tuple((each.counter_set, tuple(sorted(each.counters.items()))) for each in device.consumes_counters),
            tuple((taint.key, taint.value, taint.effect) for taint in device.taints),
            bool(device.binding_conditions),
            tuple(sorted(device.node_allocatable_resource_mappings.items()))
            if self._features.node_allocatable and device.node_allocatable_resource_mappings
            else (),
        )
        found = self._models.get(key)
        if found is None:
            found = self._models[key] = Model(next(self._numbers), driver, device, self._features)
        return found


_CONVERSIONS_KEPT = 1 << 16


def is_converted(attribute: DeviceAttribute) -> bool:
    """Whether the conversion of the value for selectors may fail: it is a version, a list, or nothing at all."""
    return attribute.int_value is None and attribute.bool_value is None and attribute.string_value is None
