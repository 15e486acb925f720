"""Which pods a profile cannot tell apart: those whose evaluation can only end in the same way.

The shape decides everything that plugins do by (shape, row). Plugins of the other family look at more of a pod: its
namespace and labels, its owner, its quota. What it is they say with `GroupBy` in the hints that they register, or with
`TellsPodsApart`. Where one that takes part in the evaluation of a shape tells pods apart by anything else (volumes, the
pod itself), or does not say by what, no two pods of that shape are equivalent pods.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable

from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.framework.interface import Plugin, PodFilter, PreFilter, TellsPodsApart
from koordsched.framework.profile import Profile
from koordsched.queue.hints import GroupBy, HintTable

_log = logging.getLogger(__name__)


class _Distinctions:
    """Of one shape. `telling`: plugins that are asked; `silent`: filters for which the pods are cases of their own,
    unless they skip them.
    """

    __slots__ = ("keys", "silent", "telling")

    def __init__(
        self, keys: tuple[GroupBy[Pod], ...], telling: tuple[TellsPodsApart, ...], silent: tuple[PodFilter, ...]
    ) -> None:
        self.keys = keys
        self.telling = telling
        self.silent = silent


class EquivalenceKeys:
    """The equivalent pod keys of one profile's pods."""

    def __init__(self, profile: Profile, hints: HintTable[Pod]) -> None:
        self._profile = profile
        self._hints = hints

    def of(self, pod: Pod) -> Hashable | None:
        """Equal for pods of one shape that are equivalent pods; None for a pod that has none, or for which a plugin
        fails."""
        try:
            distinctions = pod.shape.compiled(self, self._compile)
            if distinctions is None or not all(plugin.skips(pod) for plugin in distinctions.silent):
                return None
            told = tuple(plugin.identity(pod) for plugin in distinctions.telling)
            key = None if None in told else (*told, *(scope.key(pod) for scope in distinctions.keys))
            hash(key)
        except Exception:
            _log.exception("which pods are like pod %s is unknown: it is tried on its own", pod.title)
            return None
        return key

    def _compile(self, shape: PodShape) -> _Distinctions | None:
        keys: dict[GroupBy[Pod], None] = {}
        telling: dict[TellsPodsApart, None] = {}
        silent: list[PodFilter] = []
        plan = self._profile.evaluations.plan_of(shape)
        looking: dict[Plugin, None] = dict.fromkeys(step for _, step in plan.pre_filters if isinstance(step, PreFilter))
        looking.update(dict.fromkeys(plugin for _, plugin in plan.pod_filters))
        for plugin in looking:
            if isinstance(plugin, TellsPodsApart):
                telling[plugin] = None
                continue
            scopes = self._hints.distinctions(plugin.name)
            if scopes:
                keys.update(dict.fromkeys(scopes))
            elif isinstance(plugin, PodFilter):
                silent.append(plugin)
            else:
                return None
        hooks = (*self._profile.before_pre_filter_plugins, *self._profile.after_post_filter_plugins)
        acting = [plugin for plugin in self._profile.post_filters if not plugin.treats_alike(shape)]
        for plugin in (*acting, *hooks):
            if isinstance(plugin, TellsPodsApart):
                telling[plugin] = None
                continue
            scopes = self._hints.distinctions(plugin.name)
            if scopes is None:
                return None
            keys.update(dict.fromkeys(scopes))
        return _Distinctions(tuple(keys), tuple(telling), tuple(silent))
