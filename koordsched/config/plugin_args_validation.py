"""Rules for the arguments of in-tree plugins. Each function returns complaints, paths below `path`.

Source: `pkg/scheduler/apis/config/validation/validation_pluginargs.go`; default-plugins spec 2.2.
"""

from collections.abc import Sequence

from koordsched.config import plugin_args as args
from koordsched.config.duration import Duration
from koordsched.config.errors import duplicate, forbidden, invalid, required, unsupported
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.node_selector_validation import node_selector_errors, preferred_terms_errors
from koordsched.config.plugin_args_defaults import binding_conditions
from koordsched.config.qualified_names import qualified_name_errors

_STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
_RATIO = "RequestedToCapacityRatio"


def default_preemption(given: args.DefaultPreemptionArgs, path: str, gates: FeatureGates) -> list[str]:
    percentage, absolute = given.min_candidate_nodes_percentage, given.min_candidate_nodes_absolute
    percentage_path, absolute_path = f"{path}.minCandidateNodesPercentage", f"{path}.minCandidateNodesAbsolute"
    complaints = []
    if not 0 <= percentage <= 100:
        complaints.append(invalid(percentage_path, percentage, "not in valid range [0, 100]"))
    if absolute < 0:
        complaints.append(invalid(absolute_path, absolute, "not in valid range [0, inf)"))
    if percentage == 0 and absolute == 0:
        both = "cannot be zero at the same time as"
        complaints.append(invalid(percentage_path, 0, f"{both} minCandidateNodesAbsolute"))
        complaints.append(invalid(absolute_path, 0, f"{both} minCandidateNodesPercentage"))
    return complaints


def dynamic_resources(given: args.DynamicResourcesArgs, path: str, gates: FeatureGates) -> list[str]:
    complaints = []
    if given.filter_timeout is not None:
        place = f"{path}.filterTimeout"
        if not gates.enabled("DRASchedulerFilterTimeout"):
            complaints.append(forbidden(place, "DRASchedulingFilterTimeout feature gate is disabled"))
        elif given.filter_timeout < 0:
            complaints.append(invalid(place, given.filter_timeout, "must be zero or positive"))
    if given.binding_timeout is not None:
        place = f"{path}.bindingTimeout"
        if not binding_conditions(gates):
            gate = "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus"
            complaints.append(forbidden(place, f"{gate} feature gate is disabled"))
        elif given.binding_timeout < Duration.of(1):
            complaints.append(invalid(place, given.binding_timeout, "must be at least 1 second"))
    return complaints


def inter_pod_affinity(given: args.InterPodAffinityArgs, path: str, gates: FeatureGates) -> list[str]:
    weight = given.hard_pod_affinity_weight
    if 0 <= weight <= 100:
        return []
    return [invalid(f"{path}.hardPodAffinityWeight", weight, "not in valid range [0, 100]")]


def node_affinity(given: args.NodeAffinityArgs, path: str, gates: FeatureGates) -> list[str]:
    complaints: list[str] = []
    if given.added_affinity is None:
        return complaints
    place = f"{path}.addedAffinity"
    if given.added_affinity.required is not None:
        below = f"{place}.requiredDuringSchedulingIgnoredDuringExecution"
        complaints += node_selector_errors(given.added_affinity.required, below)
    below = f"{place}.preferredDuringSchedulingIgnoredDuringExecution"
    return complaints + preferred_terms_errors(given.added_affinity.preferred, below)


def balanced_allocation(given: args.NodeResourcesBalancedAllocationArgs, path: str, gates: FeatureGates) -> list[str]:
    complaints = []
    seen: set[str] = set()
    for i, spec in enumerate(given.resources):
        place = f"{path}.resources[{i}]"
        if spec.name in seen:
            complaints.append(duplicate(f"{place}.name", spec.name))
        seen.add(spec.name)
        if spec.weight != 1:
            complaints.append(invalid(f"{place}.weight", spec.weight, "must be 1"))
    return complaints


