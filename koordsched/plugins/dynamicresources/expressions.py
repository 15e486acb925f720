"""The expressions of selectors about devices: compiled, and evaluated, once per kind of device."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from koordsched.api import resource
from koordsched.plugins.dynamicresources.cel import CompileError, Device, EvaluationError, compile
from koordsched.plugins.dynamicresources.cel import Features as CELFeatures
from koordsched.plugins.dynamicresources.structured import Features
from koordsched.plugins.dynamicresources.structured.devices import Equipment
from koordsched.plugins.dynamicresources.structured.selectors import Expired, SelectorFailure


class CELExpressions:
    """The `structured.selectors.Expressions` of the allocator, and the selectors of classes for scoring."""

    def __init__(self, features: Features) -> None:
        self._features = CELFeatures(
            consumable_capacity=features.consumable_capacity, list_type_attributes=features.list_attributes
        )
        self._devices: WeakKeyDictionary[Equipment, Device] = WeakKeyDictionary()

    def selects(self, text: str, equipment: Equipment, expired: Expired) -> bool:
        """Whether the expression selects devices with this equipment. Raises SelectorFailure."""
        device = self._devices.get(equipment)
        if device is None:
            model = equipment.model
            device = self._devices[equipment] = Device.of(
                model.driver, equipment.attributes, model.capacity, model.multi, self._features
            )
        return self._evaluate(text, device, expired)

    def chosen_by(self, device_class: resource.DeviceClass, driver: str, wire: resource.Device) -> bool | None:
        """Whether all selectors of the class select the device; None if that cannot be said."""
        device = Device.of(driver, wire.attributes, wire.capacity, wire.allow_multiple_allocations, self._features)
        try:
            return all(
                self._evaluate(selector.cel.expression if selector.cel is not None else "", device, None)
                for selector in device_class.spec.selectors
            )
        except SelectorFailure:
            return None

    def _evaluate(self, text: str, device: Device, expired: Expired | None) -> bool:
        try:
            return compile(text, self._features).evaluate(device, expired)
        except CompileError as error:
            raise SelectorFailure(f"CEL compile error: {error}") from error
        except EvaluationError as error:
            raise SelectorFailure(f"CEL runtime error: {error}") from error
