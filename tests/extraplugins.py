"""Configurations with plugins that a test brings."""

import json

from koordsched import config
from koordsched.config import catalog
from koordsched.config.extension_points import ExtensionPoint
from koordsched.framework import interface
from koordsched.plugins import CATALOG, IN_TREE

_KINDS = {
    ExtensionPoint.PRE_ENQUEUE: (interface.PreEnqueue,),
    ExtensionPoint.PRE_FILTER: (interface.PreFilter, interface.ShapePreFilter),
    ExtensionPoint.FILTER: (interface.PodFilter, interface.ShapeFilter),
    ExtensionPoint.POST_FILTER: (interface.PostFilter,),
    ExtensionPoint.SCORE: (interface.PodScore, interface.ShapeScore),
    ExtensionPoint.RESERVE: (interface.Reserve,),
    ExtensionPoint.PERMIT: (interface.Permit,),
    ExtensionPoint.PRE_BIND: (interface.PreBind,),
    ExtensionPoint.BIND: (interface.Bind,),
    ExtensionPoint.POST_BIND: (interface.PostBind,),
}


def catalog_with(plugins):
    """The catalog with more plugin classes, each at all the points that it extends."""
    return CATALOG.extended(
        {
            plugin.name: catalog.PluginEntry(
                frozenset(point for point, kinds in _KINDS.items() if issubclass(plugin, kinds))
            )
            for plugin in plugins
        }
    )


def registry_with(plugins):
    """The registry with them."""
    return {**IN_TREE, **{plugin.name: plugin for plugin in plugins}}


def resolved_with(configuration, plugins, gates=None):
    """The configuration, with the plugins enabled in its only profile."""
    if plugins:
        enabled = {"multiPoint": {"enabled": [{"name": plugin.name} for plugin in plugins]}}
        (profile,) = configuration.get("profiles") or [{}]
        profile = {**profile, "plugins": {**profile.get("plugins", {}), **enabled}}
        configuration = {**configuration, "profiles": [profile]}
    known = catalog_with(plugins)
    features = config.FeatureGates.parse(gates or ())
    return config.resolve(
        config.load(json.dumps(configuration), catalog=known, gates=features), catalog=known, gates=features
    )
