"""From a resolved configuration to running profiles: the same for the daemon, for simulate and for explain."""

from __future__ import annotations

from collections.abc import Container, Mapping
from random import Random

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.config.resolving import Profile as ProfileConfig
from koordsched.config.resolving import Resolved
from koordsched.framework.handle import Clock, Count, Evictions, Handle, Writes, uncounted
from koordsched.framework.nominations import Nominations
from koordsched.framework.profile import PluginFactory, Profile, ProfileSpec
from koordsched.framework.status import ReasonTable


def profile_spec(config: ProfileConfig) -> ProfileSpec:
    """The framework's view of a resolved profile."""
    plugins = config.plugins
    return ProfileSpec(
        name=config.scheduler_name,
        points=plugins.points(),
        weights=plugins.score_weights(),
        args=config.args,
    )


def build_profiles(
    resolved: Resolved,
    registry: Mapping[str, PluginFactory],
    *,
    cluster: ClusterState,
    nominations: Nominations,
    writes: Writes,
    evictions: Evictions,
    clock: Clock,
    rng: Random,
    own_replicas: Container[Pod] = (),
    count: Count = uncounted,
) -> dict[str, Profile]:
    """All profiles by scheduler name. Raises ProfileError."""
    reasons = ReasonTable()
    profiles: dict[str, Profile] = {}
    for config in resolved.profiles:
        handle = Handle(
            profile=config.scheduler_name,
            cluster=cluster,
            reasons=reasons,
            writes=writes,
            evictions=evictions,
            nominations=nominations,
            clock=clock,
            rng=rng,
            features=resolved.features,
            own_replicas=own_replicas,
            count=count,
        )
        profiles[config.scheduler_name] = Profile(profile_spec(config), registry, handle)
    return profiles
