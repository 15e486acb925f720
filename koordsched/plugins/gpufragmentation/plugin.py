"""The plugin: a score, and which GPU of a node a pod gets."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from koordsched.cluster.changelog import Facet
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.shape import PodShape
from koordsched.framework.handle import Handle
from koordsched.framework.interface import Normalization, Scores, ShapeScore
from koordsched.plugins.gpufragmentation.args import GPUFragmentationArgs
from koordsched.plugins.gpufragmentation.books import ValueBooks
from koordsched.plugins.gpufragmentation.policy import gains, order
from koordsched.plugins.gpufragmentation.worth import WHOLE
from koordsched.plugins.shared.devices.preference import GPUPreferences

SCALE = 0.25
"""GPUs that a node loses more than the best one; its score is lower by the factor e then."""

_LEAST, _MOST = -6.0, 3.0
"""Gains outside are all the same, so that scores stay below 2^63."""

_STEPS = 1 << 20
"""In a GPU: gains that differ by less are equal, as those of nodes in the same state are to be."""

_ONE = 1 << 38


class GPUFragmentation(ShapeScore):
    """Prefers nodes that lose least of what their free GPUs are worth."""

    name = "GPUFragmentation"
    normalization = Normalization.MAX

    def __init__(self, args: GPUFragmentationArgs | None, handle: Handle) -> None:
        """The arguments must be valid."""
        after = (args or GPUFragmentationArgs()).refresh_after
        cluster = handle.cluster
        self._books = cluster.shared(lambda state: ValueBooks(state, handle, after), key=ValueBooks)
        self.facets = self._books.facets | Facet.RESOURCES
        cluster.shared(GPUPreferences).by_profile[handle.profile] = self

    def epoch(self, shape: PodShape) -> Hashable:
        """Values that were worked out anew change every score."""
        return self._books.number

    def score_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Scores:
        """Such that the normalised scores say how much more than the best node others lose, see the constants."""
        books = self._books
        task = books.task(shape)
        gained = gains(books.values, books.fleet(rows), task) + task.number * task.share / WHOLE
        steps = np.rint(np.clip(gained, _LEAST, _MOST) * _STEPS)
        scores: Scores = np.rint(np.exp(steps / (_STEPS * SCALE)) * _ONE).astype(np.int64)
        return scores

    def preferred(self, shape: PodShape, row: int) -> Sequence[int]:
        """See GPUPreference."""
        books = self._books
        task = books.task(shape)._replace(cpu=0)  # which the node has given already
        fleet = books.fleet(slice(row, row + 1))
        fitting = fleet.gpus[0] >= task.share
        return [minor for minor in order(books.values, fleet, task).tolist() if fitting[minor]]
