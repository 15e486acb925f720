"""plugin_execution_duration_seconds: how long the calls of plugins take, measured in a tenth of the cycles.

Upstream times a plugin's call for a node. Here a call covers many nodes, and there is none where verdicts are kept. For
a sampled cycle each plugin's methods are covered by ones that measure the call; the other cycles know nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from koordsched.framework.interface import (
    Permit,
    Plugin,
    PodFilter,
    PodScore,
    PostFilter,
    PostFilterResult,
    PreFilter,
    Reserve,
    ShapeFilter,
    ShapePreFilter,
    ShapeScore,
)
from koordsched.framework.profile import Profile
from koordsched.framework.status import Code, ReasonTable, Status
from koordsched.observability.metrics import Metrics

EVERY = 10
"""One cycle in so many is sampled."""

_FILTER = "Filter"

_POINTS: tuple[tuple[type[Plugin], str, str], ...] = (
    (PreFilter, "pre_filter", "PreFilter"),
    (ShapePreFilter, "pre_filter_shape", "PreFilter"),
    (PodFilter, "filter", _FILTER),
    (ShapeFilter, "filter_rows", _FILTER),
    (PostFilter, "post_filter", "PostFilter"),
    (PodScore, "pre_score", "PreScore"),
    (PodScore, "score", "Score"),
    (ShapeScore, "score_rows", "Score"),
    (Reserve, "reserve", "Reserve"),
    (Reserve, "unreserve", "Unreserve"),
    (Permit, "permit", "Permit"),
)
"""The methods of a scheduling cycle and their extension points."""

_Timed = tuple[Plugin, str, Callable[..., Any]]
"""A plugin, one of its methods, and what measures it."""


class PluginSampling:
    """Decides which cycles are sampled, and measures them. `clock`: seconds fit for durations."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._cycles = 0
        self._timed: dict[str, list[_Timed]] = {}
        self._sampled: list[_Timed] = []

    def begin(self, profile: Profile) -> None:
        """A cycle begins. It must come to its `end` before anything is awaited."""
        self._cycles += 1
        if self._cycles % EVERY == 0:
            if profile.name not in self._timed:
                self._timed[profile.name] = self._all_of(profile)
            self._sampled = self._timed[profile.name]
            for plugin, method, timed in self._sampled:
                setattr(plugin, method, timed)

    def end(self) -> None:
        """The cycle is over."""
        if self._sampled:
            for plugin, method, _ in self._sampled:
                delattr(plugin, method)
            self._sampled = []

    def _all_of(self, profile: Profile) -> list[_Timed]:
        reasons = profile.handle.reasons
        return [
            (plugin, method, self._measuring(getattr(plugin, method), plugin.name, point, reasons))
            for plugin in profile.plugins.values()
            for kind, method, point in _POINTS
            if isinstance(plugin, kind)
        ]

    def _measuring(self, call: Callable[..., Any], plugin: str, point: str, reasons: ReasonTable) -> Callable[..., Any]:
        clock, histogram = self._clock, self._metrics.plugin

        def timed(*args: Any) -> Any:
            started = clock()
            answer = call(*args)
            took = clock() - started
            code = _code_of_nodes(answer, reasons) if point is _FILTER else _code_of(answer)
            histogram(plugin, point, code.text).observe(took)
            return answer

        return timed


def _code_of_nodes(codes: np.ndarray[Any, Any] | None, reasons: ReasonTable) -> Code:
    """Success if one of the nodes passed, otherwise what the first was refused with."""
    return Code.SUCCESS if codes is None or not codes.all() or not len(codes) else reasons[codes.item(0)].code


def _code_of(answer: object) -> Code:
    if isinstance(answer, tuple):
        answer = answer[0]  # Permit's, with a time-out
    elif isinstance(answer, PostFilterResult):
        answer = answer.status
    return answer.code if isinstance(answer, Status) else Code.SUCCESS
