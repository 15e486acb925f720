"""Defaults of in-tree plugin arguments that depend on other fields or on feature gates.

Source: `pkg/scheduler/apis/config/v1/defaults.go`.
"""

import msgspec

from koordsched.config import plugin_args as args
from koordsched.config.duration import Duration
from koordsched.config.feature_gates import FeatureGates

_CPU_AND_MEMORY = (args.ResourceSpec("cpu", 1), args.ResourceSpec("memory", 1))


def dynamic_resources(given: args.DynamicResourcesArgs, gates: FeatureGates) -> args.DynamicResourcesArgs:
    filter_timeout, binding_timeout = given.filter_timeout, given.binding_timeout
    if filter_timeout is None and gates.enabled("DRASchedulerFilterTimeout"):
        filter_timeout = Duration.parse("10s")
    if binding_timeout is None and binding_conditions(gates):
        binding_timeout = Duration.parse("10m")
    return msgspec.structs.replace(given, filter_timeout=filter_timeout, binding_timeout=binding_timeout)


def binding_conditions(gates: FeatureGates) -> bool:
    """Whether devices can have binding conditions, the only thing that waits."""
    return gates.enabled("DRADeviceBindingConditions") and gates.enabled("DRAResourceClaimDeviceStatus")


def balanced_allocation(
    given: args.NodeResourcesBalancedAllocationArgs, gates: FeatureGates
) -> args.NodeResourcesBalancedAllocationArgs:
    return args.NodeResourcesBalancedAllocationArgs(resources=_weighted(given.resources))


def resources_fit(given: args.NodeResourcesFitArgs, gates: FeatureGates) -> args.NodeResourcesFitArgs:
    strategy = given.scoring_strategy or args.ScoringStrategy(type="LeastAllocated")
    strategy = msgspec.structs.replace(strategy, resources=_weighted(strategy.resources))
    return msgspec.structs.replace(given, scoring_strategy=strategy)


def topology_spread(given: args.PodTopologySpreadArgs, gates: FeatureGates) -> args.PodTopologySpreadArgs:
    return msgspec.structs.replace(given, defaulting_type=given.defaulting_type or "System")


def volume_binding(given: args.VolumeBindingArgs, gates: FeatureGates) -> args.VolumeBindingArgs:
    if given.shape or not gates.enabled("StorageCapacityScoring"):
        return given
    shape = (args.UtilizationShapePoint(0, 10), args.UtilizationShapePoint(100, 0))
    return msgspec.structs.replace(given, shape=shape)


def _weighted(resources: tuple[args.ResourceSpec, ...]) -> tuple[args.ResourceSpec, ...]:
    """cpu and memory if none are named; a weight of 0 becomes 1."""
    return tuple(args.ResourceSpec(spec.name, spec.weight or 1) for spec in resources) or _CPU_AND_MEMORY
