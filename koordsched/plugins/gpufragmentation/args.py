"""The plugin's arguments: fields and rules."""

from __future__ import annotations

from typing import ClassVar

from koordsched.config.decoding import Int32
from koordsched.config.errors import invalid
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.plugin_args import PluginArgs


class GPUFragmentationArgs(PluginArgs, frozen=True, kw_only=True):
    """`refresh_after`: after this many pods with GPUs have come or gone the values of GPUs are computed again. All
    profiles have the same values."""

    of_cluster: ClassVar[tuple[str, ...]] = ("refresh_after",)

    refresh_after: Int32 = 250


def validate(given: GPUFragmentationArgs, path: str, gates: FeatureGates) -> list[str]:
    """What is wrong with the arguments; paths below `path`."""
    if given.refresh_after < 1:
        return [invalid(f"{path}.refreshAfter", given.refresh_after, "must be greater than zero")]
    return []
