"""KubeSchedulerConfiguration and plugin arguments: parse, default, validate, expand, show.

`load` reads a file, `resolve` expands its profiles for the scheduler, `dump` and `configz` show it, `warnings` says
what in it has no effect. Everything returned is immutable; everything wrong is a `ConfigError`.
"""

from koordsched.config.advice import unimplemented, warnings
from koordsched.config.catalog import IN_TREE, ArgsKind, PluginCatalog, PluginEntry, entry
from koordsched.config.dumping import configz, dump
from koordsched.config.duration import Duration
from koordsched.config.errors import ConfigError
from koordsched.config.extension_points import ExtensionPoint
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.loading import default_configuration, load
from koordsched.config.plugin_sets import PluginSets
from koordsched.config.resolving import Profile, RateLimit, Resolved, resolve
from koordsched.config.wire import KubeSchedulerConfiguration as Configuration

__all__ = [
    "IN_TREE",
    "ArgsKind",
    "ConfigError",
    "Configuration",
    "Duration",
    "ExtensionPoint",
    "FeatureGates",
    "PluginCatalog",
    "PluginEntry",
    "PluginSets",
    "Profile",
    "RateLimit",
    "Resolved",
    "configz",
    "default_configuration",
    "dump",
    "entry",
    "load",
    "resolve",
    "unimplemented",
    "warnings",
]
