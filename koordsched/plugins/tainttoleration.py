"""TaintToleration: taints that exclude pods from nodes, and taints that make a node less preferred (default-plugins
spec 3.3).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from itertools import islice
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from koordsched.api.core import Taint, Toleration
from koordsched.cluster.changelog import Facet
from koordsched.cluster.columns import ValueColumn
from koordsched.cluster.events import NODE, POD, ActionType, ClusterEvent
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.framework.handle import Handle
from koordsched.framework.interface import Normalization, Scores, ShapeFilter, ShapeScore
from koordsched.framework.status import Code, Codes
from koordsched.plugins.shared.matching.lookup import ColumnLookup
from koordsched.plugins.shared.matching.rows import refused, refused_row, single
from koordsched.plugins.shared.matching.tolerations import (
    NO_EXECUTE,
    NO_SCHEDULE,
    Tolerations,
    tolerated_by,
    tolerations_of,
)
from koordsched.queue.groupindex import KeyedGroups
from koordsched.queue.hints import HintRegistration, QueueingHint, Scope

_LOOKED_AT = 16
"""Taints of a node by which those are looked for who tolerate them all."""

REASON = "node(s) had untolerated taint(s)"


class _Judgements:
    """The verdict of some tolerations on every distinct set of taints."""

    __slots__ = ("__weakref__", "refuses", "unwelcome")

    def __init__(self, tolerations: Tolerations, sets: ValueColumn[tuple[Taint, ...]]) -> None:
        self.refuses = ColumnLookup(sets, tolerations.turned_away, np.bool_)
        self.unwelcome = ColumnLookup(sets, tolerations.count_unwelcome, np.int64)


class TaintToleration(ShapeFilter, ShapeScore):
    """Refuses nodes with untolerated NoSchedule or NoExecute taints; counts untolerated PreferNoSchedule taints."""

    name = "TaintToleration"
    facets = int(Facet.TAINTS)
    normalization = Normalization.MAX_REVERSED

    def __init__(self, args: None, handle: Handle) -> None:
        """Takes no arguments."""
        self._taints = handle.cluster.table.taints
        self._code = handle.reasons.intern(self.name, Code.UNRESOLVABLE, REASON)
        self._by_tolerations: WeakValueDictionary[tuple[Toleration, ...], _Judgements] = WeakValueDictionary()

    def _judgements(self, shape: PodShape) -> _Judgements:
        """Most shapes have the same few tolerations."""
        tolerations = shape.spec.tolerations
        found = self._by_tolerations.get(tolerations)
        if found is None:
            found = self._by_tolerations[tolerations] = _Judgements(tolerations_of(shape), self._taints)
        return found

    def filter_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Codes | None:
        """Refuses by the node's set of taints."""
        lookup = shape.compiled(self, self._judgements).refuses
        lookup.refresh()
        if not lookup.highest:
            return None
        row = single(rows)
        if row >= 0:
            return refused_row(self._code) if lookup.verdicts[table.taint_set.data[row]] else None
        return refused(lookup.verdicts.take(table.taint_set.data[rows]), self._code)

    def score_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Scores:
        """The number of untolerated PreferNoSchedule taints; normalised so that fewer is better."""
        lookup = shape.compiled(self, self._judgements).unwelcome
        lookup.refresh()
        if lookup.lowest == lookup.highest:
            return lookup.lowest
        row = single(rows)
        if row >= 0:
            return int(lookup.verdicts[table.taint_set.data[row]])
        return lookup.verdicts.take(table.taint_set.data[rows])

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Nodes whose taints become tolerated, and the pod's own tolerations."""
        return [
            HintRegistration(
                self.name,
                ClusterEvent(NODE, ActionType.ADD | ActionType.UPDATE_NODE_TAINT),
                _after_node_change,
                Scope.SHAPE,
                index=KeyedGroups(_needs, _offers),
            ),
            HintRegistration(
                self.name, ClusterEvent(POD, ActionType.UPDATE_POD_TOLERATION), _after_pod_change, Scope.OWN_POD
            ),
        ]


def _needs(pod: Pod) -> Iterator[list[Collection[Hashable]]]:
    return ([(toleration,)] for toleration in sorted(tolerations_of(pod.shape).listed))


def _offers(old: Any, new: Any) -> list[Collection[Hashable]] | None:
    """For taints that keep pods out the tolerations of which one is needed; None if there is no such taint."""
    taints = new.spec.taints if new is not None else ()
    refusing = (taint for taint in taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE))
    return [[*tolerated_by(taint)] for taint in islice(refusing, _LOOKED_AT)] or None


def _after_node_change(pod: Pod, old: Any, new: Any) -> QueueingHint:
    tolerations = tolerations_of(pod.shape)
    was_refused = old is None or tolerations.turned_away(old.spec.taints)
    if new is None or not was_refused or tolerations.turned_away(new.spec.taints):
        return QueueingHint.SKIP
    return QueueingHint.QUEUE


def _after_pod_change(pod: Pod, old: Any, new: Any) -> QueueingHint:
    return QueueingHint.QUEUE if new is not None and new.uid == pod.uid else QueueingHint.SKIP
