"""The loads of nodes: what each uses by measurement and by estimate, kept in step with reports and pods.

A report, or a pod that is placed, changes one row in one facet. Whether a measurement contains a pod is decided when
the report comes, so estimates do not change with time; a report that expires changes its row when it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import gt
from typing import NamedTuple

import msgspec

from koordsched.api import core
from koordsched.api.core import Quantities
from koordsched.api.quantity import parse
from koordsched.cluster.events import ActionType, ClusterEvent, EventResource
from koordsched.cluster.facts import PodFact
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import Handle
from koordsched.plugins.loadaware import kinds, reportstates
from koordsched.plugins.loadaware.args import LoadAwareSchedulingArgs
from koordsched.plugins.loadaware.columns import LoadColumns
from koordsched.plugins.loadaware.contribution import NOTHING, Contribution, contribution
from koordsched.plugins.loadaware.estimation import Estimator, Vector
from koordsched.plugins.loadaware.measurements import Measurement, Statistic, read_vector
from koordsched.plugins.loadaware.nodeload import NodeLoad
from koordsched.plugins.loadaware.placementtimes import PlacementTimes, placement_times
from koordsched.plugins.loadaware.reckoning import Reckoning, Sums
from koordsched.plugins.loadaware.thresholds import ThresholdReader
from koordsched.plugins.shared.priorityclass import LABELS

LOAD_EASED = ClusterEvent(EventResource("nodemetrics.v1alpha1.slo.koordinator.sh"), ActionType.UPDATE, "NodeLoadEased")
"""Announced when pods may fit that the load of a node refused; comes with an `Easing`."""


class Easing(NamedTuple):
    """The room on a node before and after, by class of pods (`LoadColumns.room`)."""

    loads: Loads
    before: list[list[int]]
    after: list[list[int]]


class LoadState(msgspec.Struct, frozen=True):
    """See `Loads`. `made`: by node, when its report was made, in seconds since the epoch, as far as that is known;
    `reports`: by node, whether its report is fresh."""

    first_seen: dict[str, float]
    made: dict[str, float]
    reports: dict[str, str]
    deadlines: list[tuple[int, float]]


class Loads:
    """One for all plugins with the same arguments. `resources`: names, in the order of all vectors."""

    def __init__(self, cluster: ClusterState, args: LoadAwareSchedulingArgs, handle: Handle) -> None:
        self._cluster = cluster
        self._clock = handle.clock
        self._args = args
        self.resources = resources_of(args)
        self._nothing: Vector = (0,) * len(self.resources)
        self.estimator = Estimator(args, self.resources)
        self._thresholds = ThresholdReader(args, self.resources)
        self.scored: Statistic | None = None
        if args.aggregated is not None and args.aggregated.score_aggregation_type:
            self.scored = Statistic(args.aggregated.score_aggregation_type, args.aggregated.score_aggregated_duration)
        self.states = reportstates.ReportStates()
        self._reckoning = Reckoning(args, len(self.resources), self.scored, self.states)
        self._by_name: dict[str, NodeLoad] = {}
        self._by_row: dict[int, NodeLoad] = {}
        self._load_of: dict[str, NodeLoad] = {}
        """uid -> load, for the pods in its `added`."""
        self._first_seen: dict[str, float] = {}
        """uid -> when we saw a pod on a node, for those whose status does not say when they were placed."""
        annotations = [kinds.RESERVE_POD]
        if args.allow_customize_estimation:
            annotations += [kinds.SCALING_FACTORS, kinds.SECONDS_AFTER_SCHEDULED, kinds.SECONDS_AFTER_INITIALIZED]
        cluster.shape_facts.declare(labels=LABELS, annotations=annotations, owner_kinds=["DaemonSet"])
        cluster.read_annotations.update((kinds.USAGE_THRESHOLDS, kinds.RAW_ALLOCATABLE))
        self._times: PodFact[PlacementTimes] = cluster.shared(placement_times)
        self.columns = LoadColumns(cluster.table, len(self.resources))
        self._deadlines = handle.deadlines(self.columns.facet, self._due)
        cluster.table.on_node(self._node_changed)
        cluster.table.on_removal(self._node_removed)
        cluster.add_observer(self)
        self._reports = cluster.objects.of(kinds.NODE_METRICS)
        self._reports.subscribe(self._reported)
        handle.states.keep(f"LoadAwareScheduling {handle.profile}", self)

    # --- what others read --------------------------------------------------------------------------

    def __iter__(self) -> Iterator[NodeLoad]:
        return iter(self._by_name.values())

    def of_node(self, name: str) -> NodeLoad | None:
        """The load of a node, None if nothing is known of one."""
        return self._by_name.get(name)

    def pods_on(self, load: NodeLoad) -> Iterable[Pod]:
        """The pods that count there."""
        pods = self._cluster.pods_on(load.row).values() if load.row >= 0 else ()
        return (pod for pod in pods if self.estimator.of(pod.shape).counted)

    def contribution_of(self, load: NodeLoad, pod: Pod) -> Contribution:
        """What a pod adds to the measured usage of the node that it is on."""
        estimate = self.estimator.of(pod.shape)
        if load.measurement is None or not estimate.counted:
            return NOTHING
        return contribution(load.measurement, pod.key, estimate, *self.times_of(pod))

    def times_of(self, pod: Pod) -> tuple[float, int]:
        """When the pod was placed, and when it was initialized (0: not that we know)."""
        times = self._times.of(pod)
        if times is not None and times.placed:
            return times.placed, times.initialized
        seen = self._first_seen.get(pod.uid)
        if seen is None:
            seen = self._first_seen[pod.uid] = self._clock.wall()
        return seen, times.initialized if times is not None else 0

    def sums(self, load: NodeLoad) -> Sums:
        """What the pods of a node add up to, computed again."""
        sums = self._reckoning.sums(load, [self.contribution_of(load, pod) for pod in self.pods_on(load)])
        if load.measurement is not None:
            load.measurement.settle()
        return sums

    def expires_at(self, load: NodeLoad) -> float | None:
        """When the newest report expires, in seconds since the epoch; None if it has no time, or there is none."""
        if load.measurement is None or load.measurement.updated is None:
            return None
        return load.measurement.updated + self._args.node_metric_expiration_seconds

    def counted(self, load: NodeLoad) -> Sums:
        """What the pods of a node add to what decides about it."""
        return self._reckoning.sums(load, load.added.values())

    def age(self, load: NodeLoad) -> int | None:
        """Seconds since the newest report was made; None if it has no time, or there is none."""
        measurement = load.measurement
        if measurement is None or measurement.updated is None:
            return None
        return int(self._clock.wall() - measurement.updated)

    # --- nodes and reports ---------------------------------------------------------------------------

    def _load(self, name: str) -> NodeLoad:
        load = self._by_name.get(name)
        if load is None:
            row = self._cluster.table.row_of.get(name, -1)
            load = self._by_name[name] = NodeLoad(name, row, self._thresholds.of(None)[0], self._nothing)
        return load

    def _node_changed(self, row: int, node: core.Node) -> None:
        annotations = node.metadata.annotations
        thresholds, raw = annotations.get(kinds.USAGE_THRESHOLDS), annotations.get(kinds.RAW_ALLOCATABLE)
        load = self._load(node.metadata.name)
        given = row, thresholds, raw, node.status.allocatable
        if given == load.given:
            return
        load.row, load.given, load.young = row, given, None
        self._by_row[row] = load
        load.thresholds, problem = self._thresholds.of(thresholds)
        allocatable = node.status.allocatable
        if raw:
            try:
                allocatable = {**allocatable, **_read_quantities(raw)}
            except (ValueError, RecursionError) as error:
                problem = f"{problem}; {kinds.RAW_ALLOCATABLE}: {error}".removeprefix("; ")
        load.problem = problem
        load.total = read_vector(allocatable, self.resources)
        self.refresh(load)

    def _node_removed(self, row: int) -> None:
        load = self._by_row.pop(row)
        load.row, load.given, load.shown = -1, (), None
        self.states.forget(load.name)
        self._replace_added(load, {})
        if load.measurement is None:
            del self._by_name[load.name]

    def _reported(self, old: kinds.NodeMetric | None, new: kinds.NodeMetric | None) -> None:
        metric = new if new is not None else old
        assert metric is not None, "one of them is there"
        load = self._load(metric.metadata.name)
        before = load.measurement
        load.measurement = Measurement(self._reports, new, self.resources, before) if new is not None else None
        if load.measurement is None or before is None or not load.measurement.reports_all_of(before):
            load.young = None
        self.states.taken += new is not None
        self.refresh(load)
        if load.measurement is not None:
            load.measurement.settle()
        elif load.row < 0:
            del self._by_name[load.name]

    # --- pods ------------------------------------------------------------------------------------

    def pod_seen(self, pod: Pod, assigned: bool) -> None:
        """See PodObserver. Pods that are confirmed mostly add what they added before."""
        if not assigned or not pod.node:  # not placed, or placed by us: the assumed version of the pod counts
            return
        times = self._times.of(pod)
        if times is not None and times.placed:
            self._first_seen.pop(pod.uid, None)
        else:
            self._first_seen.setdefault(pod.uid, self._clock.wall())
        load, before = self._by_name.get(pod.node), self._load_of.get(pod.uid)
        if load is not None:
            load.meet(pod, times)
        if before is not None and before is not load:
            self.refresh(before)
        if load is None or load.measurement is None or load.row < 0 or self._is_measured(load, pod):
            return
        if self._reckoning.counted(load, self.contribution_of(load, pod)) != load.added.get(pod.uid, NOTHING):
            self.refresh(load)

    def pod_assigned(self, pod: Pod, assigned: bool) -> None:
        """See PodObserver."""
        if not assigned:
            if pod.uid not in self._cluster.assigned:  # unlike one that is away for the length of a what-if
                self._first_seen.pop(pod.uid, None)
            load = self._load_of.get(pod.uid)
            if load is not None:
                self.refresh(load)
            return
        self._first_seen.setdefault(pod.uid, self._clock.wall())
        load = self._by_name.get(pod.node)
        if load is None or load.measurement is None or load.row < 0:
            return
        load.meet(pod, None)
        if load.counts_all:
            self.refresh(load)
            return
        estimate = self.estimator.of(pod.shape)
        added = estimate.amounts if estimate.counted else None
        if load.measurement.reports(pod.key):  # as that of a pod of the same name
            added = self.contribution_of(load, pod).node_delta
        if added is not None and any(added):
            load.added[pod.uid] = Contribution(added)
            self._load_of[pod.uid] = load
            load.shown = None
            self.columns.add(load.row, added)

    def pod_gone(self, uid: str) -> None:
        """See PodObserver. What it added went when it left its node."""
        self._first_seen.pop(uid, None)

    # --- from these to the columns ---------------------------------------------------------------------

    def refresh(self, load: NodeLoad) -> None:
        """Computes a node again, and announces it if that may admit pods."""
        if load.row < 0:
            return
        self._set_deadline(load)
        self._work_out(load)

    def _work_out(self, load: NodeLoad) -> None:
        before = load.shown
        rooms = self.columns.both_rooms(load.row)
        load.counts_all = load.measurement is not None and self._reckoning.counts_all(load)
        if load.measurement is None:
            added, sums = {}, self._reckoning.no_sums
        elif load.counts_all:
            added = {pod.uid: self.contribution_of(load, pod) for pod in self.pods_on(load)}
            sums = self._reckoning.sums(load, added.values())
        else:
            added = self._not_measured(load, load.measurement)
            sums = self._reckoning.sums(load, added.values())
        self._replace_added(load, added)
        view = self._reckoning.view(load, sums, prod=False)
        sees_prod = any(load.thresholds.prod) or self._args.score_according_prod_usage
        load.shown = load.total, (view, self._reckoning.view(load, sums, prod=True) if sees_prod else view)
        if load.shown == before:
            return
        self.columns.write(load.row, *load.shown)
        after = self.columns.both_rooms(load.row)
        if any(map(gt, after, rooms)):
            self._cluster.announce(LOAD_EASED, None, Easing(self, self._by_class(rooms), self._by_class(after)))

    def _by_class(self, rooms: list[int]) -> list[list[int]]:
        width = len(self.resources)
        return [rooms[:width], rooms[width:]]

    def _is_measured(self, load: NodeLoad, pod: Pod) -> bool:
        """Whether a pod on the node is known to add nothing."""
        if load.counts_all or load.young is None or self.estimator.has_windows:
            return False
        return pod.uid not in load.young

    def _not_measured(self, load: NodeLoad, measurement: Measurement) -> dict[str, Contribution]:
        """What the pods of a node add to its measured usage, by uid. Most are measured, which is cheap to check."""
        added: dict[str, Contribution] = {}
        pods, since, windows = self._cluster.pods_on(load.row), measurement.since, self.estimator.has_windows
        if load.young is None or load.latest > since or windows:
            load.young, load.latest = dict.fromkeys(pods), 0.0
        times_of, reports = self._times.of, measurement.reports
        young: dict[str, None] = {}
        for uid in load.young:
            pod = pods.get(uid)
            if pod is None:
                continue
            times = times_of(pod)
            if times is not None and 0 < times.placed <= since and not windows and reports(pod.key):
                load.latest = max(load.latest, times.placed)
                continue
            young[uid] = None
            each = self.contribution_of(load, pod)
            if each.node_delta is not None:
                added[uid] = Contribution(each.node_delta)
        load.young = young
        return added

    def _set_deadline(self, load: NodeLoad) -> None:
        """The row is to be worked out again when its report expires."""
        expiry = self.expires_at(load)
        left = expiry - self._clock.wall() if expiry is not None else 0.0
        self.states.note(load.name, left > 0 if load.measurement is not None else None)
        if left > 0:
            self._deadlines.set(load.row, self._clock.monotonic() + left)
        else:
            self._deadlines.clear(load.row)

    def _due(self, rows: Sequence[int]) -> None:
        for row in rows:
            load = self._by_name.get(self._cluster.table.names[row])
            if load is not None:
                self.refresh(load)

    def _replace_added(self, load: NodeLoad, added: dict[str, Contribution]) -> None:
        if not added and not load.added:
            return
        for uid in load.added.keys() - added.keys():
            if self._load_of.get(uid) is load:
                del self._load_of[uid]
        load.added = added
        for uid in added:
            self._load_of[uid] = load

    # --- what journals record --------------------------------------------------------------------------

    state_type = LoadState

    def recorded_state(self) -> LoadState:
        """See `framework.pluginstates.Keeper`."""
        return LoadState(
            self._first_seen,
            {load.name: load.measurement.at for load in self if load.measurement is not None},
            self.states.recorded_state(),
            self._deadlines.state(),
        )

    def restore_state(self, state: LoadState) -> None:
        """See `framework.pluginstates.Keeper`."""
        self._first_seen = dict(state.first_seen)
        self._deadlines.restore(state.deadlines)
        self.states.restore_state(state.reports)
        for load in self:
            at = state.made.get(load.name)
            if load.measurement is not None and at is not None:
                load.measurement.make(at)
            load.young = None
            if load.row >= 0:
                self._work_out(load)


def _read_quantities(text: str) -> Quantities:
    """Raises ValueError or RecursionError if any of it cannot be read."""
    quantities = msgspec.json.decode(text, type=Quantities)
    for quantity in quantities.values():
        parse(quantity)
    return quantities


def resources_of(args: LoadAwareSchedulingArgs) -> tuple[str, ...]:
    """The resources of all vectors: those that some argument names, by name (loadaware spec 2.4)."""
    aggregated = args.aggregated.usage_thresholds if args.aggregated is not None else {}
    return tuple(
        sorted(
            {
                "cpu",
                "memory",
                *args.usage_thresholds,
                *args.prod_usage_thresholds,
                *aggregated,
                *args.resource_weights,
                *args.estimated_scaling_factors,
                *args.supported_resources,
            }
        )
    )
