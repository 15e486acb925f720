"""The plan of a shape: which plugins of a profile take part for pods of that shape.

Decided once per (profile, shape): what ShapePreFilter plugins answer, which filters and scores take part.
Plugins of the other family stay in the plan and are asked in every cycle.
"""

from __future__ import annotations

from functools import partial
from weakref import ref

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import ALL_FACETS, NodeTable, Rows
from koordsched.cluster.shape import PodShape
from koordsched.framework.interface import (
    CycleState,
    Plugin,
    PodFilter,
    PodScore,
    PreFilter,
    PreFilterResult,
    ShapeFilter,
    ShapePreFilter,
    ShapeScore,
    Timed,
)
from koordsched.framework.status import NO_NODE, PASS, Code, Codes, Status


class Chains:
    """A profile's plugins at the points that look for a node, in order; scores with their weights.

    `node_filters`, `pod_filters`: the filters of each family, with their positions in the whole chain; `node_scores`,
    `pod_scores` likewise, with their weights. Sorted out once: a plan is made for every new shape. `unprepared`: a
    score plugin that needs its PreScore and is not listed there, "" if there is none; `pre_scores`: names at PreScore.
    """

    __slots__ = (
        "filters",
        "node_filters",
        "node_scores",
        "pod_filters",
        "pod_scores",
        "pre_filters",
        "pre_scores",
        "scores",
        "unprepared",
    )

    def __init__(
        self,
        pre_filters: tuple[Plugin, ...],
        filters: tuple[Plugin, ...],
        scores: tuple[tuple[Plugin, int], ...],
        pre_scores: tuple[str, ...] = (),
    ) -> None:
        self.pre_filters = tuple(plugin for plugin in pre_filters if isinstance(plugin, PreFilter | ShapePreFilter))
        self.pre_scores = pre_scores
        self.filters = filters
        self.scores = scores
        self.node_filters = tuple(
            (position, plugin) for position, plugin in enumerate(filters) if isinstance(plugin, ShapeFilter)
        )
        self.pod_filters = tuple(
            (position, plugin) for position, plugin in enumerate(filters) if isinstance(plugin, PodFilter)
        )
        self.node_scores = tuple((plugin, weight) for plugin, weight in scores if isinstance(plugin, ShapeScore))
        self.pod_scores = tuple((plugin, weight) for plugin, weight in scores if isinstance(plugin, PodScore))
        needy = (plugin.name for plugin, _ in self.node_scores if plugin.needs_pre_score)
        self.unprepared = next((name for name in needy if name not in pre_scores), "")


PreFilterStep = tuple[str, PreFilter | PreFilterResult | Status]
"""A plugin's name with its answer where the shape decides it, otherwise with the plugin to ask."""


class ShapePlan:
    """What to run for pods of one shape. Positions are those in the profile's filter chain.

    `skipped`: plugins that say Skip to every pod of the shape; `skipping`: pod filters that may skip a pod without a
    PreFilter; `epoch_scores`: scores that may change by themselves; `unprepared` as in `Chains`.
    """

    def __init__(self, shape: PodShape, chains: Chains) -> None:
        self._shape = ref(shape)
        self.skipped: set[str] = set()
        steps: list[PreFilterStep] = []
        for plugin in chains.pre_filters:
            if isinstance(plugin, PreFilter):
                if plugin.skips_shape(shape):
                    self.skipped.add(plugin.name)
                else:
                    steps.append((plugin.name, plugin))
            else:
                answer = plugin.pre_filter_shape(shape)
                if isinstance(answer, Status) and answer.code is Code.SKIP:
                    self.skipped.add(plugin.name)
                elif not (isinstance(answer, Status) and answer.ok):
                    steps.append((plugin.name, answer))
        self.pre_filters = tuple(steps)
        self.node_filters = tuple(step for step in chains.node_filters if step[1].name not in self.skipped)
        self.pod_filters = tuple(step for step in chains.pod_filters if step[1].name not in self.skipped)
        self.skipping = tuple(each for _, each in self.pod_filters if type(each).skips is not PodFilter.skips)
        self._names = frozenset(plugin.name for _, plugin in self.pod_filters)
        self.node_scores = tuple(step for step in chains.node_scores if not step[0].skips(shape))
        self.pod_scores = tuple(step for step in chains.pod_scores if not step[0].abstains_from(shape))
        self.unprepared = chains.unprepared
        self.epoch_scores = tuple(
            plugin for plugin, _ in self.node_scores if type(plugin).epoch is not ShapeScore.epoch
        )

    @property
    def shape(self) -> PodShape:
        """The shape, which keeps the plan. The plan must not keep the shape: no cycle of what lives long is ever
        collected (`cli.daemon`)."""
        shape = self._shape()
        assert shape is not None, "a plan is used for pods of its shape"
        return shape

    def taking_part(self, cycle: CycleState) -> list[tuple[int, PodFilter]]:
        """The pod filters that PreFilter did not skip, with their positions in the chain."""
        if self._names <= cycle.skipped:
            return []  # the usual case
        return [step for step in self.pod_filters if step[1].name not in cycle.skipped]

    def asleep(self, cycle: CycleState) -> list[PreFilter]:
        """The filters that said SKIP in this cycle, but may not once other pods are there."""
        return [
            step
            for name, step in self.pre_filters
            if isinstance(step, PreFilter)
            and isinstance(step, PodFilter)
            and name in cycle.skipped
            and not step.skips(cycle.pod)
        ]

    def filter_nodes(self, table: NodeTable, rows: Rows, facets: int = ALL_FACETS, timed: Timed | None = None) -> Codes:
        """The verdict of the ShapeFilter chain on each row: the code of the first that rejects, or 0.

        Later plugins see survivors only. Plugins that read none of the facets are left out. `timed` measures the calls.
        """
        shape, alive = self.shape, table.alive.data[rows]
        survivors: RowArray | None = None  # positions in `codes`; None while all rows are asked
        if alive.all():
            codes = np.zeros(len(alive), dtype=np.int32)
        else:
            codes = np.where(alive, np.int32(PASS), np.int32(NO_NODE))
            survivors = np.flatnonzero(alive)
        for _, plugin in self.node_filters:
            if not plugin.facets & facets:
                continue
            asked = rows
            if survivors is not None:
                if not len(survivors):
                    break
                asked = survivors + rows.start if isinstance(rows, slice) else rows[survivors]
            if timed is None:
                verdicts = plugin.filter_rows(shape, table, asked)
            else:
                verdicts = timed(plugin.name, "Filter", partial(plugin.filter_rows, shape, table, asked))
            if verdicts is None:
                continue
            if survivors is None:
                codes = verdicts.astype(np.int32)
                survivors = np.flatnonzero(codes == 0)
            else:
                codes[survivors] = verdicts
                survivors = survivors[verdicts == 0]
        return codes
