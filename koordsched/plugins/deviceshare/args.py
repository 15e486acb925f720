"""The plugin's arguments: fields, defaults, rules.

Source: koordinator `pkg/scheduler/apis/config/{types.go,v1/defaults.go,validation}`; deviceshare spec 2.4.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from koordsched.config.errors import invalid
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.plugin_args import PluginArgs, ResourceSpec
from koordsched.plugins.shared.devices.resources import (
    FPGA_RESOURCE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    NPU_CORE,
    RDMA_RESOURCE,
)

LEAST_ALLOCATED = "LeastAllocated"
MOST_ALLOCATED = "MostAllocated"
_TYPES = (LEAST_ALLOCATED, MOST_ALLOCATED)


class ScoringStrategy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How full devices, and nodes, should become, by these resources."""

    type: str = ""
    resources: tuple[ResourceSpec, ...] = ()


class TemplatesConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The ConfigMap with the templates of shared GPUs; pods that request one of the resources must match a template."""

    config_map_namespace: str = ""
    config_map_name: str = ""
    matched_resources: tuple[str, ...] = ()


class GPUModel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A model of GPU, as labels of nodes name it."""

    vendor: str = ""
    model: str = ""


class DeviceShareArgs(PluginArgs, frozen=True, kw_only=True):
    """Deviceshare spec 2.4. `allocator` has no effect; `improved_allocation` is koordsched's own (docs/devices.md)."""

    allocator: str | None = None
    scoring_strategy: ScoringStrategy | None = None
    disable_device_numa_topology_alignment: bool = msgspec.field(
        default=False, name="disableDeviceNUMATopologyAlignment"
    )
    gpu_shared_resource_templates_config: TemplatesConfig | None = msgspec.field(
        default=None, name="gpuSharedResourceTemplatesConfig"
    )
    gpu_share_unsupported_models: tuple[GPUModel, ...] = msgspec.field(default=(), name="gpuShareUnsupportedModels")
    improved_allocation: bool = False


DEFAULT_STRATEGY = ScoringStrategy(
    type=LEAST_ALLOCATED,
    resources=tuple(ResourceSpec(name, 1) for name in (GPU_MEMORY_RATIO, GPU_MEMORY, RDMA_RESOURCE, FPGA_RESOURCE)),
)
DEFAULT_TEMPLATES = TemplatesConfig(
    config_map_namespace="koordinator-system",
    config_map_name="gpu-shared-resource-templates",
    matched_resources=(NPU_CORE,),
)


def with_defaults(given: DeviceShareArgs, gates: FeatureGates) -> DeviceShareArgs:
    """The emptiest first, by what devices have; a structure that is given is taken as it is."""
    return msgspec.structs.replace(
        given,
        scoring_strategy=given.scoring_strategy or DEFAULT_STRATEGY,
        gpu_shared_resource_templates_config=given.gpu_shared_resource_templates_config or DEFAULT_TEMPLATES,
    )


def validate(given: DeviceShareArgs, path: str, gates: FeatureGates) -> list[str]:
    """Upstream asks this in the plugin's constructor; its paths begin at the arguments."""
    strategy = given.scoring_strategy
    if strategy is None:
        return []
    complaints = []
    for at, resource in enumerate(strategy.resources):
        if not 0 < resource.weight <= 100:
            problem = f"resource weight of {resource.name} not in valid range (0, 100]"
            complaints.append(invalid(f"resources[{at}].weight", resource.weight, problem))
    if not complaints and strategy.type not in _TYPES:
        complaints.append(f"scoring strategy {strategy.type} is not supported")
    return complaints


def advise(given: DeviceShareArgs) -> Iterator[str]:
    """What upstream accepts silently and never uses."""
    if given.allocator:
        yield "allocator has no effect"
