"""CEL for the allocator: programs and devices are kept for a while, and errors get upstream's words."""

from __future__ import annotations

from koordsched.plugins.dynamicresources import cel
from koordsched.plugins.dynamicresources.structured.devices import Equipment
from koordsched.plugins.dynamicresources.structured.features import Features
from koordsched.plugins.dynamicresources.structured.selectors import Expired, SelectorFailure

_PROGRAMS_KEPT = 256
_DEVICES_KEPT = 4096


class CelExpressions:
    """See `Expressions`. Errors of compilation are kept as well: a bad expression costs one compilation."""

    def __init__(self, features: Features) -> None:
        self._features = cel.Features(features.consumable_capacity, features.list_attributes)
        self._programs: dict[str, cel.Program | str] = {}
        self._devices: dict[int, cel.Device] = {}

    def selects(self, text: str, equipment: Equipment, expired: Expired) -> bool:
        """Whether the expression selects such a device. Raises SelectorFailure."""
        program = self._program(text)
        if isinstance(program, str):
            raise SelectorFailure(f"CEL compile error: {program}", anywhere=True)
        try:
            return program.evaluate(self._device(equipment), expired)
        except cel.EvaluationError as error:
            raise SelectorFailure(f"CEL runtime error: {error}") from error

    def _program(self, text: str) -> cel.Program | str:
        found = self._programs.get(text)
        if found is None:
            if len(self._programs) >= _PROGRAMS_KEPT:
                self._programs.clear()
            try:
                found = cel.compile(text, self._features)
            except cel.CompileError as error:
                found = str(error)
            self._programs[text] = found
        return found

    def _device(self, equipment: Equipment) -> cel.Device:
        found = self._devices.get(equipment.number)
        if found is None:
            if len(self._devices) >= _DEVICES_KEPT:
                self._devices.clear()
            model = equipment.model
            found = self._devices[equipment.number] = cel.Device.of(
                model.driver,
                equipment.attributes,
                model.capacity,
                equipment.example.allow_multiple_allocations,
                self._features,
            )
        return found
