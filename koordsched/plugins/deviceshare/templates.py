"""Templates of shared GPUs: which parts of a GPU of a model may be given out (deviceshare spec 2.4, 3.4).

Source: koordinator `pkg/scheduler/plugins/deviceshare/gpu_shared_resource_templates_cache.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from koordsched.api.quantity import QuantityError, value
from koordsched.plugins.deviceshare.supply import Amounts
from koordsched.plugins.shared.devices.resources import GPU, NAMES

DATA_KEY = "data.yaml"

Template = Mapping[str, int]
"""Amounts by resource, those of 0 left out."""


class TemplatesError(ValueError):
    """The ConfigMap cannot be read; the message is for its owner."""


def parse(text: str) -> dict[str, dict[str, Template]]:
    """Templates by `<vendor>-<model>` and name. Raises TemplatesError."""
    try:
        decoded = msgspec.yaml.decode(text, type=dict[str, dict[str, dict[str, str | int | float]]])
        return {
            model: {
                name: {resource: amount for resource, given in amounts.items() if (amount := value(given))}
                for name, amounts in of_model.items()
            }
            for model, of_model in decoded.items()
        }
    except (msgspec.MsgspecError, QuantityError, RecursionError, ValueError) as error:
        raise TemplatesError(f"{DATA_KEY}: {error}") from error


class Templates:
    """The templates in force. `serial` grows with every change."""

    def __init__(self) -> None:
        self._by_model: dict[str, dict[str, Template]] = {}
        self.serial = 0

    def replace(self, by_model: dict[str, dict[str, Template]]) -> frozenset[str]:
        """From now on these; the models, as `<vendor>-<model>`, whose templates differ from those before."""
        before = self._by_model
        changed = frozenset(
            model for model in before.keys() | by_model.keys() if before.get(model, {}) != by_model.get(model, {})
        )
        if changed:
            self._by_model = by_model
            self.serial += 1
        return changed

    def matched(self, amounts: Amounts) -> bool:
        """Whether any model has a template of exactly these amounts per GPU."""
        return any(self._names(of_model, amounts) for of_model in self._by_model.values())

    def of(self, vendor: str, model: str, amounts: Amounts) -> Sequence[str]:
        """The names of the templates of a model with exactly these amounts per GPU."""
        return self._names(self._by_model.get(f"{vendor}-{model}", {}), amounts)

    @staticmethod
    def _names(of_model: Mapping[str, Template], amounts: Amounts) -> list[str]:
        wanted = {name: amount for name, amount in zip(NAMES[GPU], amounts, strict=True) if amount}
        return sorted(name for name, template in of_model.items() if template == wanted)
