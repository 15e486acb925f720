"""Spread constraints, compiled for the pods of one shape, namespace and set of relevant labels.

Source: upstream `podtopologyspread/common.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial

from koordsched.api.core import TopologySpreadConstraint
from koordsched.api.selectors import Requirement
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.plugins.shared.podcounts.index import Counter, PodIndex
from koordsched.plugins.shared.podcounts.query import PodQuery, WeightedQueries, pinned, requirements_of
from koordsched.plugins.shared.podcounts.rowcounts import DomainCounts
from koordsched.plugins.shared.podcounts.topology import EligibleNodes

HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"
HONOR, IGNORE = "Honor", "Ignore"


@dataclass(slots=True)
class Constraint:
    """One constraint as the pods of a kind have it.

    `query`: the pods that count and should be spread; None if the selector matches nothing.
    """

    key: str
    max_skew: int
    min_domains: int
    honors_taints: bool
    query: PodQuery | None
    eligible: EligibleNodes
    _counter: Counter | None = None

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether the selector matches a pod, of the right namespace, with these labels."""
        return self.query is not None and self.query.admits(labels)

    def counter(self, index: PodIndex) -> Counter | None:
        """The existing pods that count, terminating ones left out; None if none ever does.

        An empty selector is such a case: it counts no existing pod, though it matches the pod itself.
        """
        if self.query is None or not self.query.requirements:
            return None
        if self._counter is None:
            self._counter = index.counter(self.query, count_deleting=False)
        else:
            self._counter = index.used(self._counter)
        return self._counter

    def domains(self, index: PodIndex) -> DomainCounts | None:
        """Their number per domain."""
        counter = self.counter(index)
        return None if counter is None else counter.domains(self.key, self.eligible)


@dataclass(slots=True)
class Spread:
    """All constraints of a kind of pod.

    `needs_all_keys`: nodes lacking any key of the soft constraints take no part in scoring.
    """

    hard: tuple[Constraint, ...]
    soft: tuple[Constraint, ...]
    needs_all_keys: bool
    _hard_queries: WeightedQueries | None = None

    def hard_selects(self, pod: Pod) -> bool:
        """Whether a hard constraint is about the pod; there may be ten thousand of them."""
        if self._hard_queries is None:
            self._hard_queries = WeightedQueries(tuple((1, c.query) for c in self.hard if c.query is not None))
        return self._hard_queries.weigh(pod.namespace, pod.labels.labels) > 0


class SpreadCompiler:
    """Compiles constraints; what it makes is kept with the shape."""

    def __init__(self, index: PodIndex) -> None:
        self._index = index

    def own(self, pod: Pod) -> Spread:
        """The constraints in the pod's spec. Raises SelectorError."""
        compiled = pod.shape.compiled(self, _Spreads)
        identity = (pod.namespace, pinned(pod.labels.labels, compiled.match_label_keys))
        found = compiled.by_identity.get(identity)
        if found is None:
            constraints = pod.shape.spec.topology_spread_constraints
            selectors = [self._own_requirements(pod, constraint) for constraint in constraints]
            found = self._compile(pod, list(zip(constraints, selectors, strict=True)), needs_all_keys=True)
            compiled.remember(identity, found)
        return found

    def defaulted(
        self,
        pod: Pod,
        constraints: Iterable[TopologySpreadConstraint],
        requirements: tuple[Requirement, ...],
        *,
        needs_all_keys: bool,
    ) -> Spread:
        """Default constraints with the selector found for the pod. Raises SelectorError."""
        compiled = pod.shape.compiled(self, _Spreads)
        identity = (pod.namespace, requirements)
        found = compiled.by_identity.get(identity)
        if found is None:
            given: list[tuple[TopologySpreadConstraint, tuple[Requirement, ...] | None]] = [
                (constraint, requirements) for constraint in constraints
            ]
            found = self._compile(pod, given, needs_all_keys=needs_all_keys)
            compiled.remember(identity, found)
        return found

    @staticmethod
    def _own_requirements(pod: Pod, constraint: TopologySpreadConstraint) -> tuple[Requirement, ...] | None:
        if constraint.label_selector is None:
            return None
        own = requirements_of(constraint.label_selector)
        return tuple(sorted({*own, *pinned(pod.labels.labels, constraint.match_label_keys)}))

    def _compile(
        self,
        pod: Pod,
        given: list[tuple[TopologySpreadConstraint, tuple[Requirement, ...] | None]],
        *,
        needs_all_keys: bool,
    ) -> Spread:
        by_kind: dict[str, tuple[Constraint, ...]] = {}
        for kind in (HARD, SOFT):
            wanted = [(c, requirements) for c, requirements in given if c.when_unsatisfiable == kind]
            # Hard constraints look at nodes that have all their keys; so do soft ones unless they are the system's.
            keys = [c.topology_key for c, _ in wanted] if kind == HARD or needs_all_keys else []
            # Once per pair of policies: a pod may have ten thousand constraints with as many keys.
            eligible = cache(partial(self._eligible, pod, keys))
            by_kind[kind] = tuple(_constraint(pod, c, requirements, eligible) for c, requirements in wanted)
        return Spread(by_kind[HARD], by_kind[SOFT], needs_all_keys)

    def _eligible(self, pod: Pod, keys: list[str], honors_affinity: bool, honors_taints: bool) -> EligibleNodes:
        return self._index.topology.eligible(
            keys, pod.shape, honor_affinity=honors_affinity, honor_taints=honors_taints
        )


def _constraint(
    pod: Pod,
    wire: TopologySpreadConstraint,
    requirements: tuple[Requirement, ...] | None,
    eligible: Callable[[bool, bool], EligibleNodes],
) -> Constraint:
    """`eligible(honors affinity, honors taints)`: the nodes to look at."""
    honors_taints = (wire.node_taints_policy or IGNORE) == HONOR
    return Constraint(
        key=wire.topology_key,
        max_skew=wire.max_skew,
        min_domains=wire.min_domains or 1,
        honors_taints=honors_taints,
        query=None if requirements is None else PodQuery(frozenset((pod.namespace,)), requirements),
        eligible=eligible((wire.node_affinity_policy or HONOR) == HONOR, honors_taints),
    )


_KEPT_PER_SHAPE = 1024


class _Spreads:
    """The compiled constraints of one shape, by what else they depend on."""

    __slots__ = ("by_identity", "match_label_keys")

    def __init__(self, shape: PodShape) -> None:
        keys = [key for c in shape.spec.topology_spread_constraints for key in c.match_label_keys]
        self.match_label_keys = tuple(dict.fromkeys(keys))
        self.by_identity: dict[tuple[str, tuple[Requirement, ...]], Spread] = {}

    def remember(self, identity: tuple[str, tuple[Requirement, ...]], spread: Spread) -> None:
        if len(self.by_identity) >= _KEPT_PER_SHAPE:
            self.by_identity.clear()
        self.by_identity[identity] = spread
