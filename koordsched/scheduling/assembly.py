"""From a resolved configuration to running profiles: the same for the daemon, for simulate and for explain."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.config.extension_points import ExtensionPoint
from koordsched.config.resolving import Profile as ProfileConfig
from koordsched.config.resolving import Resolved
from koordsched.framework.handle import Clock, Handle, Writes
from koordsched.framework.nominations import Nominations
from koordsched.framework.profile import PluginFactory, Profile, ProfileSpec
from koordsched.framework.status import ReasonTable


def profile_spec(config: ProfileConfig) -> ProfileSpec:
    """The framework's view of a resolved profile."""
    plugins = config.plugins
    return ProfileSpec(
        name=config.scheduler_name,
        points={point.value: plugins.at(point) for point in ExtensionPoint},
        weights=dict(plugins.score),
        args=config.args,
    )


def build_profiles(
    resolved: Resolved,
    registry: Mapping[str, PluginFactory],
    *,
    cluster: ClusterState,
    nominations: Nominations,
    writes: Writes,
    clock: Clock,
    rng: Random,
) -> dict[str, Profile]:
    """All profiles by scheduler name. Raises ProfileError."""
    reasons = ReasonTable()
    profiles: dict[str, Profile] = {}
    for config in resolved.profiles:
        handle = Handle(config.scheduler_name, cluster, reasons, writes, clock, rng)
        profiles[config.scheduler_name] = Profile(profile_spec(config), registry, handle, nominations)
    return profiles


class NoNominations:
    """For evaluations of a state in which nothing is promised to anybody."""

    def nodes_nominated_at_least(self, priority: int) -> tuple[str, ...]:
        """None."""
        return ()

    def nominated_on(self, node: str, priority: int | None = None) -> tuple[Pod, ...]:
        """Nobody."""
        return ()
