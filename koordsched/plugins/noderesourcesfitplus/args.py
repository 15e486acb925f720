"""The plugin's arguments: fields and rules.

Source: koordinator `pkg/scheduler/apis/config/types.go`, which has no rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec

from koordsched.config.decoding import OMIT_EMPTY, Int64
from koordsched.config.errors import invalid
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.plugin_args import PluginArgs

LEAST_ALLOCATED, MOST_ALLOCATED = "LeastAllocated", "MostAllocated"

MAX_WEIGHT = 1 << 53
"""Scores times weights, added up, have to stay below 2^63."""


class ResourcesType(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How one resource is scored. A `type` that is none of the two scores 0, and its weight counts."""

    type: Annotated[str, OMIT_EMPTY] = ""
    weight: Annotated[int, *Int64.__metadata__, OMIT_EMPTY] = 0


class NodeResourcesFitPlusArgs(PluginArgs, frozen=True, kw_only=True):
    """Loadaware spec A."""

    resources: Mapping[str, ResourcesType] = msgspec.field(default_factory=dict)


def validate(given: NodeResourcesFitPlusArgs, path: str, gates: FeatureGates) -> list[str]:
    """Weights that lead out of 0..100, or out of int64, would fail every pod."""
    complaints = [
        invalid(f"resources[{name}].weight", resource.weight, "must not be negative")
        for name, resource in sorted(given.resources.items())
        if resource.weight < 0
    ]
    total = sum(resource.weight for resource in given.resources.values())
    if not complaints and total > MAX_WEIGHT:
        complaints.append(invalid("resources", total, f"weights must add up to at most {MAX_WEIGHT}"))
    return complaints


def advise(given: NodeResourcesFitPlusArgs) -> Iterator[str]:
    """Types that upstream accepts silently."""
    for name, resource in sorted(given.resources.items()):
        if resource.type not in (LEAST_ALLOCATED, MOST_ALLOCATED):
            known = f"{LEAST_ALLOCATED} or {MOST_ALLOCATED}"
            yield f'resources[{name}].type: "{resource.type}" scores 0 on every node: it is not {known}'
