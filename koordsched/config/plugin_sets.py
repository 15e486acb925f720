"""The plugins of a profile at every extension point: multiPoint spelled out (core spec 2.2, step 2).

Source: `pkg/scheduler/framework/runtime/framework.go`, updatePluginList, expandMultiPointPlugins, getScoreWeights.
"""

from typing import TypeAlias

import msgspec

from koordsched.config.catalog import PluginCatalog
from koordsched.config.default_plugins import ALL
from koordsched.config.errors import ConfigError
from koordsched.config.extension_points import ExtensionPoint
from koordsched.config.wire import Plugins, PluginSet

Names: TypeAlias = tuple[str, ...]
WeightedNames: TypeAlias = tuple[tuple[str, int], ...]

_WEIGHTED = (ExtensionPoint.SCORE, ExtensionPoint.PLACEMENT_SCORE)
_MAX_NODE_SCORE = 100
_MAX_TOTAL_SCORE = (1 << 63) - 1


class PluginSets(msgspec.Struct, frozen=True, kw_only=True):
    """Plugin names in the order they run; scoring plugins with their weights."""

    pre_enqueue: Names = ()
    queue_sort: Names = ()
    pre_filter: Names = ()
    filter: Names = ()
    post_filter: Names = ()
    pre_score: Names = ()
    score: WeightedNames = ()
    reserve: Names = ()
    permit: Names = ()
    pre_bind: Names = ()
    bind: Names = ()
    post_bind: Names = ()
    placement_generate: Names = ()
    placement_score: WeightedNames = ()

    def at(self, point: ExtensionPoint) -> Names:
        """The names at a point, without weights."""
        listed = getattr(self, point.attribute)
        return tuple(name for name, _ in listed) if point in _WEIGHTED else listed

    def points(self) -> dict[str, Names]:
        """Extension point, by its name in the file -> plugin names in order."""
        return {point.value: self.at(point) for point in ExtensionPoint}

    def score_weights(self) -> dict[str, int]:
        """Score plugin -> weight."""
        return dict(self.score)

    def names(self) -> frozenset[str]:
        """Every plugin that runs somewhere."""
        return frozenset(name for point in ExtensionPoint for name in self.at(point))


def expand(plugins: Plugins, scheduler_name: str, catalog: PluginCatalog) -> PluginSets:
    """Raises ConfigError for unknown, unsuitable or repeated plugins, and for profiles that cannot work."""
    points = list(ExtensionPoint)
    for point in points:
        _check_listed(point, _set_of(plugins, point), catalog)
    names = {point: _expand_point(point, plugins, catalog) for point in points}
    sorters = len(names[ExtensionPoint.QUEUE_SORT])
    if sorters != 1:
        profile = f'profile with scheduler name "{scheduler_name}"'
        raise ConfigError(f"only one queue sort plugin required for {profile}, but got {sorters}")
    if not names[ExtensionPoint.BIND]:
        raise ConfigError(f'at least one bind plugin is needed for profile with scheduler name "{scheduler_name}"')
    listed: dict[str, Names | WeightedNames] = {point.attribute: names[point] for point in points}
    for point in _WEIGHTED:
        weights = _weights(point, plugins, catalog)
        listed[point.attribute] = tuple((name, weights[name]) for name in names[point])
    return msgspec.convert(listed, PluginSets)


def _set_of(plugins: Plugins, point: ExtensionPoint) -> PluginSet:
    found: PluginSet = getattr(plugins, point.attribute)
    return found


def _check_listed(point: ExtensionPoint, plugins: PluginSet, catalog: PluginCatalog) -> None:
    seen: set[str] = set()
    for plugin in plugins.enabled:
        if plugin.name not in catalog:
            raise ConfigError(f'{point.interface} "{plugin.name}" does not exist{catalog.guess(plugin.name)}')
        if point not in catalog[plugin.name].points:
            raise ConfigError(f'plugin "{plugin.name}" does not extend {point.interface} plugin')
        if plugin.name in seen:
            raise ConfigError(f'plugin "{plugin.name}" already registered as "{point.interface}"')
        seen.add(plugin.name)


def _expand_point(point: ExtensionPoint, plugins: Plugins, catalog: PluginCatalog) -> Names:
    own = _set_of(plugins, point)
    listed = tuple(plugin.name for plugin in own.enabled)
    disabled = {plugin.name for plugin in own.disabled}
    if ALL in disabled or not plugins.multi_point.enabled:
        return listed
    overriding: set[str] = set()
    expanded: dict[str, None] = {}
    for name in (plugin.name for plugin in plugins.multi_point.enabled):
        if name not in catalog:
            raise ConfigError(f'{point.interface} "{name}" does not exist{catalog.guess(name)}')
        if point not in catalog[name].points or name in disabled:
            continue
        if name in listed:
            overriding.add(name)
        elif name in expanded:
            raise ConfigError(f'plugin "{name}" already registered as "{point.interface}"')
        else:
            expanded[name] = None
    first = tuple(name for name in listed if name in overriding)
    last = tuple(name for name in listed if name not in overriding)
    return (*first, *expanded, *last)


def _weights(point: ExtensionPoint, plugins: Plugins, catalog: PluginCatalog) -> dict[str, int]:
    """Weights by name: the point's own entry before multiPoint's, 0 counts as 1."""
    weights: dict[str, int] = {}
    for plugin in (*_set_of(plugins, point).enabled, *plugins.multi_point.enabled):
        if plugin.name in catalog and point in catalog[plugin.name].points:
            weights.setdefault(plugin.name, plugin.weight or 1)
    if sum(weights.values()) * _MAX_NODE_SCORE > _MAX_TOTAL_SCORE:
        raise ConfigError("total score of Score plugins could overflow")
    return weights
