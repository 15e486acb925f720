"""From a resolved configuration to running profiles: the same for the daemon, for simulate and for explain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from koordsched.cluster.pod import Pod
from koordsched.config.resolving import Profile as ProfileConfig
from koordsched.config.resolving import Resolved
from koordsched.engine.hypothesis import Hypothesis
from koordsched.framework.handle import Handle
from koordsched.framework.profile import PluginFactory, Profile, ProfileSpec
from koordsched.queue.nominator import Nominator


def profile_spec(config: ProfileConfig) -> ProfileSpec:
    """The framework's view of a resolved profile."""
    plugins = config.plugins
    return ProfileSpec(
        name=config.scheduler_name,
        points=plugins.points(),
        weights=plugins.score_weights(),
        args=config.args,
        placement_weights=dict(plugins.placement_score),
    )


def build_profiles(
    resolved: Resolved, registry: Mapping[str, PluginFactory], offered: Handle, nominator: Nominator[Pod]
) -> dict[str, Profile]:
    """All profiles by scheduler name. `offered`: what all their plugins are given. Raises ProfileError."""
    profiles: dict[str, Profile] = {}
    for config in resolved.profiles:
        name = config.scheduler_name
        handle = replace(
            offered, profile=name, features=resolved.features, topology_hint_providers=[], reserved_allocations=[]
        )
        profile = profiles[name] = Profile(profile_spec(config), registry, handle)
        handle.hypothesis = partial(Hypothesis, profile, offered.cluster, nominator)
    return profiles
