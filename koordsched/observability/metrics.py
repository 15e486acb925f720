"""Every metric of the scheduler, by its name in kube-scheduler (core spec 5.3; `pkg/scheduler/metrics/metrics.go`).

The hot path writes plain numbers (`instruments`); what other parts of the scheduler count for themselves is read from
them at scrape. Names that begin with `koordsched_` are ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client.process_collector import ProcessCollector

from koordsched.cluster.state import ClusterState
from koordsched.observability.instruments import Counter, CounterFamily, Gauge, Histogram, exponential_buckets
from koordsched.observability.metric_options import MetricOptions
from koordsched.observability.metric_registry import MetricRegistry
from koordsched.queue.queue import SchedulingQueue

Plan = tuple[tuple[str, str], ...]
"""The (plugin, extension point) pairs that one scheduling attempt evaluates."""

MAX_ATTEMPTS_LABEL = 15

_ATTEMPT_BUCKETS = exponential_buckets(0.001, 2, 15)
_HANDLING_BUCKETS = exponential_buckets(0.0001, 2, 12)
_PLUGIN_BUCKETS = exponential_buckets(0.00001, 1.5, 20)
_HINT_BUCKETS = exponential_buckets(0.00001, 2, 12)
_PAUSE_BUCKETS = exponential_buckets(0.0001, 2, 14)


class Metrics(MetricRegistry):
    """All metrics of one scheduler. Attributes are families; on a hot path keep what `labels(...)` returns."""

    def __init__(
        self,
        options: MetricOptions | None = None,
        *,
        process_metrics: bool = True,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(options, leads)
        if process_metrics:
            self.add_collector(ProcessCollector(registry=None))

        # Attempts
        self.schedule_attempts = self.counters(
            "scheduler_schedule_attempts_total",
            "Scheduling attempts by result; 'error' is a problem of the scheduler, 'unschedulable' one of the pod.",
            ("result", "profile"),
            "STABLE",
        )
        self.scheduling_attempt_duration = self.histograms(
            "scheduler_scheduling_attempt_duration_seconds",
            "Time of one attempt, from taking the pod off the queue to the end of its binding.",
            ("result", "profile"),
            _ATTEMPT_BUCKETS,
            "STABLE",
        )
        self.scheduling_algorithm_duration = self.histograms(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Time to choose a node.",
            (),
            _ATTEMPT_BUCKETS,
        ).labels()
        self.pod_scheduling_sli_duration = self.histograms(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Time from a pod's first entry into the active queue until it is bound, by number of attempts.",
            ("attempts",),
            exponential_buckets(0.01, 2, 20),
            "BETA",
        )
        self.pod_scheduling_attempts = self.histograms(
            "scheduler_pod_scheduling_attempts",
            "Attempts it took to schedule a pod.",
            (),
            exponential_buckets(1, 2, 5),
            "STABLE",
        ).labels()
        self.pod_scheduled_after_flush = self.counters(
            "scheduler_pod_scheduled_after_flush_total",
            "Pods scheduled after a timeout, instead of an event, returned them to the queue.",
        ).labels()

        # Framework
        self.extension_point_duration = self.histograms(
            "scheduler_framework_extension_point_duration_seconds",
            "Time of all plugins of an extension point together.",
            ("extension_point", "status", "profile"),
            _HANDLING_BUCKETS,
            "STABLE",
        )
        self.plugin_execution_duration = self.histograms(
            "scheduler_plugin_execution_duration_seconds",
            "Time of one plugin at one extension point, measured in a tenth of the cycles.",
            ("plugin", "extension_point", "status"),
            _PLUGIN_BUCKETS,
        )
        self.permit_wait_duration = self.histograms(
            "scheduler_permit_wait_duration_seconds",
            "Time that pods waited for permission to be bound.",
            ("result",),
            _ATTEMPT_BUCKETS,
            "BETA",
        )
        self.goroutines = self.gauges(
            "scheduler_goroutines", "Concurrent pieces of work under way, by what they do.", ("operation",), "BETA"
        )
        self._evaluations: dict[tuple[str, Plan], Counter] = {}
        self.read(
            "scheduler_plugin_evaluation_total",
            "Attempts in which a plugin was evaluated at an extension point, without those that it skipped.",
            self._plugin_evaluations,
            ("plugin", "extension_point", "profile"),
            "BETA",
        )

        # Events from the cluster
        self.queueing_hint_duration = self.histograms(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Time to ask a plugin whether an event may help the pods it rejected.",
            ("plugin", "event", "hint"),
            _PLUGIN_BUCKETS,
        )
        self.event_handling_duration = self.histograms(
            "scheduler_event_handling_duration_seconds",
            "Time to handle an event from the cluster.",
            ("event",),
            _HANDLING_BUCKETS,
        )

        # Preemption
        self.preemption_attempts = self.counters(
            "scheduler_preemption_attempts_total", "Attempts to make room for a pod.", (), "STABLE"
        ).labels()
        self.preemption_victims = self.histograms(
            "scheduler_preemption_victims",
            "Pods selected as victims of preemption.",
            (),
            exponential_buckets(1, 2, 7),
            "STABLE",
        ).labels()
        self.preemption_goroutines_duration = self.histograms(
            "scheduler_preemption_goroutines_duration_seconds",
            "Time to evict the victims of one preemption.",
            ("result",),
            exponential_buckets(0.01, 2, 20),
        )
        self.preemption_goroutines_execution = self.counters(
            "scheduler_preemption_goroutines_execution_total",
            "Evictions of all victims of one preemption.",
            ("result",),
        )

        # Answers without a full cycle
        self.batch_attempts = self.counters(
            "scheduler_batch_attempts_total",
            "Attempts to reuse the result of an equal pod.",
            ("profile", "result"),
        )
        self.batch_cache_flushed = self.counters(
            "scheduler_batch_cache_flushed_total",
            "Times that results kept for equal pods were discarded.",
            ("profile", "reason"),
        )
        self.get_node_hint_duration = self.histograms(
            "scheduler_get_node_hint_duration_seconds",
            "Time to look for a reusable result.",
            ("hinted", "profile"),
            _HINT_BUCKETS,
        )
        self.store_schedule_results_duration = self.histograms(
            "scheduler_store_schedule_results_duration_seconds",
            "Time to keep a result for equal pods.",
            ("profile",),
            _HINT_BUCKETS,
        )

        # Writes through the dispatcher (feature gate SchedulerAsyncAPICalls)
        self.async_api_call_execution = self.counters(
            "scheduler_async_api_call_execution_total", "Dispatched API calls.", ("call_type", "result")
        )
        self.async_api_call_duration = self.histograms(
            "scheduler_async_api_call_execution_duration_seconds",
            "Time of dispatched API calls.",
            ("call_type", "result"),
            _ATTEMPT_BUCKETS,
        )
        self.pending_async_api_calls = self.gauges(
            "scheduler_pending_async_api_calls", "API calls that wait to be dispatched.", ("call_type",)
        )

        # Plugins with metrics of their own
        self.resource_claim_creates = self.counters(
            "scheduler_resourceclaim_creates_total", "Requests to create a ResourceClaim.", ("status",)
        )
        self.dra_binding_conditions_allocations = self.counters(
            "scheduler_dra_bindingconditions_allocations_total",
            "Allocations of devices with binding conditions.",
            ("profile", "driver", "status"),
        )
        self.dra_binding_conditions_wait = self.histograms(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Time that pods waited for the binding conditions of devices.",
            ("profile", "driver", "status"),
            exponential_buckets(0.1, 2, 14),
        )
        # Registered and never counted, there as here: upstream's cache of bindings is gone since 1.20.
        self.volume_binder_cache_requests = self.counters(
            "scheduler_volume_binder_cache_requests_total", "Requests to the cache of volume bindings.", ("operation",)
        )
        self.volume_scheduling_stage_error = self.counters(
            "scheduler_volume_scheduling_stage_error_total", "Failures in a stage of volume scheduling.", ("operation",)
        )

        # Pod groups (feature gate GenericWorkload); an unlabelled series appears with its first value only
        self.podgroup_schedule_attempts = self.counters(
            "scheduler_podgroup_schedule_attempts_total", "Attempts to schedule a pod group.", ("result", "profile")
        )
        self.podgroup_scheduling_attempt_duration = self.histograms(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "Time of one attempt to schedule a pod group.",
            ("result", "profile"),
            _ATTEMPT_BUCKETS,
        )
        self.podgroup_scheduling_algorithm_duration = self.histograms(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Time to choose the nodes of a pod group.",
            (),
            _ATTEMPT_BUCKETS,
        )

        # Leader election
        self.leader_election_master_status = self.gauges(
            "leader_election_master_status", "1 on the replica that holds the lease of this name, else 0.", ("name",)
        )

        # Ours
        self.gc_pause = self.histograms(
            "koordsched_gc_pause_seconds",
            "Time that the interpreter stood still for a garbage collection.",
            ("generation",),
            _PAUSE_BUCKETS,
        )

        self._counted: dict[str, CounterFamily] = {
            family.name: family
            for family in (
                self.resource_claim_creates,
                self.dra_binding_conditions_allocations,
                self.volume_scheduling_stage_error,
            )
        }
        self._observed = {self.dra_binding_conditions_wait.name: self.dra_binding_conditions_wait}
        self._attempts: dict[tuple[str, str], tuple[Counter, Histogram]] = {}
        self._sli = [self.pod_scheduling_sli_duration.labels(a) for a in self._attempt_labels()]

    # --- what the scheduling loop calls ---------------------------------------------------------

    def attempt(self, result: str, profile: str, seconds: float) -> None:
        """One attempt ended; `result` is scheduled, unschedulable or error."""
        bound = self._attempts.get((result, profile))
        if bound is None:
            bound = self._attempts[result, profile] = (
                self.schedule_attempts.labels(result, profile),
                self.scheduling_attempt_duration.labels(result, profile),
            )
        bound[0].value += 1
        bound[1].observe(seconds)

    def scheduled(self, attempts: int, seconds: float, after_flush: bool = False) -> None:
        """A pod was bound after this many attempts and seconds in the queues and cycles."""
        self._sli[min(attempts, MAX_ATTEMPTS_LABEL) - 1].observe(seconds)
        self.pod_scheduling_attempts.observe(attempts)
        if after_flush:
            self.pod_scheduled_after_flush.value += 1

    def extension_point(self, point: str, profile: str, status: str = "Success") -> Histogram:
        """Seconds that an extension point took with this outcome."""
        return self.extension_point_duration.labels(point, status, profile)

    def plugin(self, plugin: str, point: str, status: str = "Success") -> Histogram:
        """Seconds that a plugin took at an extension point with this outcome; to be sampled."""
        return self.plugin_execution_duration.labels(plugin, point, status)

    def evaluations(self, profile: str, plan: Plan) -> Counter:
        """Attempts that evaluated exactly these plugins. Kept per plan, so an attempt costs one increment, not one
        per plugin; the plans are taken apart at scrape."""
        return self._evaluations.setdefault((profile, plan), Counter())

    def count(self, metric: str, *labels: str) -> None:
        """One more of a counter of ours, by name: for plugins. Raises KeyError for an unknown one."""
        self._counted[metric].labels(*labels).value += 1

    def observe(self, metric: str, value: float, *labels: str) -> None:
        """A value of a histogram of ours, by name: for plugins. Raises KeyError for an unknown one."""
        self._observed[metric].labels(*labels).observe(value)

    def running(self, operation: str) -> Gauge:
        """How many pieces of this work are under way."""
        return self.goroutines.labels(operation)

    # --- what others count, read at scrape ------------------------------------------------------

    def observe_queue(self, queue: SchedulingQueue[Any]) -> None:
        """Shows what the scheduling queue knows, while this replica leads: one that does not takes no pod off it."""
        self.read(
            "scheduler_pending_pods",
            "Pods that wait, by queue; those in 'gated' were never tried.",
            queue.pending,
            ("queue",),
            "STABLE",
            of_leader=True,
        )
        self.read(
            "scheduler_inflight_events",
            "Events kept for the pods that are being scheduled.",
            queue.in_flight_events,
            ("event",),
            of_leader=True,
        )
        self.read(
            "scheduler_unschedulable_pods",
            "Pods that a plugin rejected; one rejected by several counts for each.",
            lambda: queue.counters.unschedulable,
            ("plugin", "profile"),
            "BETA",
            of_leader=True,
        )
        self.read(
            "scheduler_queue_incoming_pods_total",
            "Pods that entered a queue, by the event that brought them there.",
            lambda: queue.counters.incoming,
            ("queue", "event"),
            "STABLE",
            of_leader=True,
        )

    def observe_cluster(self, cluster: ClusterState) -> None:
        """Shows the size of the cluster state."""
        self.read(
            "scheduler_cache_size",
            "Nodes, pods on nodes, and pods among these whose binding is not confirmed.",
            lambda: {
                "nodes": len(cluster.table.row_of),
                "pods": len(cluster.assigned),
                "assumed_pods": len(cluster.assumed),
            },
            ("type",),
        )

    def _plugin_evaluations(self) -> Mapping[tuple[str, ...], float]:
        totals: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for (profile, plan), counter in self._evaluations.items():
            for plugin, point in plan:
                totals[plugin, point, profile] += counter.value
        return totals

    @staticmethod
    def _attempt_labels() -> list[str]:
        return [str(n) for n in range(1, MAX_ATTEMPTS_LABEL)] + [f"{MAX_ATTEMPTS_LABEL}+"]
