"""Members that nothing tells apart: the filters say the same of them, so that one cycle serves for all."""

from __future__ import annotations

from collections.abc import Container, Hashable

from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.framework.handle import Handle
from koordsched.framework.interface import Plugin, PodFilter
from koordsched.queue.hints import ByKey, GroupBy, Scope


class _Distinctions:
    """Of one shape. `keys`: what plugins tell pods apart by; `silent`: filters that do not say by what, but skip some
    pods; `all`: every pod is a case of its own.
    """

    __slots__ = ("all", "keys", "silent")

    def __init__(self, keys: tuple[GroupBy[Pod], ...], silent: tuple[PodFilter, ...], *, all_apart: bool) -> None:
        self.keys = keys
        self.silent = silent
        self.all = all_apart


class Alike:
    """Compares pods for the plugins of one profile, by what these say in the hints that they register."""

    def __init__(self, handle: Handle, without: Container[str]) -> None:
        """`without`: names of plugins that do not count."""
        self._handle = handle
        self._without = without
        self._of_plugin: dict[str, tuple[GroupBy[Pod], ...] | None] = {}

    def key(self, pod: Pod) -> Hashable:
        """Equal for pods that are alike."""
        distinctions = pod.shape.compiled(self, self._compile)
        alone = distinctions.all or not all(plugin.skips(pod) for plugin in distinctions.silent)
        own = pod.uid if alone else tuple(group.key(pod) for group in distinctions.keys)
        return (pod.shape, pod.namespace, pod.labels, pod.deleting, pod.requests, own)

    def _compile(self, shape: PodShape) -> _Distinctions:
        keys: dict[GroupBy[Pod], None] = {}
        silent: list[PodFilter] = []
        all_apart = False
        for plugin in self._handle.filtering.looking_at_pods(shape):
            if plugin.name in self._without:
                continue
            groups = self._groups(plugin)
            if groups:
                keys.update(dict.fromkeys(groups))
            elif isinstance(plugin, PodFilter):
                silent.append(plugin)
            else:
                all_apart = True
        return _Distinctions(tuple(keys), tuple(silent), all_apart=all_apart)

    def _groups(self, plugin: Plugin) -> tuple[GroupBy[Pod], ...]:
        """What tells pods of one shape apart for a plugin; () if that is not said."""
        found = self._of_plugin.get(plugin.name)
        if found is None:
            scopes = [registration.scope for registration in plugin.events_to_register() or ()]
            found = tuple(dict.fromkeys(scope for scope in scopes if isinstance(scope, GroupBy)))
            if any(isinstance(scope, ByKey) or scope is Scope.POD for scope in scopes):
                found = ()
            self._of_plugin[plugin.name] = found
        return found
