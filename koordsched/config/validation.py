"""The rules a defaulted configuration must obey, all complaints in one error (core spec 2.1).

Source: `pkg/scheduler/apis/config/validation/validation.go`, `component-base/config/validation`.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from koordsched.config.catalog import PluginCatalog
from koordsched.config.errors import aggregate, duplicate, invalid, required
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.qualified_names import is_extended_resource, qualified_name_errors
from koordsched.config.wire import (
    API_VERSION,
    Extender,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    LeaderElectionConfiguration,
    Plugins,
    PluginSet,
)

REMOVED_PLUGINS = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})
_REMOVED = f'was invalid in version "v1" (KubeSchedulerConfiguration is version "{API_VERSION}")'


def validate(configuration: KubeSchedulerConfiguration, catalog: PluginCatalog, gates: FeatureGates) -> None:
    """Raises ConfigError that names every broken rule."""
    complaints = list(_validation_errors(configuration, catalog, gates))
    if complaints:
        raise aggregate(complaints)


def _validation_errors(given: KubeSchedulerConfiguration, catalog: PluginCatalog, gates: FeatureGates) -> Iterator[str]:
    if given.client_connection.burst < 0:
        yield invalid("clientConnection.burst", given.client_connection.burst, "must be non-negative")
    if given.leader_election.leader_elect:
        yield from _leader_election(given.leader_election)
    if given.parallelism <= 0:
        yield invalid("parallelism", given.parallelism, "should be an integer value greater than zero")
    if given.profiles:
        yield from _profiles(given.profiles, catalog, gates)
    else:
        yield required("profiles")
    yield from _percentage("percentageOfNodesToScore", given.percentage_of_nodes_to_score)
    initial, maximum = given.pod_initial_backoff_seconds, given.pod_max_backoff_seconds
    if initial <= 0:
        yield invalid("podInitialBackoffSeconds", initial, "must be greater than 0")
    if maximum < initial:
        detail = "must be greater than or equal to PodInitialBackoffSeconds"
        yield invalid("podMaxBackoffSeconds", maximum, detail)
    yield from _extenders(given.extenders)


def _leader_election(given: LeaderElectionConfiguration) -> Iterator[str]:
    path = "leaderElection"
    for name, value in (
        ("leaseDuration", given.lease_duration),
        ("renewDeadline", given.renew_deadline),
        ("retryPeriod", given.retry_period),
    ):
        if value <= 0:
            yield invalid(f"{path}.{name}", value, "must be greater than zero")
    if given.lease_duration <= given.renew_deadline:
        yield invalid(f"{path}.leaseDuration", given.renew_deadline, "must be greater than `RenewDeadline`")
    if not given.resource_lock:
        yield required(f"{path}.resourceLock")
    if not given.resource_namespace:
        yield required(f"{path}.resourceNamespace")
    if not given.resource_name:
        yield required(f"{path}.resourceName")
    if given.resource_lock != "leases":
        yield invalid(f"{path}.resourceLock", given.resource_lock, 'resourceLock value must be "leases"')


def _percentage(path: str, value: int | None) -> Iterator[str]:
    if value is not None and not 0 <= value <= 100:
        yield invalid(path, value, "not in valid range [0-100]")


def _profiles(profiles: tuple[KubeSchedulerProfile, ...], catalog: PluginCatalog, gates: FeatureGates) -> Iterator[str]:
    seen: set[str] = set()
    for i, profile in enumerate(profiles):
        path = f"profiles[{i}]"
        name = profile.scheduler_name or ""
        if not name:
            yield required(f"{path}.schedulerName")
        yield from _percentage(f"{path}.percentageOfNodesToScore", profile.percentage_of_nodes_to_score)
        yield from _plugins(profile, path)
        yield from _plugin_config(profile, path, catalog, gates)
        if name in seen:
            # Upstream passes the path of the first one as value, which prints as an empty object.
            yield duplicate(f"{path}.schedulerName", {})
        seen.add(name)
    yield from _queue_sort(profiles)


def _plugins(profile: KubeSchedulerProfile, path: str) -> Iterator[str]:
    for info in msgspec.structs.fields(Plugins):
        for i, plugin in enumerate(getattr(profile.plugins, info.name).enabled):
            if plugin.name in REMOVED_PLUGINS:
                yield invalid(f"{path}.plugins.{info.encode_name}.enabled[{i}]", plugin.name, _REMOVED)


def _plugin_config(
    profile: KubeSchedulerProfile, path: str, catalog: PluginCatalog, gates: FeatureGates
) -> Iterator[str]:
    seen: set[str] = set()
    for i, config in enumerate(profile.plugin_config):
        place = f"{path}.pluginConfig[{i}]"
        if config.name in seen:
            yield duplicate(place, config.name)
        seen.add(config.name)
        kind = catalog[config.name].args if config.name in catalog else None
        if config.name in REMOVED_PLUGINS:
            yield invalid(place, config.name, _REMOVED)
        elif kind is not None and not kind.by_constructor:
            yield from kind.validate(config.args, f"{place}.args", gates)


def _queue_sort(profiles: tuple[KubeSchedulerProfile, ...]) -> Iterator[str]:
    canon = profiles[0].plugins.queue_sort
    if len(canon.enabled) > 1:
        detail = "only one queue sort plugin can be enabled"
        yield invalid("profiles[0].plugins.queueSort.Enabled", len(canon.enabled), detail)
    name = canon.enabled[0].name if canon.enabled else None
    args = _args_of(profiles[0], name)
    for i, profile in enumerate(profiles[1:], start=1):
        if profile.plugins.queue_sort != canon:
            shown = _go_plugin_set(profile.plugins.queue_sort)
            yield invalid(f"profiles[{i}].plugins.queueSort", shown, "must be the same for all profiles")
        if _args_of(profile, name) not in (None, args):
            yield invalid(f"profiles[{i}].pluginConfig.args", None, "queueSort must be the same for all profiles")


def _args_of(profile: KubeSchedulerProfile, name: str | None) -> Any:
    return next((config.args for config in profile.plugin_config if config.name == name), None)


def _go_plugin_set(plugins: PluginSet) -> dict[str, Any]:
    """A plugin set as Go prints its internal type."""
    both = (("Enabled", plugins.enabled), ("Disabled", plugins.disabled))
    return {
        name: [{"Name": plugin.name, "Weight": plugin.weight} for plugin in listed] or None for name, listed in both
    }


def _extenders(extenders: tuple[Extender, ...]) -> Iterator[str]:
    managed: set[str] = set()
    for i, extender in enumerate(extenders):
        path = f"extenders[{i}]"
        if extender.prioritize_verb and extender.weight <= 0:
            yield invalid(f"{path}.weight", extender.weight, "must have a positive weight applied to it")
        for j, resource in enumerate(extender.managed_resources):
            place = f"{path}.managedResources[{j}].name"
            complaints = qualified_name_errors(resource.name)
            yield from (invalid(place, resource.name, complaint) for complaint in complaints)
            if not complaints and not is_extended_resource(resource.name):
                yield invalid(place, resource.name, "is an invalid extended resource name")
            if resource.name in managed:
                yield invalid(place, resource.name, "duplicate extender managed resource name")
            managed.add(resource.name)
    binders = sum(1 for extender in extenders if extender.bind_verb)
    if binders > 1:
        shown = f"found {binders} extenders implementing bind"
        yield invalid("extenders", shown, "only one extender can implement bind")
