"""Which Reservations a pod may use, row by row, and which of them it would (reservation spec 3.4, 3.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState
from koordsched.framework.interface import CycleState
from koordsched.framework.reservations import Reserved
from koordsched.plugins.reservation.affinity import ExactMatch, ReservationAffinity
from koordsched.plugins.reservation.cache import ReservationCache
from koordsched.plugins.reservation.info import ReservationInfo
from koordsched.plugins.reservation.kinds import EXACT_MATCH, RESERVATION_AFFINITY, RESERVATION_IGNORED
from koordsched.plugins.reservation.messages import NodeCounts
from koordsched.plugins.shared.matching.nodeselector import NodeSelectors, RequiredNodes


class PodTerms:
    """What pods of a shape say about reservations. `problem`: why that cannot be read, "" if it can."""

    __slots__ = ("affinity", "exact", "ignored", "nodes", "problem")

    def __init__(self, shape: PodShape, selectors: NodeSelectors) -> None:
        annotations = shape.meta.annotations
        self.ignored = shape.meta.labels.get(RESERVATION_IGNORED) == "true"
        self.affinity: ReservationAffinity | None = None
        self.exact: ExactMatch | None = None
        self.problem = ""
        self.nodes: RequiredNodes = selectors.required_by(shape.spec)
        try:
            if (text := annotations.get(RESERVATION_AFFINITY)) is not None:
                self.affinity = ReservationAffinity(text)
            if (text := annotations.get(EXACT_MATCH)) is not None:
                self.exact = ExactMatch(text)
        except ValueError as error:
            self.problem = str(error)


class Diagnosis:
    """How many Reservations of one row have owners that match the pod, and how many the pod may not use, by cause."""

    __slots__ = (
        "affinity_unmatched",
        "name_matched",
        "name_unmatched",
        "not_exact",
        "owner_matched",
        "taints",
        "unschedulable",
    )

    def __init__(self) -> None:
        self.owner_matched = 0
        self.name_matched = 0
        self.name_unmatched = 0
        self.unschedulable = 0
        self.affinity_unmatched = 0
        self.not_exact = 0
        self.taints: dict[str, int] = {}

    def counts(self, refusals: Sequence[str]) -> NodeCounts:
        """For messages; `refusals`: why the filters refused the node."""
        return NodeCounts(
            self.owner_matched,
            self.name_matched,
            self.name_unmatched,
            self.affinity_unmatched,
            self.unschedulable,
            self.not_exact,
            self.taints,
            refusals,
        )


Choose = Callable[[int, Sequence[ReservationInfo]], ReservationInfo | None]
"""The one of those on a row that the pod would use, as the table reads in the overlay of its cycle."""


class MatchedReservations:
    """Those that the pod of a cycle may use: `framework.reservations.UsableReservations`.

    `by_row`: in the order of creation. `diagnosis`: of all whose owners match. `preferred`: the row of the smallest
    order, -1 if none has one.
    """

    def __init__(self, cluster: ClusterState, cache: ReservationCache, cycle: CycleState, choose: Choose) -> None:
        self._cluster = cluster
        self._cache = cache
        self._cycle = cycle
        self._choose = choose
        self.required = False
        self.ignored = False
        self.by_row: dict[int, list[ReservationInfo]] = {}
        self.diagnosis: dict[int, Diagnosis] = {}
        self.preferred = -1
        self._chosen: dict[int, ReservationInfo | None] = {}

    def on(self, row: int) -> Sequence[Reserved]:
        """See UsableReservations."""
        return [reserved for info in self.by_row.get(row, ()) if (reserved := self.reserved(info)) is not None]

    def reserved(self, info: ReservationInfo) -> Reserved | None:
        """The Reservation as other plugins see it."""
        pod = self._cache.reserve_pod(info)
        return Reserved(pod, info.full_facts, info.restricted) if pod is not None else None

    def chosen(self, row: int) -> Reserved | None:
        """See UsableReservations."""
        info = self.chosen_info(row)
        return self.reserved(info) if info is not None else None

    def chosen_info(self, row: int) -> ReservationInfo | None:
        """The same as the cache has it; found out once."""
        if row not in self._chosen:
            infos = [] if self.ignored else self.by_row.get(row, [])
            if len(infos) < 1:
                self._chosen[row] = None
            elif len(infos) == 1 and self.required:
                self._chosen[row] = infos[0]
            else:
                with self.as_filtered(row):
                    self._chosen[row] = self._choose(row, infos)
        return self._chosen[row]

    @contextmanager
    def as_filtered(self, row: int) -> Iterator[None]:
        """Inside, the row reads as in Filter, also where that is over and the pod is on the row."""
        overlay, pod = self._cycle.overlay, self._cycle.pod
        assert overlay is not None, "rows with usable reservations are in the overlay"
        with ExitStack() as stack:
            if not overlay.active:
                hypothesis = stack.enter_context(self._cluster.what_if())
                if pod.row == row:
                    hypothesis.remove(pod, row)
                stack.enter_context(overlay.on_row(row, self._cluster))
            yield

    @contextmanager
    def alone(self, row: int, reserved: Reserved | None) -> Iterator[None]:
        """See UsableReservations."""
        overlay = self._cycle.overlay
        active = overlay is not None and overlay.active
        with self._cluster.what_if() as hypothesis:
            if active:
                for other in self.on(row):
                    if reserved is None or other.pod is not reserved.pod:
                        hypothesis.add(other.pod, row)
            elif reserved is not None:
                hypothesis.remove(reserved.pod, row)
            yield


class Matching:
    """Finds the Reservations that pods may use."""

    def __init__(
        self,
        cluster: ClusterState,
        cache: ReservationCache,
        choose: Callable[[CycleState, int, Sequence[ReservationInfo]], ReservationInfo | None],
        *,
        omit_node_labels: bool,
    ) -> None:
        """`omit_node_labels`: gate OmitNodeLabelsForReservation."""
        self._cluster = cluster
        self._cache = cache
        self._choose = choose
        self._omit_node_labels = omit_node_labels
        self._selectors = NodeSelectors()
        cluster.shape_facts.declare(labels=[RESERVATION_IGNORED], annotations=[RESERVATION_AFFINITY, EXACT_MATCH])

    def terms(self, pod: Pod) -> PodTerms:
        """What the pod says."""
        return pod.shape.compiled(self, self._read)

    def _read(self, shape: PodShape) -> PodTerms:
        return PodTerms(shape, self._selectors)

    def match(self, cycle: CycleState, terms: PodTerms) -> MatchedReservations | None:
        """The Reservations that the pod of the cycle may use, put into its overlay; None if none concern it."""
        pod = cycle.pod
        found: MatchedReservations | None = None
        if terms.affinity is not None:
            found = self._new(cycle)
            found.required = True
        for info in self._candidates(pod, terms):
            if not info.matchable:
                continue
            row = self._cache.row_of(info)
            if row < 0 or not terms.nodes.matches_row(self._cluster.table, row):
                continue
            owners = info.terms.owners
            if not terms.ignored and (owners is None or not owners.matches(pod)):
                continue
            if found is None:
                found = self._new(cycle)
            found.ignored = terms.ignored
            if self._matches(pod, terms, info, row, found.diagnosis):
                found.by_row.setdefault(row, []).append(info)
        if found is not None:
            for row, infos in found.by_row.items():
                infos.sort(key=lambda info: info.key)
                for info in infos:
                    if (reserve_pod := self._cache.reserve_pod(info)) is not None:
                        cycle.overlaid().without(row, reserve_pod)
        return found

    def _new(self, cycle: CycleState) -> MatchedReservations:
        return MatchedReservations(
            self._cluster, self._cache, cycle, lambda row, infos: self._choose(cycle, row, infos)
        )

    def _candidates(self, pod: Pod, terms: PodTerms) -> Iterator[ReservationInfo]:
        if terms.affinity is not None and terms.affinity.name:
            named = self._cache.named(terms.affinity.name)
            if named is not None and self._cache.row_of(named) >= 0:
                row = self._cache.row_of(named)
                yield from (info for info in self._cache.on(row))
                return
        if terms.ignored:
            yield from self._cache
            return
        for uid in self._cache.index.candidates(pod):
            if (info := self._cache.get(uid)) is not None:
                yield info

    def _matches(
        self, pod: Pod, terms: PodTerms, info: ReservationInfo, row: int, diagnosis: dict[int, Diagnosis]
    ) -> bool:
        """Whether the pod, which is an owner, may use it; counts why not."""
        if terms.ignored:
            return True
        counts = diagnosis.setdefault(row, Diagnosis())
        counts.owner_matched += 1
        affinity = terms.affinity
        if affinity is not None and affinity.name:
            if affinity.name != info.name:
                counts.name_unmatched += 1
                return False
            if not self._is_exact(pod, terms, info):
                counts.not_exact += 1
                return False
            counts.name_matched += 1
            return True
        if info.unschedulable and not (affinity is not None and affinity.tolerates_unschedulable):
            counts.unschedulable += 1
            return False
        if affinity is not None:
            taint = affinity.untolerated(info.reservation.spec.taints)
            if taint is not None:
                counts.taints[taint] = counts.taints.get(taint, 0) + 1
                return False
            if not self._selects(affinity, info, row):
                counts.affinity_unmatched += 1
                return False
        if not self._is_exact(pod, terms, info):
            counts.not_exact += 1
            return False
        return True

    def accepts(self, pod: Pod, info: ReservationInfo, row: int) -> bool:
        """Whether a running pod may become an owner of a Reservation on its row, by what the pod says."""
        terms = self.terms(pod)
        if terms.problem:
            return False
        affinity = terms.affinity
        if affinity is not None and affinity.name:
            return affinity.name == info.name and self._is_exact(pod, terms, info)
        if affinity is not None and (
            affinity.untolerated(info.reservation.spec.taints) is not None or not self._selects(affinity, info, row)
        ):
            return False
        return self._is_exact(pod, terms, info)

    def diagnose(self, pod: Pod, info: ReservationInfo, row: int) -> Diagnosis:
        """Why the pod, which is an owner, may not use it: the one count above 0 besides `owner_matched` says so."""
        found: dict[int, Diagnosis] = {}
        self._matches(pod, self.terms(pod), info, row, found)
        return found[row]

    def _selects(self, affinity: ReservationAffinity, info: ReservationInfo, row: int) -> bool:
        node = self._cluster.table.nodes[row]
        labels = node.metadata.labels if node is not None else {}
        return affinity.selects(info.name, labels, info.reservation.metadata.labels, self._omit_node_labels)

    def _is_exact(self, pod: Pod, terms: PodTerms, info: ReservationInfo) -> bool:
        if terms.exact is None:
            return True
        names = self._cluster.table.resource_names.names
        return terms.exact.matches(
            {names[index]: amount for index, amount in pod.requests.amounts},
            {names[index]: amount for index, amount in info.allocatable.items()},
        )
