"""The plugin's arguments: fields, defaults, rules.

Source: koordinator `pkg/scheduler/apis/config/{types.go,v1/defaults.go,validation}`; nodenumaresource spec 2.1.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from koordsched.config.errors import invalid
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.plugin_args import PluginArgs, ResourceSpec

LEAST_ALLOCATED = "LeastAllocated"
MOST_ALLOCATED = "MostAllocated"
_TYPES = (LEAST_ALLOCATED, MOST_ALLOCATED)
_BIND_POLICIES = ("", "FullPCPUs", "SpreadByPCPUs")
_RESOURCES = (ResourceSpec("cpu", 1), ResourceSpec("memory", 1))


class AllocationStrategy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How full a node, or a NUMA node, should become, by these resources."""

    type: str = ""
    resources: tuple[ResourceSpec, ...] = ()


class NodeNUMAResourceArgs(PluginArgs, frozen=True, kw_only=True):
    """Nodenumaresource spec 2.1. Of `numa_scoring_strategy` the type alone counts, as upstream has it."""

    default_cpu_bind_policy: str | None = msgspec.field(default=None, name="defaultCPUBindPolicy")
    scoring_strategy: AllocationStrategy | None = None
    numa_scoring_strategy: AllocationStrategy | None = None


DEFAULT_ARGS = NodeNUMAResourceArgs(
    default_cpu_bind_policy="FullPCPUs",
    scoring_strategy=AllocationStrategy(type=LEAST_ALLOCATED, resources=_RESOURCES),
    numa_scoring_strategy=AllocationStrategy(type=LEAST_ALLOCATED, resources=_RESOURCES),
)


def with_defaults(given: NodeNUMAResourceArgs, gates: FeatureGates) -> NodeNUMAResourceArgs:
    """Whole cores; the emptiest first, by CPU and memory. An explicit "" binds no pod that does not ask for it."""
    chosen = {name: getattr(DEFAULT_ARGS, name) for name in given.__struct_fields__ if getattr(given, name) is None}
    return msgspec.structs.replace(given, **chosen)


def validate(given: NodeNUMAResourceArgs, path: str, gates: FeatureGates) -> list[str]:
    """Upstream asks this in the plugin's constructor; its paths begin at the arguments."""
    complaints = []
    if given.default_cpu_bind_policy not in _BIND_POLICIES:
        problem = "must specified CPU bind policy FullPCPUs or SpreadByPCPUs"
        complaints.append(invalid("defaultCPUBindPolicy", given.default_cpu_bind_policy, problem))
    strategies = [
        (kind, strategy)
        for kind, strategy in (("scoring", given.scoring_strategy), ("numa scoring", given.numa_scoring_strategy))
        if strategy is not None
    ]
    for _, strategy in strategies:
        for at, resource in enumerate(strategy.resources):
            if not 0 < resource.weight <= 100:
                problem = f"resource weight of {resource.name} not in valid range (0, 100]"
                complaints.append(invalid(f"resources[{at}].weight", resource.weight, problem))
    if complaints:
        return complaints
    for kind, strategy in strategies:
        if strategy.type not in _TYPES:
            return [f"{kind} strategy {strategy.type} is not supported"]
    return []


def advise(given: NodeNUMAResourceArgs) -> Iterator[str]:
    """What upstream accepts silently and never uses."""
    numa, scored = given.numa_scoring_strategy, given.scoring_strategy
    if numa is not None and numa.resources not in ((), _RESOURCES) and (scored is None or numa != scored):
        yield "numaScoringStrategy.resources has no effect: NUMA nodes are scored by scoringStrategy.resources"
