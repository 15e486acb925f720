"""The plugin's arguments: fields, defaults, rules.

Source: koordinator `pkg/scheduler/apis/config/{v1,validation}`, `pkg/scheduler/plugins/reservation/{plugin,cache}.go`;
reservation spec 2.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import msgspec

from koordsched.config.decoding import Int32, Int64
from koordsched.config.errors import aggregate, invalid
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.plugin_args import DefaultPreemptionArgs, PluginArgs
from koordsched.config.plugin_args_validation import default_preemption
from koordsched.config.qualified_names import is_extended_resource
from koordsched.plugins.reservation.kinds import PRE_ALLOCATABLE, PRE_ALLOCATABLE_PRIORITY

DAY = 86_400
MINUTE = 60


class PreAllocationConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Pre-allocation in mode Cluster: label and annotation of the pods whose resources Reservations may take over."""

    enable_cluster_mode: bool = False
    cluster_label_key: str = ""
    cluster_priority_annotation_key: str = ""
    prefer_no_pre_allocated_pods: bool = False

    @property
    def label(self) -> str:
        """The label that pods may be taken by."""
        return self.cluster_label_key or PRE_ALLOCATABLE

    @property
    def priority_annotation(self) -> str:
        """The annotation that says which pods are taken first."""
        return self.cluster_priority_annotation_key or PRE_ALLOCATABLE_PRIORITY


class SelectorIndexConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The labels by which Reservations are found for pods that select them."""

    enabled: bool = False
    key_prefixes: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def normalised(self) -> SelectorIndexConfig:
        """Without surrounding spaces, empty entries and repetitions."""
        return msgspec.structs.replace(self, key_prefixes=_distinct(self.key_prefixes), keys=_distinct(self.keys))


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for each in texts if (text := each.strip())))


class ReservationArgs(PluginArgs, frozen=True, kw_only=True):
    """Reservation spec 2.3. `controller_workers`: how many Reservations are written at once, 8 at least.

    `resync_interval_seconds` has no effect: metrics are read when they are asked for.
    """

    of_cluster: ClassVar[tuple[str, ...]] = (
        "gc_duration_seconds",
        "gc_interval_seconds",
        "disable_garbage_collection",
        "resync_interval_seconds",
        "reservation_selector_index",
    )

    enable_preemption: bool = False
    min_candidate_nodes_percentage: Int32 = 10
    min_candidate_nodes_absolute: Int32 = 100
    controller_workers: Int32 = 1
    gc_duration_seconds: Int64 = DAY
    gc_interval_seconds: Int64 = MINUTE
    disable_garbage_collection: bool = False
    resync_interval_seconds: Int64 = MINUTE
    pre_allocation_config: PreAllocationConfig | None = None
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    reservation_selector_index: SelectorIndexConfig | None = None

    def ignores(self, name: str) -> bool:
        """Whether this plugin leaves a resource to others."""
        group, slash, _ = name.partition("/")
        return name in self.ignored_resources or (bool(slash) and group in self.ignored_resource_groups)


def with_defaults(given: ReservationArgs, gates: FeatureGates) -> ReservationArgs:
    """0 is not set."""
    index = given.reservation_selector_index
    return msgspec.structs.replace(
        given,
        gc_duration_seconds=given.gc_duration_seconds or DAY,
        gc_interval_seconds=given.gc_interval_seconds or MINUTE,
        resync_interval_seconds=given.resync_interval_seconds or MINUTE,
        reservation_selector_index=index.normalised() if index is not None else None,
    )


def validate(given: ReservationArgs, path: str, gates: FeatureGates) -> list[str]:
    """Upstream asks this in the plugin's constructor; its paths begin at the arguments."""
    complaints = []
    percentage = given.min_candidate_nodes_percentage
    if not 0 <= percentage <= 100:
        complaints.append(invalid("MinCandidateNodesPercentage", percentage, "must be in the range [0, 100]"))
    for name, number in (
        ("MinCandidateNodesAbsolute", given.min_candidate_nodes_absolute),
        ("GcDuration", given.gc_duration_seconds),
        ("GcInterval", given.gc_interval_seconds),
        ("ResyncIntervalSeconds", given.resync_interval_seconds),
    ):
        if number < 0:
            complaints.append(invalid(name, number, "must be non-negative"))
    for at, name in enumerate(given.ignored_resources):
        if not is_extended_resource(name):
            problem = "must be an extended resource name (e.g. example.com/gpu); native resources cannot be ignored"
            complaints.append(invalid(f"ignoredResources[{at}]", name, problem))
    for at, group in enumerate(given.ignored_resource_groups):
        if "/" in group:
            complaints.append(invalid(f"ignoredResourceGroups[{at}]", group, "resource group name can't contain '/'"))
        elif not is_extended_resource(f"{group}/x"):
            problem = (
                "must be usable as an extended resource prefix "
                '(a valid DNS subdomain and not the reserved "kubernetes.io" namespace)'
            )
            complaints.append(invalid(f"ignoredResourceGroups[{at}]", group, problem))
    return complaints or _preemption(given, gates)


def _preemption(given: ReservationArgs, gates: FeatureGates) -> list[str]:
    """The rules of DefaultPreemption, of which one is left: some nodes have to be tried."""
    if not given.enable_preemption:
        return []
    preemption = DefaultPreemptionArgs(
        min_candidate_nodes_percentage=given.min_candidate_nodes_percentage,
        min_candidate_nodes_absolute=given.min_candidate_nodes_absolute,
    )
    complaints = [complaint.removeprefix(".") for complaint in default_preemption(preemption, "", gates)]
    return [f"failed to new preemption, err: {aggregate(complaints)}"] if complaints else []
