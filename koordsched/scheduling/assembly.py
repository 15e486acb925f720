"""From a resolved configuration to running profiles: the same for the daemon, for simulate and for explain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from koordsched.config.resolving import Profile as ProfileConfig
from koordsched.config.resolving import Resolved
from koordsched.framework.handle import Handle
from koordsched.framework.profile import PluginFactory, Profile, ProfileSpec


def profile_spec(config: ProfileConfig) -> ProfileSpec:
    """The framework's view of a resolved profile."""
    plugins = config.plugins
    return ProfileSpec(
        name=config.scheduler_name,
        points=plugins.points(),
        weights=plugins.score_weights(),
        args=config.args,
    )


def build_profiles(resolved: Resolved, registry: Mapping[str, PluginFactory], offered: Handle) -> dict[str, Profile]:
    """All profiles by scheduler name. `offered`: what all their plugins are given. Raises ProfileError."""
    profiles: dict[str, Profile] = {}
    for config in resolved.profiles:
        name = config.scheduler_name
        handle = replace(
            offered, profile=name, features=resolved.features, topology_hint_providers=[], reserved_allocations=[]
        )
        profiles[name] = Profile(profile_spec(config), registry, handle)
    return profiles
