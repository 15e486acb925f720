"""The metrics table: names, types, labels and buckets as users' dashboards and alerts know them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from koordsched.cluster.state import ClusterState
from koordsched.observability.exposition import render
from koordsched.observability.instruments import Histogram, exponential_buckets
from koordsched.observability.metric_options import MetricOptionError, MetricOptions, parse_metric_options
from koordsched.observability.metrics import Metrics


def text_of(metrics: Metrics) -> str:
    return asyncio.run(render(metrics, monotonic=lambda: 0.0)).decode()


def lines_of(metrics: Metrics, name: str) -> list[str]:
    return [line for line in text_of(metrics).splitlines() if line.startswith((f"{name}{{", f"{name} "))]


def le_of(metrics: Metrics, name: str) -> list[str]:
    return [line.split('le="')[1].split('"')[0] for line in lines_of(metrics, f"{name}_bucket")]


def make() -> Metrics:
    return Metrics(process_metrics=False)


class Counts:
    incoming = {("active", "UnschedulablePodAdd"): 3, ("backoff", "NodeAdd"): 1}
    unschedulable = {("NodeAffinity", "default-scheduler"): 2}


class Queue:
    counters = Counts()

    def pending(self) -> dict[str, int]:
        return {"active": 4, "backoff": 3, "unschedulable": 2, "gated": 1}

    def in_flight_events(self) -> dict[str, int]:
        return {"PodPopped": 1, "NodeAdd": 2}


ALL = {
    # Name, type and labels of every labelled metric in core spec 5.3; the unlabelled ones are in UNLABELLED.
    "scheduler_schedule_attempts_total": ("counter", "profile result"),
    "scheduler_scheduling_attempt_duration_seconds": ("histogram", "profile result"),
    "scheduler_pod_scheduling_sli_duration_seconds": ("histogram", "attempts"),
    "scheduler_framework_extension_point_duration_seconds": ("histogram", "extension_point profile status"),
    "scheduler_plugin_execution_duration_seconds": ("histogram", "extension_point plugin status"),
    "scheduler_plugin_evaluation_total": ("counter", "extension_point plugin profile"),
    "scheduler_queueing_hint_execution_duration_seconds": ("histogram", "event hint plugin"),
    "scheduler_event_handling_duration_seconds": ("histogram", "event"),
    "scheduler_inflight_events": ("gauge", "event"),
    "scheduler_pending_pods": ("gauge", "queue"),
    "scheduler_unschedulable_pods": ("gauge", "plugin profile"),
    "scheduler_queue_incoming_pods_total": ("counter", "event queue"),
    "scheduler_permit_wait_duration_seconds": ("histogram", "result"),
    "scheduler_cache_size": ("gauge", "type"),
    "scheduler_goroutines": ("gauge", "operation"),
    "scheduler_preemption_goroutines_duration_seconds": ("histogram", "result"),
    "scheduler_preemption_goroutines_execution_total": ("counter", "result"),
    "scheduler_batch_attempts_total": ("counter", "profile result"),
    "scheduler_batch_cache_flushed_total": ("counter", "profile reason"),
    "scheduler_get_node_hint_duration_seconds": ("histogram", "hinted profile"),
    "scheduler_store_schedule_results_duration_seconds": ("histogram", "profile"),
    "scheduler_async_api_call_execution_total": ("counter", "call_type result"),
    "scheduler_async_api_call_execution_duration_seconds": ("histogram", "call_type result"),
    "scheduler_pending_async_api_calls": ("gauge", "call_type"),
    "scheduler_resourceclaim_creates_total": ("counter", "status"),
    "scheduler_dra_bindingconditions_allocations_total": ("counter", "driver profile status"),
    "scheduler_dra_bindingconditions_wait_duration_seconds": ("histogram", "driver profile status"),
    "scheduler_volume_binder_cache_requests_total": ("counter", "operation"),
    "scheduler_volume_scheduling_stage_error_total": ("counter", "operation"),
    "scheduler_podgroup_schedule_attempts_total": ("counter", "profile result"),
    "scheduler_podgroup_scheduling_attempt_duration_seconds": ("histogram", "profile result"),
    "leader_election_master_status": ("gauge", "name"),
}
UNLABELLED = {
    "scheduler_scheduling_algorithm_duration_seconds": "histogram",
    "scheduler_pod_scheduling_attempts": "histogram",
    "scheduler_pod_scheduled_after_flush_total": "counter",
    "scheduler_preemption_attempts_total": "counter",
    "scheduler_preemption_victims": "histogram",
    "scheduler_podgroup_scheduling_algorithm_duration_seconds": "histogram",
}


def exercise(metrics: Metrics) -> None:
    """One series of everything."""
    metrics.observe_queue(Queue())
    metrics.observe_cluster(ClusterState())
    metrics.attempt("scheduled", "default-scheduler", 0.0123)
    metrics.scheduled(2, 0.5, after_flush=True)
    metrics.extension_point("Filter", "default-scheduler").observe(0.001)
    metrics.plugin("NodeAffinity", "Filter").observe(0.00001)
    metrics.evaluations("default-scheduler", (("NodeAffinity", "Filter"),)).inc()
    metrics.queueing_hint_duration.labels("NodeAffinity", "NodeAdd", "Queue").observe(0.00002)
    metrics.event_handling_duration.labels("NodeAdd").observe(0.0002)
    metrics.permit_wait_duration.labels("Success").observe(1.0)
    metrics.running("binding").inc()
    metrics.preemption_goroutines_duration.labels("success").observe(0.1)
    metrics.preemption_goroutines_execution.labels("success").inc()
    metrics.batch_attempts.labels("default-scheduler", "hint_used").inc()
    metrics.batch_cache_flushed.labels("default-scheduler", "expired").inc()
    metrics.get_node_hint_duration.labels("hint", "default-scheduler").observe(0.0001)
    metrics.store_schedule_results_duration.labels("default-scheduler").observe(0.0001)
    metrics.async_api_call_execution.labels("pod_binding", "success").inc()
    metrics.async_api_call_duration.labels("pod_binding", "success").observe(0.01)
    metrics.pending_async_api_calls.labels("pod_binding").set(3)
    metrics.resource_claim_creates.labels("success").inc()
    metrics.dra_binding_conditions_allocations.labels("default-scheduler", "gpu.example.com", "success").inc()
    metrics.dra_binding_conditions_wait.labels("default-scheduler", "gpu.example.com", "success").observe(1)
    metrics.volume_binder_cache_requests.labels("assume").inc()
    metrics.volume_scheduling_stage_error.labels("bind").inc()
    metrics.podgroup_schedule_attempts.labels("waiting_on_preemption", "default-scheduler").inc()
    metrics.podgroup_scheduling_attempt_duration.labels("scheduled", "default-scheduler").observe(1)
    metrics.podgroup_scheduling_algorithm_duration.labels().observe(1)
    metrics.leader_election_master_status.labels("kube-scheduler").set(1)


def test_the_whole_table_is_there() -> None:
    metrics = make()
    exercise(metrics)
    seen = {}
    for family in text_string_to_metric_families(text_of(metrics)):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        seen[name] = (family.type, " ".join(sorted(set(family.samples[0].labels) - {"le"})))
    expected = {**ALL, **{name: (kind, "") for name, kind in UNLABELLED.items()}}
    assert seen == expected


def test_the_text_says_what_prometheus_client_writes() -> None:
    metrics = make()
    exercise(metrics)
    metrics.event_handling_duration.labels('a"b\\c\nd').observe(float("inf"))
    for _ in range(1_000_000):
        metrics.preemption_victims.observe(0.3)
    library = generate_latest(metrics.registry).decode()
    assert list(text_string_to_metric_families(text_of(metrics))) == list(text_string_to_metric_families(library))


def test_nothing_unused_is_shown() -> None:
    names = {f.name for f in text_string_to_metric_families(text_of(make()))}
    assert names == {
        "scheduler_scheduling_algorithm_duration_seconds",
        "scheduler_pod_scheduling_sli_duration_seconds",
        "scheduler_pod_scheduling_attempts",
        "scheduler_pod_scheduled_after_flush",
        "scheduler_preemption_attempts",
        "scheduler_preemption_victims",
    }


@pytest.mark.parametrize(
    ("name", "count", "first", "last"),
    [
        ("scheduler_scheduling_attempt_duration_seconds", 15, "0.001", "16.384"),
        ("scheduler_scheduling_algorithm_duration_seconds", 15, "0.001", "16.384"),
        ("scheduler_pod_scheduling_attempts", 5, "1", "16"),
        ("scheduler_framework_extension_point_duration_seconds", 12, "0.0001", "0.2048"),
        ("scheduler_plugin_execution_duration_seconds", 20, "1e-05", "0.02216837820053101"),
        ("scheduler_queueing_hint_execution_duration_seconds", 20, "1e-05", "0.02216837820053101"),
        ("scheduler_event_handling_duration_seconds", 12, "0.0001", "0.2048"),
        ("scheduler_permit_wait_duration_seconds", 15, "0.001", "16.384"),
        ("scheduler_preemption_victims", 7, "1", "64"),
        ("scheduler_preemption_goroutines_duration_seconds", 20, "0.01", "5242.88"),
        ("scheduler_get_node_hint_duration_seconds", 12, "1e-05", "0.02048"),
        ("scheduler_store_schedule_results_duration_seconds", 12, "1e-05", "0.02048"),
        ("scheduler_async_api_call_execution_duration_seconds", 15, "0.001", "16.384"),
        ("scheduler_dra_bindingconditions_wait_duration_seconds", 14, "0.1", "819.2"),
        ("scheduler_podgroup_scheduling_attempt_duration_seconds", 15, "0.001", "16.384"),
        ("scheduler_podgroup_scheduling_algorithm_duration_seconds", 15, "0.001", "16.384"),
    ],
)
def test_buckets(name: str, count: int, first: str, last: str) -> None:
    metrics = make()
    exercise(metrics)
    bounds = le_of(metrics, name)
    assert (len(bounds), bounds[0], bounds[-2], bounds[-1]) == (count + 1, first, last, "+Inf")


def test_sli_buckets_and_attempt_labels() -> None:
    metrics = make()
    for attempts in (1, 14, 15, 16, 400):
        metrics.scheduled(attempts, 0.02)
    counts = dict(
        line.rsplit(" ", 1) for line in lines_of(metrics, "scheduler_pod_scheduling_sli_duration_seconds_count")
    )
    name = "scheduler_pod_scheduling_sli_duration_seconds_count"
    assert counts[f'{name}{{attempts="1"}}'] == "1"
    assert counts[f'{name}{{attempts="2"}}'] == "0"
    assert counts[f'{name}{{attempts="14"}}'] == "1"
    assert counts[f'{name}{{attempts="15+"}}'] == "3"
    assert len(counts) == 15


def test_histogram_text() -> None:
    metrics = make()
    for victims in (1, 2, 3, 65):
        metrics.preemption_victims.observe(victims)
    text = text_of(metrics)
    start = text.index("# HELP scheduler_preemption_victims")
    assert text[start:].splitlines()[:12] == [
        "# HELP scheduler_preemption_victims [STABLE] Pods selected as victims of preemption.",
        "# TYPE scheduler_preemption_victims histogram",
        'scheduler_preemption_victims_bucket{le="1"} 1',
        'scheduler_preemption_victims_bucket{le="2"} 2',
        'scheduler_preemption_victims_bucket{le="4"} 3',
        'scheduler_preemption_victims_bucket{le="8"} 3',
        'scheduler_preemption_victims_bucket{le="16"} 3',
        'scheduler_preemption_victims_bucket{le="32"} 3',
        'scheduler_preemption_victims_bucket{le="64"} 3',
        'scheduler_preemption_victims_bucket{le="+Inf"} 4',
        "scheduler_preemption_victims_sum 71.0",
        "scheduler_preemption_victims_count 4",
    ]


def test_readings_of_the_queue() -> None:
    metrics = make()
    metrics.observe_queue(Queue())
    assert lines_of(metrics, "scheduler_pending_pods") == [
        'scheduler_pending_pods{queue="active"} 4.0',
        'scheduler_pending_pods{queue="backoff"} 3.0',
        'scheduler_pending_pods{queue="gated"} 1.0',
        'scheduler_pending_pods{queue="unschedulable"} 2.0',
    ]
    assert lines_of(metrics, "scheduler_queue_incoming_pods_total") == [
        'scheduler_queue_incoming_pods_total{event="UnschedulablePodAdd",queue="active"} 3.0',
        'scheduler_queue_incoming_pods_total{event="NodeAdd",queue="backoff"} 1.0',
    ]
    assert lines_of(metrics, "scheduler_unschedulable_pods") == [
        'scheduler_unschedulable_pods{plugin="NodeAffinity",profile="default-scheduler"} 2.0'
    ]


def test_a_replica_that_does_not_lead_shows_no_queue() -> None:
    leading = False
    metrics = Metrics(process_metrics=False, leads=lambda: leading)
    metrics.observe_queue(Queue())
    metrics.observe_cluster(ClusterState())
    metrics.read("koordsched_workers", "Of the leader.", lambda: 3.0, of_leader=True)
    queues = ("scheduler_pending_pods", "scheduler_inflight_events", "scheduler_unschedulable_pods")
    names = (*queues, "scheduler_queue_incoming_pods_total", "koordsched_workers")
    assert [name for name in names if name in text_of(metrics)] == []
    assert [name for name in names if name in generate_latest(metrics.registry).decode()] == []
    assert lines_of(metrics, "scheduler_cache_size")
    leading = True
    assert [len(lines_of(metrics, name)) for name in names] == [4, 2, 1, 2, 1]
    leading = False
    assert [name for name in names if lines_of(metrics, name)] == []


def test_plans_are_taken_apart_at_scrape() -> None:
    metrics = make()
    whole = metrics.evaluations("p", (("A", "PreFilter"), ("A", "Filter"), ("B", "Filter")))
    part = metrics.evaluations("p", (("A", "Filter"),))
    assert metrics.evaluations("p", (("A", "Filter"),)) is part
    whole.inc(5)
    part.inc(2)
    assert lines_of(metrics, "scheduler_plugin_evaluation_total") == [
        'scheduler_plugin_evaluation_total{extension_point="Filter",plugin="A",profile="p"} 7.0',
        'scheduler_plugin_evaluation_total{extension_point="PreFilter",plugin="A",profile="p"} 5.0',
        'scheduler_plugin_evaluation_total{extension_point="Filter",plugin="B",profile="p"} 5.0',
    ]


def test_disabled_metrics_and_allowed_labels() -> None:
    options = parse_metric_options(
        disabled_metrics=["scheduler_preemption_victims", " "],
        allow_metric_labels=["scheduler_goroutines,operation=binding", "scheduler_goroutines,operation=Filter"],
        show_hidden_metrics_for_version="1.35",
    )
    metrics = Metrics(options, process_metrics=False)
    for operation in ("binding", "Filter", "x", "y", "x"):
        metrics.running(operation).inc()
    assert "scheduler_preemption_victims" not in text_of(metrics)
    assert lines_of(metrics, "scheduler_goroutines") == [
        'scheduler_goroutines{operation="Filter"} 1.0',
        'scheduler_goroutines{operation="binding"} 1.0',
        'scheduler_goroutines{operation="unexpected"} 3.0',
    ]


@pytest.mark.parametrize(
    ("parse", "message"),
    [
        (
            lambda: parse_metric_options(show_hidden_metrics_for_version="1.36"),
            "--show-hidden-metrics-for-version must be omitted or have the value '1.35', not '1.36'",
        ),
        (
            lambda: parse_metric_options(allow_metric_labels=["metric=value"]),
            "--allow-metric-labels: 'metric=value' is not of the form",
        ),
    ],
)
def test_bad_options(parse: Callable[[], MetricOptions], message: str) -> None:
    with pytest.raises(MetricOptionError, match=message):
        parse()


def test_wrong_use_is_refused() -> None:
    metrics = make()
    with pytest.raises(ValueError, match="takes the labels"):
        metrics.schedule_attempts.labels("scheduled")
    with pytest.raises(ValueError, match="already"):
        metrics.read("scheduler_goroutines", "again", lambda: 1)


def test_label_values_are_escaped() -> None:
    metrics = make()
    metrics.running('a"b\\c\nd').inc()
    assert lines_of(metrics, "scheduler_goroutines") == ['scheduler_goroutines{operation="a\\"b\\\\c\\nd"} 1.0']


def test_process_metrics_are_there() -> None:
    assert "process_resident_memory_bytes" in text_of(Metrics())


def test_a_value_on_a_bound_belongs_to_it() -> None:
    histogram = Histogram(exponential_buckets(1, 2, 3))
    for value in (0, 1, 1.5, 2, 4, 5):
        histogram.observe(value)
    assert (histogram.counts, histogram.sum, histogram.count) == ([2, 2, 1, 1], 13.5, 6)


async def test_the_loop_gets_its_turn_while_a_large_family_is_written() -> None:
    metrics = make()
    for number in range(400):
        metrics.event_handling_duration.labels(f"event-{number:03}").observe(0.001)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count_turns())
    now = iter(range(1_000_000))
    text = await render(metrics, monotonic=lambda: float(next(now)), slice_seconds=0.5)
    other.cancel()
    assert turns >= 400
    families = {f.name: f for f in text_string_to_metric_families(text.decode())}
    assert len(families["scheduler_event_handling_duration_seconds"].samples) == 400 * 15
    assert text.count(b"# HELP scheduler_event_handling_duration_seconds") == 1
