"""ClusterColocationProfile: what objects that it selects are given at admission.

Source: koordinator `apis/config/v1alpha1/cluster_colocation_profile_types.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from koordsched.api.meta import LabelSelector, ObjectMeta, Wire
from koordsched.api.selectors import SelectorError, compile_unchecked

_PERCENT = re.compile(r"([+-]?[0-9]{1,9})%")


class Failed(ValueError):
    """The request fails with HTTP code 500 and this text."""


class PriorityClass(Wire, frozen=True):
    """A priority by name."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    preemption_policy: str | None = None


class ColocationProfileSpec(Wire, frozen=True):
    """Which objects (all without a selector), how likely, and what they are given."""

    selector: LabelSelector | None = None
    probability: int | str | None = None
    qos_class: str = msgspec.field(default="", name="qosClass")
    priority_class_name: str = ""
    koordinator_priority: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    label_keys_mapping: dict[str, str] = {}
    annotation_keys_mapping: dict[str, str] = {}
    label_suffixes: dict[str, str] = {}
    scheduler_name: str = ""
    patch: dict[str, Any] | None = None


class ColocationProfile(Wire, frozen=True):
    """A profile."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ColocationProfileSpec = ColocationProfileSpec()

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether it selects an object with these labels. As upstream, a selector that cannot be read selects all."""
        if self.spec.selector is None:
            return True
        try:
            return compile_unchecked(self.spec.selector).matches(labels)
        except SelectorError:
            return True

    def drawn(self, draw: Callable[[], int]) -> bool:
        """Whether it is applied this time. `draw`: a random number from 0 to 99. Raises Failed.

        Exactly as likely as it says, where upstream applies a profile of 5% six times in a hundred.
        """
        percent = self._percent()
        return percent == 100 or (percent != 0 and draw() < percent)

    def _percent(self) -> int:
        given = self.spec.probability
        if given is None:
            return 100
        if isinstance(given, int):
            return given
        matched = _PERCENT.fullmatch(given)
        if matched is None:
            problem = "invalid type: string is not a percentage"
            if given.endswith("%"):
                problem = f'invalid value "{given[:64]}": not a number of percent'
            raise Failed(f"invalid value for IntOrString: {problem}")
        return int(matched[1])
