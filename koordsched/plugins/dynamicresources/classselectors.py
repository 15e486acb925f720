"""Which devices a class selects, for scoring: there a device that cannot be told is no error."""

from __future__ import annotations

from koordsched.api import resource
from koordsched.plugins.dynamicresources import cel
from koordsched.plugins.dynamicresources.structured import Features


class ClassSelectors:
    """Evaluates the selectors of classes."""

    def __init__(self, features: Features) -> None:
        self._features = cel.Features(features.consumable_capacity, features.list_attributes)

    def select(self, device_class: resource.DeviceClass, driver: str, device: resource.Device) -> bool | None:
        """Whether all selectors of the class select the device; None if that cannot be evaluated."""
        seen = cel.Device.of(
            driver, device.attributes, device.capacity, device.allow_multiple_allocations, self._features
        )
        try:
            return all(
                cel.compile(selector.cel.expression, self._features).evaluate(seen)
                for selector in device_class.spec.selectors
                if selector.cel is not None
            )
        except (cel.CompileError, cel.EvaluationError):
            return None
