"""CEL for the allocator: programs and devices are kept for a while, and errors get upstream's words."""

from __future__ import annotations

import sys

from koordsched.cluster.kept import Kept
from koordsched.plugins.dynamicresources import cel
from koordsched.plugins.dynamicresources.structured.devices import Equipment
from koordsched.plugins.dynamicresources.structured.features import Features
from koordsched.plugins.dynamicresources.structured.selectors import Expired, SelectorFailure

_BUDGET = 64 << 20
"""Bytes of programs, each of which takes about so many, and so many for each character of its text:"""
_PROGRAM_BYTES, _BYTES_PER_CHARACTER = 4 << 10, 200
_DEVICES_KEPT = 4096


class CelExpressions:
    """See `Expressions`. Errors of compilation are kept as well: a bad expression costs one compilation."""

    def __init__(self, features: Features) -> None:
        self._features = cel.Features(features.consumable_capacity, features.list_attributes)
        self._programs: Kept[str, cel.Program | str] = Kept(_BUDGET)
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
            size = _PROGRAM_BYTES + _BYTES_PER_CHARACTER * len(text)
            try:
                found = cel.compile(text, self._features)
            except cel.CompileError as error:
                found = str(error)
                size += sys.getsizeof(found)
            self._programs.put(text, found, size)
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
