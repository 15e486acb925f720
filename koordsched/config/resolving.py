"""From a valid configuration to what the scheduler runs with: plugins per extension point, typed arguments."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from koordsched.config.catalog import IN_TREE, PluginCatalog
from koordsched.config.contenttypes import JSON, accept_header
from koordsched.config.defaults import DEFAULT_BURST, DEFAULT_QPS
from koordsched.config.errors import ConfigError, aggregate
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.plugin_sets import PluginSets, expand
from koordsched.config.wire import (
    ClientConnectionConfiguration,
    Extender,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    LeaderElectionConfiguration,
)

_JITTER = 1.2


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A token bucket for API requests: `qps` tokens per second, at most `burst` saved up."""

    qps: float
    burst: int


@dataclass(frozen=True, slots=True)
class Profile:
    """A scheduler name and what runs for its pods. `args` holds the arguments of every plugin that has some."""

    scheduler_name: str
    plugins: PluginSets
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Resolved:
    """The configuration in the form the scheduler uses; `source` is the one it came from.

    `rate_limit` is None unless the file sets `clientConnection.qps` or `burst`: then requests are not limited on our
    side. Back-off times in seconds.
    """

    source: KubeSchedulerConfiguration
    profiles: tuple[Profile, ...]
    extenders: tuple[Extender, ...]
    leader_election: LeaderElectionConfiguration
    kubeconfig: str
    rate_limit: RateLimit | None
    pod_initial_backoff: float
    pod_max_backoff: float
    enable_profiling: bool
    delay_cache_until_active: bool
    accept: str = JSON
    """The Accept header of lists and watches of built-in kinds."""
    features: frozenset[str] = frozenset()
    """The feature gates that are on."""


def resolve(
    configuration: KubeSchedulerConfiguration,
    *,
    catalog: PluginCatalog = IN_TREE,
    gates: FeatureGates | None = None,
) -> Resolved:
    """Expand the profiles of a loaded configuration.

    Raises ConfigError with upstream's start-up text (`initializing profiles: ...`).
    """
    gates = gates or FeatureGates.defaults()
    profiles: list[Profile] = []
    for given in configuration.profiles:
        profile = _profile(given, catalog, gates)
        if profiles:
            _check_same_queue_sort(profile, profiles[0])
        profiles.append(profile)
    election = configuration.leader_election
    if election.leader_elect and election.renew_deadline <= election.retry_period * _JITTER:
        raise ConfigError("couldn't create leader elector: renewDeadline must be greater than retryPeriod*JitterFactor")
    return Resolved(
        source=configuration,
        profiles=tuple(profiles),
        extenders=configuration.extenders,
        leader_election=election,
        kubeconfig=configuration.client_connection.kubeconfig,
        rate_limit=_rate_limit(configuration.client_connection),
        accept=accept_header(configuration.client_connection),
        pod_initial_backoff=float(configuration.pod_initial_backoff_seconds),
        pod_max_backoff=float(configuration.pod_max_backoff_seconds),
        enable_profiling=configuration.enable_profiling,
        delay_cache_until_active=configuration.delay_cache_until_active,
        features=frozenset(name for name, enabled in gates.items() if enabled),
    )


def _profile(given: KubeSchedulerProfile, catalog: PluginCatalog, gates: FeatureGates) -> Profile:
    name = given.scheduler_name or ""
    args = {config.name: config.args for config in given.plugin_config if config.args is not None}
    try:
        plugins = expand(given.plugins, name, catalog)
        for plugin in sorted(plugins.names()):
            _check_constructor(plugin, args.get(plugin), catalog, gates)
    except ConfigError as error:
        prefix = f"initializing profiles: creating profile for scheduler name {name}: "
        raise ConfigError(f"{prefix}{error}") from error
    return Profile(name, plugins, MappingProxyType(args))


def _check_constructor(plugin: str, args: Any, catalog: PluginCatalog, gates: FeatureGates) -> None:
    kind = catalog[plugin].args
    if kind is None or not kind.by_constructor:
        return
    if complaints := kind.validate(args, "", gates):
        raise ConfigError(f'initializing plugin "{plugin}": {aggregate(complaints)}')


def _check_same_queue_sort(profile: Profile, first: Profile) -> None:
    """There is one queue, hence one order, for all profiles (`pkg/scheduler/profile/profile.go`)."""
    ours, theirs = profile.plugins.queue_sort[0], first.plugins.queue_sort[0]
    if ours != theirs:
        raise ConfigError(
            "initializing profiles: different queue sort plugins for profile "
            f'"{profile.scheduler_name}": "{ours}", first: "{theirs}"'
        )
    if profile.args.get(ours) != first.args.get(ours):
        raise ConfigError(
            f'initializing profiles: different queue sort plugin args for profile "{profile.scheduler_name}"'
        )


def _rate_limit(connection: ClientConnectionConfiguration) -> RateLimit | None:
    """A negative qps switches limiting off, as in client-go."""
    if connection.qps < 0 or (not connection.qps and not connection.burst):
        return None
    return RateLimit(connection.qps or DEFAULT_QPS, connection.burst or DEFAULT_BURST)
