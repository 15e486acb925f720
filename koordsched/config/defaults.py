"""Filling what a configuration leaves unset (core spec 2.1).

Source: `pkg/scheduler/apis/config/v1/defaults.go`, `component-base/config/v1alpha1/defaults.go`.
"""

from collections.abc import Iterator

import msgspec

from koordsched.api.protobuf.fields import MEDIA_TYPE
from koordsched.config.catalog import PluginCatalog
from koordsched.config.default_plugins import default_plugins, merge
from koordsched.config.duration import Duration
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.wire import (
    ClientConnectionConfiguration,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    LeaderElectionConfiguration,
    PluginConfig,
    Plugins,
)

DEFAULT_SCHEDULER_NAME = "default-scheduler"
DEFAULT_QPS = 50.0
DEFAULT_BURST = 100


def set_defaults(
    given: KubeSchedulerConfiguration, catalog: PluginCatalog, gates: FeatureGates
) -> KubeSchedulerConfiguration:
    """The configuration with everything set but what has no default.

    `clientConnection.qps` and `burst` stay 0 when unset: here that means no limit, see `resolving.RateLimit`.
    """
    profiles = given.profiles or (KubeSchedulerProfile(),)
    if len(profiles) == 1 and profiles[0].scheduler_name is None:
        profiles = (msgspec.structs.replace(profiles[0], scheduler_name=DEFAULT_SCHEDULER_NAME),)
    contention = given.enable_contention_profiling
    return msgspec.structs.replace(
        given,
        leader_election=_leader_election(given.leader_election),
        client_connection=_client_connection(given.client_connection),
        enable_contention_profiling=given.enable_profiling if contention is None else contention,
        profiles=tuple(_profile(profile, catalog, gates) for profile in profiles),
    )


def _leader_election(given: LeaderElectionConfiguration) -> LeaderElectionConfiguration:
    return LeaderElectionConfiguration(
        leader_elect=given.leader_elect,
        lease_duration=given.lease_duration or Duration.parse("15s"),
        renew_deadline=given.renew_deadline or Duration.parse("10s"),
        retry_period=given.retry_period or Duration.parse("2s"),
        resource_lock=given.resource_lock or "leases",
        resource_name=given.resource_name or "kube-scheduler",
        resource_namespace=given.resource_namespace or "kube-system",
    )


def _client_connection(given: ClientConnectionConfiguration) -> ClientConnectionConfiguration:
    return msgspec.structs.replace(given, content_type=given.content_type or MEDIA_TYPE)


def _profile(given: KubeSchedulerProfile, catalog: PluginCatalog, gates: FeatureGates) -> KubeSchedulerProfile:
    plugins = merge(default_plugins(gates), given.plugins)
    configured = {config.name for config in given.plugin_config}
    defaulted = tuple(_with_default_args(config, catalog, gates) for config in given.plugin_config)
    added = tuple(_default_args(sorted(set(enabled_names(plugins)) - configured), catalog, gates))
    return msgspec.structs.replace(given, plugins=plugins, plugin_config=defaulted + added)


def enabled_names(plugins: Plugins) -> Iterator[str]:
    """The names enabled at any point or through multiPoint, repeated as often as they are named."""
    for info in msgspec.structs.fields(Plugins):
        yield from (plugin.name for plugin in getattr(plugins, info.name).enabled)


def _with_default_args(config: PluginConfig, catalog: PluginCatalog, gates: FeatureGates) -> PluginConfig:
    entry = catalog.get(config.name)
    if entry is None or entry.args is None:
        return config
    return PluginConfig(config.name, entry.args.default(config.args, gates))


def _default_args(names: list[str], catalog: PluginCatalog, gates: FeatureGates) -> Iterator[PluginConfig]:
    for name in names:
        kind = catalog[name].args if name in catalog else None
        if kind is not None:
            yield PluginConfig(name, kind.default(kind.struct(), gates))
