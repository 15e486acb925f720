"""Arguments of the in-tree plugins, as they stand under `pluginConfig[].args`, after defaulting.

Source: staging `kube-scheduler/config/v1/types_pluginargs.go`; defaults and rules: core spec 2.1, default-plugins 2.2.
"""

from typing import Annotated, ClassVar

import msgspec

from koordsched.api.core import NodeAffinity, TopologySpreadConstraint
from koordsched.config.decoding import OMIT_EMPTY, Int32, Int64
from koordsched.config.duration import Duration


class PluginArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of every plugin's arguments; the class name is the `kind` in the file.

    `of_cluster`: fields about what profiles have in common; those of the first profile with the plugin count.
    """

    of_cluster: ClassVar[tuple[str, ...]] = ()


class ResourceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A resource and its weight in a score."""

    name: str = ""
    weight: Annotated[int, *Int64.__metadata__, OMIT_EMPTY] = 0


class UtilizationShapePoint(msgspec.Struct, frozen=True, rename="camel"):
    """A point of a piecewise linear score: utilization in percent, score 0 to 10."""

    utilization: Int32 = 0
    score: Int32 = 0


class RequestedToCapacityRatioParam(msgspec.Struct, frozen=True, rename="camel"):
    """The shape of the score over the requested share of capacity."""

    shape: tuple[UtilizationShapePoint, ...] = ()


class ScoringStrategy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How NodeResourcesFit turns resources into a score: LeastAllocated, MostAllocated, RequestedToCapacityRatio."""

    type: Annotated[str, OMIT_EMPTY] = ""
    resources: tuple[ResourceSpec, ...] = ()
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None


class DefaultPreemptionArgs(PluginArgs, frozen=True, kw_only=True):
    """How many candidate nodes a dry run of preemption wants."""

    min_candidate_nodes_percentage: Int32 = 10
    min_candidate_nodes_absolute: Int32 = 100


class DynamicResourcesArgs(PluginArgs, frozen=True, kw_only=True):
    """Time limits; None when the gate that brings the field is off. `skip_faulty_devices` and `best_fit` are
    koordsched's own; None is False, and not in dumps of the configuration, which are upstream's.
    """

    filter_timeout: Duration | None = None
    binding_timeout: Duration | None = None
    skip_faulty_devices: bool | None = None
    best_fit: bool | None = None


class InterPodAffinityArgs(PluginArgs, frozen=True, kw_only=True):
    """The weight of existing pods' required affinity, and whether their preferences count."""

    hard_pod_affinity_weight: Int32 = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class NodeAffinityArgs(PluginArgs, frozen=True, kw_only=True):
    """Affinity added to that of every pod."""

    added_affinity: NodeAffinity | None = None


class NodeResourcesBalancedAllocationArgs(PluginArgs, frozen=True, kw_only=True):
    """The resources to balance."""

    resources: tuple[ResourceSpec, ...] = ()


class NodeResourcesFitArgs(PluginArgs, frozen=True, kw_only=True):
    """Resources the filter ignores, and the score."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy | None = None


class PodTopologySpreadArgs(PluginArgs, frozen=True, kw_only=True):
    """Constraints of pods that have none: System (built in) or List (these)."""

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: Annotated[str, OMIT_EMPTY] = ""


class VolumeBindingArgs(PluginArgs, frozen=True, kw_only=True):
    """How long binding may take, in seconds; `shape` scores storage and needs gate StorageCapacityScoring."""

    bind_timeout_seconds: Int64 = 600
    shape: tuple[UtilizationShapePoint, ...] | None = None
