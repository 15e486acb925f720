"""The plugin: keeps pods off nodes with scarce resources that they do not request (loadaware spec B)."""

from __future__ import annotations

from weakref import WeakValueDictionary

import numpy as np

from koordsched.cluster.changelog import Facet
from koordsched.cluster.columns import ValueColumn
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.shape import PodShape
from koordsched.framework.handle import Handle
from koordsched.framework.interface import MAX_SCORE, Scores, ShapeScore
from koordsched.plugins.scarceresourceavoidance.args import ScarceResourceAvoidanceArgs
from koordsched.plugins.scarceresourceavoidance.offered import OfferedResources
from koordsched.plugins.shared.matching.lookup import ColumnLookup
from koordsched.plugins.shared.matching.rows import single


class _Scores:
    """The score of every distinct set of offered resources for pods that request these."""

    __slots__ = ("__weakref__", "by_set")

    def __init__(self, requested: frozenset[str], scarce: frozenset[str], offered: ValueColumn[frozenset[str]]) -> None:
        self.by_set = ColumnLookup(offered, lambda names: _score(names - requested, scarce), np.int64)


def _score(unused: frozenset[str], scarce: frozenset[str]) -> int:
    hit = len(unused & scarce)
    return (len(unused) - hit) * MAX_SCORE // len(unused) if hit else MAX_SCORE


class ScarceResourceAvoidance(ShapeScore):
    """The share, of the resources that a node has and the pod does not request, that are not scarce; 100 without."""

    name = "ScarceResourceAvoidance"
    facets = int(Facet.RESOURCES)
    needs_pre_score = True

    def __init__(self, args: ScarceResourceAvoidanceArgs | None, handle: Handle) -> None:
        """`args`: None for no scarce resources."""
        self._scarce = frozenset(args.resources if args is not None else ())
        self._names = handle.cluster.table.resource_names
        self._offered = handle.cluster.shared(OfferedResources).sets
        self._by_requested: WeakValueDictionary[frozenset[str], _Scores] = WeakValueDictionary()

    def _compile(self, shape: PodShape) -> _Scores:
        """Most shapes request the same few resources."""
        requested = frozenset(self._names.names[index] for index, _ in shape.requests.amounts)
        found = self._by_requested.get(requested)
        if found is None:
            found = self._by_requested[requested] = _Scores(requested, self._scarce, self._offered)
        return found

    def score_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Scores:
        """0..100."""
        lookup = shape.compiled(self, self._compile).by_set
        lookup.refresh()
        if lookup.lowest == lookup.highest:
            return lookup.lowest
        sets = self._offered.ids.data
        row = single(rows)
        if row >= 0:
            return int(lookup.verdicts[sets[row]])
        return lookup.verdicts.take(sets[rows])
