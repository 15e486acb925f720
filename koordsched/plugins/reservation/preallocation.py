"""Pre-allocation: a Reservation takes over resources of running pods, which become owners (reservation spec 3.7).

The pods that may be taken are away from their rows in the overlay of the reserve pod's cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from koordsched.cluster.facts import PodFact
from koordsched.cluster.interning import LabelSet
from koordsched.cluster.pod import Pod
from koordsched.cluster.ports import overlap, shape_ports
from koordsched.cluster.state import ClusterState
from koordsched.framework.interface import CycleState
from koordsched.framework.reservations import Reserved, ReservedAllocation
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.plugins.reservation.args import PreAllocationConfig
from koordsched.plugins.reservation.cache import ReservationCache
from koordsched.plugins.reservation.fitting import NO_PORTS, Fit, Fitting, compared, utilization
from koordsched.plugins.reservation.info import Amounts, ReservationInfo
from koordsched.plugins.reservation.kinds import PRE_ALLOCATION_REQUIRED
from koordsched.plugins.reservation.matching import Matching
from koordsched.plugins.reservation.stayers import Places, Stayers

UNSUPPORTED = "node(s) reservation pre allocation is unsupported with current attributes"
CLUSTER_MODE_DISABLED = "reservation requires cluster mode pre-allocation which is disabled"
NO_POD = "node(s) no pod match reservation with pre allocation required"
NONE_MEETS = "node(s) no pod(s) to meet the pre-allocation requirements"

CLUSTER = "Cluster"


class LabeledPods:
    """The pods on nodes by their labels, so that those of a selector are found without a look at all others.

    An accountant that counts nothing; kept from the first Reservation on that asks for it.
    """

    facets = 0

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._pods: dict[LabelSet, dict[str, None]] = {}
        cluster.add_accountant(self, amendable=False)

    def pod_added(self, row: int, pod: Pod) -> int:
        """See PodAccountant."""
        if not self._cluster.table.hypothetical and not pod.virtual:
            self._pods.setdefault(pod.labels, {})[pod.uid] = None
        return 0

    def pod_removed(self, row: int, pod: Pod) -> int:
        """See PodAccountant."""
        if not self._cluster.table.hypothetical and not pod.virtual:
            pods = self._pods[pod.labels]
            del pods[pod.uid]
            if not pods:
                del self._pods[pod.labels]
        return 0

    def __iter__(self) -> Iterator[tuple[LabelSet, Iterator[Pod]]]:
        """Every set of labels with the pods that have it."""
        assigned = self._cluster.assigned
        for labels, uids in self._pods.items():
            yield labels, (assigned[uid] for uid in uids)


class PreAllocatable:
    """The pods that the Reservation of a cycle may take, by row: `framework.reservations.UsableReservations`.

    `selected`: those that it takes where it fits, found by `Filter`; in multiple mode all of them, otherwise one.
    `stayers`: all of them, None if there are none.
    """

    ignored = False

    def __init__(self, cluster: ClusterState, cycle: CycleState, info: ReservationInfo, *, required: bool) -> None:
        self._cluster = cluster
        self._cycle = cycle
        self.info = info
        self.required = required
        self.by_row: dict[int, list[Pod]] = {}
        self.selected: dict[int, list[Pod]] = {}
        self.stayers: Stayers | None = None
        policy = info.reservation.spec.pre_allocation_policy
        self.multiple = policy is not None and policy.enable_multiple

    def on(self, row: int) -> Sequence[Reserved]:
        """See UsableReservations: those that it takes."""
        return [Reserved(pod, pod.facts, True, True) for pod in self.selected.get(row, ())]

    def chosen(self, row: int) -> Reserved | None:
        """See UsableReservations."""
        taken = [] if self.multiple else self.selected.get(row, [])
        return Reserved(taken[0], taken[0].facts, True, True) if taken else None

    def places(self) -> Places:
        """Those of the pods."""
        return [(row, pod, partial(self._is_away, row)) for row, pods in self.by_row.items() for pod in pods]

    def refusal(self, row: int, taken: Sequence[Pod]) -> Status | None:
        """Why the Reservation cannot be on the row if it takes these, and the others stay; None if it can."""
        wanted = shape_ports(self._cycle.pod.shape)
        if wanted and any(overlap(wanted, shape_ports(pod.shape)) for pod in self.by_row[row] if pod not in taken):
            return Status(Code.UNSCHEDULABLE, (NO_PORTS,))
        return self.stayers.refusal(row, taken) if self.stayers is not None else None

    def _is_away(self, row: int) -> bool:
        overlay = self._cycle.overlay
        return overlay is not None and overlay.covers(row)

    @contextmanager
    def alone(self, row: int, reserved: Reserved | None) -> Iterator[None]:
        """See UsableReservations."""
        with self._cluster.what_if() as hypothesis:
            if self._is_away(row):
                for other in self.by_row.get(row, ()):
                    if reserved is None or other is not reserved.pod:
                        hypothesis.add(other, row)
            elif reserved is not None:
                hypothesis.remove(reserved.pod, row)
            yield


class PreAllocation:
    """Finds pods to take over, and says whether a Reservation fits with them."""

    def __init__(
        self,
        cluster: ClusterState,
        cache: ReservationCache,
        matching: Matching,
        fitting: Fitting,
        config: PreAllocationConfig | None,
        reserved_allocations: Sequence[ReservedAllocation],
        stayers_of: Callable[[CycleState, Places], Stayers],
    ) -> None:
        self._stayers_of = stayers_of
        self._cluster = cluster
        self._cache = cache
        self._matching = matching
        self._fitting = fitting
        self._config = config or PreAllocationConfig()
        self._reserved_allocations = reserved_allocations
        self._priority: PodFact[int] | None = None
        if self._config.enable_cluster_mode:
            self._priority = cluster.pod_facts.declare(self._config.priority_annotation, int, str)

    def prepare(self, cycle: CycleState, info: ReservationInfo) -> Status:
        """Finds the pods that the Reservation may take, and puts them into the overlay. SUCCESS, or why it cannot."""
        cycle.reservations = None
        required = cycle.pod.labels.labels.get(PRE_ALLOCATION_REQUIRED) == "true"
        if not info.reservation.spec.pre_allocation:
            if required:
                cycle.reservations = PreAllocatable(self._cluster, cycle, info, required=True)
            return SUCCESS
        if not info.restricted:
            return Status(Code.UNRESOLVABLE, (UNSUPPORTED,))
        if info.terms.problem:
            return Status(Code.UNRESOLVABLE, (info.terms.problem,))
        policy = info.reservation.spec.pre_allocation_policy
        in_cluster = policy is not None and policy.mode == CLUSTER
        if in_cluster and not self._config.enable_cluster_mode:
            return Status(Code.UNRESOLVABLE, (CLUSTER_MODE_DISABLED,))
        found = PreAllocatable(self._cluster, cycle, info, required=required)
        for pod in self._in_cluster() if in_cluster else self._owners(info):
            if self._may_be_taken(pod, cycle, info):
                found.by_row.setdefault(pod.row, []).append(pod)
        for row, pods in found.by_row.items():
            for pod in pods:
                cycle.overlaid().without(row, pod)
        if found.by_row:
            found.stayers = self._stayers_of(cycle, found.places())
        cycle.reservations = found
        return SUCCESS

    def _labeled(self) -> LabeledPods:
        return self._cluster.shared(LabeledPods)

    def _owners(self, info: ReservationInfo) -> list[Pod]:
        """Pods that the owners select by labels, in the order of uids."""
        owners = info.terms.owners
        assert owners is not None, "the owners can be read"
        found = [
            pod
            for labels, pods in self._labeled()
            if owners.selects_labels(labels.labels)
            for pod in pods
            if owners.matches(pod)
        ]
        return sorted(found, key=lambda pod: pod.uid)

    def _in_cluster(self) -> list[Pod]:
        """Pods that allow it by a label, those of high priority first."""
        fact = self._priority
        assert fact is not None, "cluster mode is enabled"
        found = [
            pod for labels, pods in self._labeled() if labels.labels.get(self._config.label) == "true" for pod in pods
        ]
        return sorted(found, key=lambda pod: (-(fact.of(pod) or 0), pod.uid))

    def may_come_to_take(self, info: ReservationInfo, pod: Pod) -> bool:
        """Whether the Reservation may take the pod, by its labels and owners alone."""
        spec = info.reservation.spec
        if not spec.pre_allocation or pod.virtual:
            return False
        if spec.pre_allocation_policy is not None and spec.pre_allocation_policy.mode == CLUSTER:
            return pod.labels.labels.get(self._config.label) == "true"
        owners = info.terms.owners
        return owners is not None and owners.matches(pod)

    def _may_be_taken(self, pod: Pod, cycle: CycleState, info: ReservationInfo) -> bool:
        """Whether a running pod may use the Reservation, by what the pod itself says."""
        row = pod.row
        if row < 0 or pod.deleting or self._cluster.is_assumed(pod.uid):
            return False
        used = self._cache.allocated.of(pod)
        if used is not None and used.uid != info.uid and self._cache.get(used.uid) is not None:
            return False  # what it says of this one was written before a binding in vain
        if not self._matching.terms(cycle.pod).nodes.matches_row(self._cluster.table, row):
            return False
        return self._matching.accepts(pod, info, row)

    @staticmethod
    def score(row: int, found: PreAllocatable) -> int:
        """0..100: how full the pod that it takes makes the Reservation; of several, the fewer the better."""
        taken = found.selected.get(row, [])
        if found.multiple:
            return 100 // (1 + len(taken))
        return utilization(taken[0], found.info) if taken else 0

    # --- filter ------------------------------------------------------------------------------------

    def fit(self, cycle: CycleState, row: int, found: PreAllocatable) -> Status | None:
        """Why the Reservation has no room on the row, None if it has, with `selected` pods or without any."""
        candidates = found.by_row.get(row, [])
        found.selected.pop(row, None)
        unallocated: tuple[str, ...] | None = None
        refused: Status | None = None
        if not found.required and self._config.prefer_no_pre_allocated_pods:
            unallocated = self._missing(found, row, {}, taken=0)
            if not unallocated and (refused := found.refusal(row, ())) is None:
                return None
        choose = self._several if found.multiple else self._single
        selected, by_node, by_reservation = choose(cycle, row, candidates, found)
        if selected:
            found.selected[row] = selected
            return None
        if found.required:
            texts = (*(f"Insufficient {name} by node" for name in by_node), *by_reservation)
            return Status(Code.UNSCHEDULABLE, texts or (NONE_MEETS,))
        if not by_node:
            if unallocated is None and candidates:
                unallocated = self._missing(found, row, {}, taken=0)
            by_node = list(unallocated or ())
        if by_node:
            return Status(Code.UNSCHEDULABLE, tuple(f"Insufficient {name} by node" for name in by_node))
        return refused or found.refusal(row, ())

    def _single(
        self, cycle: CycleState, row: int, candidates: Sequence[Pod], found: PreAllocatable
    ) -> tuple[list[Pod], list[str], list[str]]:
        """One of those that make room enough, (the best, what nodes lack, what the Reservation lacks)."""
        info = found.info
        fitting: list[Pod] = []
        by_node: dict[str, None] = {}
        by_reservation: list[str] = []
        for pod in candidates:
            if not any(index in info.terms.names for index, _ in pod.requests.amounts):
                continue
            fit = Fit(
                self._missing(found, row, dict(pod.requests.amounts), taken=1),
                tuple(self._fitting.exceeds(dict(pod.requests.amounts), info)),
            )
            by_node.update(dict.fromkeys(fit.node))
            by_reservation.extend(fit.reservation)
            if fit.ok and found.refusal(row, (pod,)) is None and self._allocates(cycle, row, pod, found):
                fitting.append(pod)
        if not fitting:
            return [], sorted(by_node), by_reservation
        best = min(fitting, key=lambda pod: (-utilization(pod, info), pod.uid))
        return [best], [], []

    def _allocates(self, cycle: CycleState, row: int, pod: Pod, found: PreAllocatable) -> bool:
        """Whether the Reservation could be given all devices and the like of the pod among its own."""
        asked = [plugin for plugin in self._reserved_allocations if plugin.concerns(cycle.pod.shape, row)]
        if not asked:
            return True
        reserved = Reserved(pod, pod.facts, True, True)
        with found.alone(row, reserved):
            return all(plugin.allocates_from(cycle, cycle.pod, row, reserved).ok for plugin in asked)

    def _several(
        self, cycle: CycleState, row: int, candidates: Sequence[Pod], found: PreAllocatable
    ) -> tuple[list[Pod], list[str], list[str]]:
        """As many as are needed, in their order, without those that the Reservation has no room for."""
        info = found.info
        policy = info.reservation.spec.pre_allocation_policy
        if policy is not None and policy.mode != CLUSTER:
            candidates = sorted(candidates, key=lambda pod: (-utilization(pod, info), pod.uid))
        total: Amounts = {}
        selected: list[Pod] = []
        missing: tuple[str, ...] = ()
        by_reservation: list[str] = []
        for pod in candidates:
            if not any(index in info.terms.names for index, _ in pod.requests.amounts):
                continue
            trial = dict(total)
            for index, amount in pod.requests.amounts:
                trial[index] = trial.get(index, 0) + amount
            missing = self._missing(found, row, trial, taken=len(selected) + 1)
            exceeded = list(self._fitting.exceeds(trial, info))
            if exceeded:
                by_reservation.extend(exceeded)
                continue
            total = trial
            selected.append(pod)
            if not missing and found.refusal(row, selected) is None:
                return selected, [], []
        return [], list(missing), by_reservation

    def _missing(self, found: PreAllocatable, row: int, freed: Amounts, *, taken: int) -> tuple[str, ...]:
        """Resources that the node has too little of for the Reservation if `freed` is taken from running pods.

        Of resources that restricted options leave out, pods use the node's also when they use the Reservation.
        """
        table, missing = self._cluster.table, []
        names = found.info.terms.names
        if table.pods_count.data.item(row) - taken + 1 > table.pods_allocatable.data.item(row):
            missing.append("pods")
        for index, amount in compared(found.info.allocatable).items():
            name = table.resource_names.names[index]
            if self._fitting.ignores(index, name):
                continue
            away = sum(pod.requests.get(index) for pod in found.by_row.get(row, ()))
            table.ensure_resource(index)
            used = table.requested[index].data.item(row) + away - (freed.get(index, 0) if index in names else 0)
            if amount > table.allocatable[index].data.item(row) - used and not table.serves_otherwise(index, row):
                missing.append(name)
        return tuple(missing)
