"""NodeAffinity: nodeSelector, required and preferred node affinity (default-plugins spec 3.4)."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from koordsched.api.core import Node, NodeSelectorTerm, PreferredSchedulingTerm
from koordsched.api.core import NodeAffinity as WireNodeAffinity
from koordsched.cluster.changelog import Facet
from koordsched.cluster.events import NODE, ActionType, ClusterEvent
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.config.plugin_args import NodeAffinityArgs
from koordsched.framework.handle import Handle
from koordsched.framework.interface import (
    Normalization,
    PreFilterResult,
    Scores,
    ShapeFilter,
    ShapePreFilter,
    ShapeScore,
)
from koordsched.framework.status import SKIP, SUCCESS, Code, Codes, Status
from koordsched.plugins.shared.matching.labelkeys import needed, offered
from koordsched.plugins.shared.matching.nodeselector import NodeSelectors, NodeTerm, NodeTerms, RequiredNodes
from koordsched.plugins.shared.matching.rows import count_of, refused, refused_row, single
from koordsched.queue.groupindex import KeyedGroups
from koordsched.queue.hints import HintRegistration, QueueingHint, Scope

_NAME = "", "metadata.name"
"""Beside the keys of labels."""

REASON_POD = "node(s) didn't match Pod's node affinity/selector"
REASON_ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
REASON_CONFLICT = "pod affinity terms conflict"


class _Compiled:
    """One shape's selectors; `preferred` includes the preferences of the profile."""

    __slots__ = ("preferred", "required")

    def __init__(self, required: RequiredNodes, preferred: tuple[tuple[int, NodeTerm], ...]) -> None:
        self.required = required
        self.preferred = preferred


class NodeAffinity(ShapePreFilter, ShapeFilter, ShapeScore):
    """Refuses nodes that the pod, or the profile's addedAffinity, does not select; adds up preferences."""

    name = "NodeAffinity"
    facets = int(Facet.LABELS)
    normalization = Normalization.MAX

    def __init__(self, args: NodeAffinityArgs | None, handle: Handle) -> None:
        """The arguments must be valid."""
        added = args.added_affinity if args is not None else None
        self._selectors = NodeSelectors()
        self._enforced: NodeTerms | None = None
        self._added_preferences: tuple[tuple[int, NodeTerm], ...] = ()
        self._prefers_for_all = False
        if added is not None:
            if added.required is not None:
                self._enforced = self._selectors.terms(added.required)
            self._added_preferences = tuple(self._preferences(added.preferred))
            self._prefers_for_all = bool(added.preferred)
        self._code_pod = handle.reasons.intern(self.name, Code.UNRESOLVABLE, REASON_POD)
        self._code_enforced = handle.reasons.intern(self.name, Code.UNRESOLVABLE, REASON_ENFORCED)

    def _compile(self, shape: PodShape) -> _Compiled:
        affinity = _node_affinity(shape)
        preferred = affinity.preferred if affinity is not None else ()
        return _Compiled(
            self._selectors.required_by(shape.spec), (*self._preferences(preferred), *self._added_preferences)
        )

    def _preferences(self, preferred: Iterable[PreferredSchedulingTerm]) -> Iterable[tuple[int, NodeTerm]]:
        for preference in preferred:
            term = self._selectors.term(preference.preference)
            if preference.weight and term is not None:
                yield preference.weight, term

    # --- filter ----------------------------------------------------------------------------------

    def pre_filter_shape(self, shape: PodShape) -> PreFilterResult | Status:
        """SKIP without any requirement; the named nodes if every required term names nodes."""
        affinity = _node_affinity(shape)
        required = affinity.required if affinity is not None else None
        if required is None:
            return SUCCESS if shape.spec.node_selector or self._enforced is not None else SKIP
        if not required.node_selector_terms:
            return SUCCESS
        names: frozenset[str] = frozenset()
        for term in required.node_selector_terms:
            named = _named_nodes(term)
            if named is None:
                return SUCCESS
            names |= named
        return PreFilterResult(names) if names else Status(Code.UNRESOLVABLE, (REASON_CONFLICT,))

    def filter_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Codes | None:
        """First what the profile enforces, then what the pod asks for."""
        required = shape.compiled(self, self._compile).required
        row = single(rows)
        if row >= 0:
            if self._enforced is not None and not self._enforced.matches_row(table, row):
                return refused_row(self._code_enforced)
            return None if required.matches_row(table, row) else refused_row(self._code_pod)
        matched = required.mask(table, rows)
        if self._enforced is None:
            return refused(~matched, self._code_pod)
        allowed = self._enforced.mask(table, rows)
        if (allowed & matched).all():
            return None
        codes = ~matched * np.int32(self._code_pod)
        codes[~allowed] = self._code_enforced
        return codes

    # --- score -----------------------------------------------------------------------------------

    def skips(self, shape: PodShape) -> bool:
        """Without preferred terms, the pod's or the profile's."""
        affinity = _node_affinity(shape)
        return not self._prefers_for_all and (affinity is None or not affinity.preferred)

    def score_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Scores:
        """The sum of the weights of the preferred terms that match."""
        preferred = shape.compiled(self, self._compile).preferred
        row = single(rows)
        if row >= 0:
            return sum(weight for weight, term in preferred if term.matches_row(table, row))
        total = np.zeros(count_of(rows), dtype=np.int64)
        for weight, term in preferred:
            total += weight * term.mask(table, rows)
        return total

    # --- queueing hints ----------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Nodes that match now and did not before."""
        return [
            HintRegistration(
                self.name,
                ClusterEvent(NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL),
                self._after_node_change,
                Scope.SHAPE,
                index=KeyedGroups(_needs, _offers),
            )
        ]

    def _after_node_change(self, pod: Pod, old: Any, new: Any) -> QueueingHint:
        required = pod.shape.compiled(self, self._compile).required
        if new is None or not self._accepts(required, new) or (old is not None and self._accepts(required, old)):
            return QueueingHint.SKIP
        return QueueingHint.QUEUE

    def _accepts(self, required: RequiredNodes, node: Node) -> bool:
        return (self._enforced is None or self._enforced.matches(node)) and required.matches(node)


def _needs(pod: Pod) -> Iterator[list[Collection[Hashable]]]:
    """Labels, or the name, of a node that fits: for each term those that it asks for."""
    spec, affinity = pod.shape.spec, _node_affinity(pod.shape)
    selected: list[Collection[Hashable]] = [(label,) for label in spec.node_selector.items()]
    if affinity is None or affinity.required is None:
        yield selected
        return
    for term in affinity.required.node_selector_terms:
        names = _named_nodes(term)
        named = [[(_NAME, name) for name in names]] if names is not None else []
        yield [*selected, *named, *needed((e.key, e.operator, e.values) for e in term.match_expressions)]


def _offers(old: Any, new: Any) -> list[set[Hashable]]:
    return [{(_NAME, new.metadata.name), *offered(new.metadata.labels)} if new is not None else set()]


def _node_affinity(shape: PodShape) -> WireNodeAffinity | None:
    affinity = shape.spec.affinity
    return affinity.node_affinity if affinity is not None else None


def _named_nodes(term: NodeSelectorTerm) -> frozenset[str] | None:
    """The names that all `metadata.name In` fields of the term agree on; None if it has no such field."""
    named: frozenset[str] | None = None
    for field in term.match_fields:
        if field.key == "metadata.name" and field.operator == "In":
            values = frozenset(field.values)
            named = values if named is None else named & values
    return named