def resources_fit(given: args.NodeResourcesFitArgs, path: str, gates: FeatureGates) -> list[str]:
    """Upstream asks this in the plugin's constructor, so its paths start at the arguments themselves."""
    complaints = []
    for i, name in enumerate(given.ignored_resources):
        complaints += _label_name(name, f"ignoredResources[{i}]")
    for i, group in enumerate(given.ignored_resource_groups):
        place = f"ignoredResourceGroups[{i}]"
        if "/" in group:
            complaints.append(invalid(place, group, "resource group name can't contain '/'"))
        complaints += _label_name(group, place)
    strategy = given.scoring_strategy
    if strategy is None:
        return [*complaints, required("scoringStrategy", "ScoringStrategy field is required")]
    if strategy.type not in _STRATEGIES:
        complaints.append(unsupported("scoringStrategy.type", strategy.type, _STRATEGIES))
    for i, spec in enumerate(strategy.resources):
        if not 0 < spec.weight <= 100:
            detail = f"resource weight of {spec.name} not in valid range (0, 100]"
            complaints.append(invalid(f"scoringStrategy.resources[{i}].weight", spec.weight, detail))
    ratio, place = strategy.requested_to_capacity_ratio, "scoringStrategy.requestedToCapacityRatio"
    if strategy.type == _RATIO and ratio is None:
        complaints.append(required(place, f"must be specified when type is {_RATIO}"))
    elif strategy.type == _RATIO and ratio is not None:
        complaints += _shape(ratio.shape, f"{place}.shape")
    elif ratio is not None:
        complaints.append(forbidden(place, f"must be nil when type is not {_RATIO}"))
    return complaints


def topology_spread(given: args.PodTopologySpreadArgs, path: str, gates: FeatureGates) -> list[str]:
    complaints = []
    kind, constraints = given.defaulting_type, given.default_constraints
    if kind not in ("System", "List"):
        complaints.append(unsupported(f"{path}.defaultingType", kind, ("System", "List")))
    if kind == "System" and constraints:
        complaints.append(invalid(f"{path}.defaultingType", kind, "when .defaultConstraints are not empty"))
    seen: set[tuple[str, str]] = set()
    for i, constraint in enumerate(constraints):
        place = f"{path}.defaultConstraints[{i}]"
        if constraint.max_skew <= 0:
            complaints.append(invalid(f"{place}.maxSkew", constraint.max_skew, "not in valid range (0, inf)"))
        key, action = constraint.topology_key, constraint.when_unsatisfiable
        if key:
            complaints += _label_name(key, f"{place}.topologyKey")
        else:
            complaints.append(required(f"{place}.topologyKey", "can not be empty"))
        if not action:
            complaints.append(required(f"{place}.whenUnsatisfiable", "can not be empty"))
        elif action not in ("DoNotSchedule", "ScheduleAnyway"):
            known = ("DoNotSchedule", "ScheduleAnyway")
            complaints.append(unsupported(f"{place}.whenUnsatisfiable", action, known))
        if constraint.label_selector is not None:
            detail = "constraint must not define a selector, as they deduced for each pod"
            complaints.append(forbidden(f"{place}.labelSelector", detail))
        if (key, action) in seen:
            complaints.append(duplicate(place, f"{{{key}, {action}}}"))
        seen.add((key, action))
    return complaints


def volume_binding(given: args.VolumeBindingArgs, path: str, gates: FeatureGates) -> list[str]:
    complaints = []
    if given.bind_timeout_seconds < 0:
        detail = "invalid BindTimeoutSeconds, should not be a negative value"
        complaints.append(invalid(f"{path}.bindTimeoutSeconds", given.bind_timeout_seconds, detail))
    if gates.enabled("StorageCapacityScoring"):
        complaints += _shape(given.shape or (), f"{path}.shape")
    elif given.shape is not None:
        shown = [{"Utilization": point.utilization, "Score": point.score} for point in given.shape]
        detail = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
        complaints.append(invalid(f"{path}.shape", shown, detail))
    return complaints


def _label_name(name: str, path: str) -> list[str]:
    return [invalid(path, name, complaint) for complaint in qualified_name_errors(name)]


def _shape(points: Sequence[args.UtilizationShapePoint], path: str) -> list[str]:
    if not points:
        return [required(path, "at least one point must be specified")]
    complaints = []
    for i in range(1, len(points)):
        if points[i - 1].utilization >= points[i].utilization:
            detail = "values must be sorted in increasing order"
            complaints.append(invalid(f"{path}[{i}].utilization", points[i].utilization, detail))
            break
    for i, point in enumerate(points):
        if not 0 <= point.utilization <= 100:
            complaints.append(invalid(f"{path}[{i}].utilization", point.utilization, "not in valid range [0, 100]"))
        if not 0 <= point.score <= 10:
            complaints.append(invalid(f"{path}[{i}].score", point.score, "not in valid range [0, 10]"))
    return complaints
