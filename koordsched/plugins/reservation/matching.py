"""Which Reservations a pod may use, row by row, and which of them it would (reservation spec 3.4, 3.6)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable

from koordsched.cluster.changelog import Facet
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState
from koordsched.framework.interface import CycleState
from koordsched.plugins.reservation.affinity import ExactMatch, ReservationAffinity
from koordsched.plugins.reservation.cache import ReservationCache
from koordsched.plugins.reservation.info import ReservationInfo
from koordsched.plugins.reservation.kinds import EXACT_MATCH, RESERVATION_AFFINITY, RESERVATION_IGNORED
from koordsched.plugins.reservation.matched import Choose, Diagnosis, MatchedReservations, Usable
from koordsched.plugins.shared.matching.nodeselector import NodeSelectors, RequiredNodes

_MANY = 8
"""Rows from which on it is cheaper to keep what was found than to look again."""

_ROWS_KEPT = 1 << 16
"""Rows that may be kept, for all pods together; half a kilobyte each."""


class PodTerms:
    """What pods of a shape say about reservations.

    `problem`: why that cannot be read, "" if it can. `only_owns`: no Reservation matters whose owners do not match.
    """

    __slots__ = ("affinity", "exact", "ignored", "nodes", "only_owns", "problem")

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
        self.only_owns = self.affinity is None and not self.ignored


class Matching:
    """Finds the Reservations that pods may use."""

    def __init__(
        self,
        cluster: ClusterState,
        cache: ReservationCache,
        choose: Choose,
        *,
        plugin: str,
        omit_node_labels: bool,
    ) -> None:
        """`plugin`: the name of the plugin. `omit_node_labels`: gate OmitNodeLabelsForReservation."""
        self._cluster = cluster
        self._cache = cache
        self._choose = choose
        self._plugin = plugin
        self._omit_node_labels = omit_node_labels
        self._selectors = NodeSelectors()
        self._kept: OrderedDict[tuple[object, ...], Usable] = OrderedDict()
        """Of pods that may use Reservations on many rows, by what makes pods alike; the latest used are last."""
        self._rows_kept = 0
        cluster.shape_facts.declare(labels=[RESERVATION_IGNORED], annotations=[RESERVATION_AFFINITY, EXACT_MATCH])

    def terms(self, pod: Pod) -> PodTerms:
        """What the pod says."""
        return pod.shape.compiled(self, self._read)

    def _read(self, shape: PodShape) -> PodTerms:
        return PodTerms(shape, self._selectors)

    def match(self, cycle: CycleState, terms: PodTerms) -> MatchedReservations | None:
        """The Reservations that the pod of the cycle may use, put into its overlay; None if none concern it."""
        pod = cycle.pod
        key = self._alike(cycle, terms) if self._kept else None
        usable = self._kept.get(key) if key is not None else None
        if usable is not None and key is not None:
            self._kept.move_to_end(key)
            self._refresh(usable, pod, terms)
            if len(usable.by_row) < _MANY:
                del self._kept[key]
                self._rows_kept -= len(usable.by_row)
        else:
            candidates = self._candidates(pod, terms)
            if not candidates and terms.affinity is None:
                return None
            usable = Usable(self._plugin, self._cluster.table.log.serial)
            self._find(usable, pod, terms, candidates)
            for row in usable.by_row:
                usable.settle(row, self._cache)
            if len(usable.by_row) >= _MANY:
                self._keep(cycle, terms, usable)
        if terms.affinity is None and not usable.by_row and not usable.diagnosis:
            return None
        if usable.by_row:
            cycle.overlay = usable.overlay.added_to(cycle.overlay)
        found = MatchedReservations(self._cluster, self._cache, cycle, self._choose, usable)
        found.required, found.ignored = terms.affinity is not None, terms.ignored
        return found

    # --- kept for pods that are alike ------------------------------------------------------------------

    def _alike(self, cycle: CycleState, terms: PodTerms) -> tuple[object, ...] | None:
        """What pods have in common that may use the same Reservations, as long as those do not change.

        None if the pod is one of its own, and where what is kept must not change until the cycle is over.
        """
        pod = cycle.pod
        if (
            cycle.may_be_suspended
            or cycle.overlay is not None
            or (terms.affinity is not None and terms.affinity.name)
            or pod.requests is not pod.shape.requests
            or self._cache.index.names(pod)
        ):
            return None
        return (pod.shape, pod.labels, pod.namespace, pod.references)

    def _keep(self, cycle: CycleState, terms: PodTerms, usable: Usable) -> None:
        key = self._alike(cycle, terms)
        if key is None:
            return
        usable.overlay.lasting = True
        self._kept[key] = usable
        self._rows_kept += len(usable.by_row)
        while self._rows_kept > _ROWS_KEPT and len(self._kept) > 1:
            self._rows_kept -= len(self._kept.popitem(last=False)[1].by_row)

    def _refresh(self, usable: Usable, pod: Pod, terms: PodTerms) -> None:
        """Looks at rows whose Reservations or labels changed; at all Reservations if these are more."""
        table, before = self._cluster.table, len(usable.by_row)
        changed = table.log.since(usable.serial, self._cache.facets | Facet.LABELS, table.size)
        usable.serial = table.log.serial
        rows = [row for row, _ in changed] if isinstance(changed, list) else changed.tolist()
        infos: Iterable[ReservationInfo] = (info for row in rows for info in self._cache.on(row))
        anew = len(rows) > before
        if anew:
            rows = [*{**usable.by_row, **usable.diagnosis}]
            infos = self._candidates(pod, terms)
        for row in rows:
            usable.by_row.pop(row, None)
            usable.diagnosis.pop(row, None)
        self._find(usable, pod, terms, infos)
        for row in {*rows, *usable.by_row} if anew else rows:
            usable.settle(row, self._cache)
        self._rows_kept += len(usable.by_row) - before

    # --- looking ---------------------------------------------------------------------------------------

    def _find(self, usable: Usable, pod: Pod, terms: PodTerms, infos: Iterable[ReservationInfo]) -> None:
        """Adds those that the pod may use, and why it may not use others whose owners match."""
        for info in infos:
            if not info.matchable:
                continue
            row = self._cache.row_of(info)
            if row < 0 or not terms.nodes.matches_row(self._cluster.table, row):
                continue
            owners = info.terms.owners
            if not terms.ignored and (owners is None or not owners.matches(pod)):
                continue
            if self._matches(pod, terms, info, row, usable.diagnosis):
                usable.by_row.setdefault(row, []).append(info)

    def _candidates(self, pod: Pod, terms: PodTerms) -> Collection[ReservationInfo]:
        if terms.affinity is not None and terms.affinity.name:
            named = self._cache.named(terms.affinity.name)
            if named is not None and self._cache.row_of(named) >= 0:
                return self._cache.on(self._cache.row_of(named))
        if terms.ignored:
            return self._cache
        uids = self._cache.index.candidates(pod)
        return [info for uid in uids if (info := self._cache.get(uid)) is not None] if uids else ()

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
