"""Plugins that other distributions bring: entry points of the group `koordsched.plugins`, each a `Declaration`.

One that cannot be used is still in the catalog, and fails with the reason when a profile enables it; other profiles are
not affected.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Collection
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from koordsched.config.catalog import PluginEntry
from koordsched.config.extension_points import ExtensionPoint
from koordsched.framework.declaration import API_VERSION, Declaration
from koordsched.framework.handle import Handle
from koordsched.framework.interface import Plugin

_log = logging.getLogger(__name__)

GROUP = "koordsched.plugins"


def declarations(built_in: Collection[str]) -> tuple[Declaration, ...]:
    """Those that are installed, by name. One with the name of a built-in plugin is left out, with a warning."""
    points = sorted(entry_points(group=GROUP), key=lambda point: (point.name, _source(point)))
    count = Counter(point.name for point in points)
    found: dict[str, Declaration] = {}
    for point in points:
        if point.name in built_in:
            _log.warning("plugin %s of %s is ignored: there is a built-in one of this name", point.name, _source(point))
        elif count[point.name] > 1:
            sources = " and ".join(_source(other) for other in points if other.name == point.name)
            found[point.name] = _unusable(point.name, f"several distributions have it: {sources}")
        else:
            found[point.name] = _declaration(point)
    return tuple(found.values())


def _declaration(point: EntryPoint) -> Declaration:
    source = _source(point)
    spec = getattr(sys.modules.get(point.module), "__spec__", None)
    if getattr(spec, "_initializing", False):
        return _unusable(point.name, f"{point.module} was imported before koordsched.plugins; import that first")
    try:
        loaded = point.load()
    except Exception as error:  # it is not our code: it may raise anything
        return _unusable(point.name, f"{source} cannot be loaded: {type(error).__name__}: {error}")
    if not isinstance(loaded, Declaration):
        return _unusable(point.name, f"{point.value} of {source} is not a Declaration")
    if loaded.api_version is None:
        return _unusable(point.name, f"{source} does not say for which version of the plugin interface it is written")
    if loaded.api_version != API_VERSION:
        versions = (
            f"version {loaded.api_version} of the plugin interface, and this koordsched has version {API_VERSION}"
        )
        return _unusable(point.name, f"{source} is written for {versions}")
    if loaded.name != point.name:
        return _unusable(point.name, f"{source} declares it as {loaded.name}")
    return loaded


def _source(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value


def _unusable(name: str, reason: str) -> Declaration:
    """Accepts any arguments, and fails with the reason."""

    def factory(args: Any, handle: Handle) -> Plugin:
        raise ValueError(f"it cannot be used: {reason}")

    # Not at queueSort, where there can be one plugin only.
    points = frozenset(ExtensionPoint) - {ExtensionPoint.QUEUE_SORT}
    return Declaration(name, factory, PluginEntry(points, any_args=True), api_version=API_VERSION)
