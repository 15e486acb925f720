"""How long attempts and job preemption take, as metrics (coscheduling spec 5)."""

import pytest
from prometheus_client import generate_latest

from koordsched.observability.metric_registry import MetricRegistry
from koordsched.plugins.coscheduling.metrics import AttemptTimes, job_size
from koordsched.plugins.coscheduling.preemption import NO_ROOM, SUCCESSFUL
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod


@pytest.mark.parametrize(
    ("members", "label"),
    [(0, "0"), (1, "1-100"), (100, "1-100"), (101, "101-200"), (1000, "901-1000"), (1001, "1000+")],
)
def test_sizes_of_jobs(members, label):
    assert job_size(members) == label


@pytest.mark.parametrize(
    ("priority", "result"), [(10, SUCCESSFUL), (0, NO_ROOM), (-1, NO_ROOM)], ids=["lower", "equal", "higher"]
)
def test_job_preemption_is_timed_by_its_result(priority, result):
    plugins = {point: {"enabled": [{"name": "Coscheduling"}]} for point in ("preEnqueue", "preFilter", "permit")}
    plugins["postFilter"] = {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]}
    args = {"name": "Coscheduling", "args": {"enablePreemption": True}}
    profile = {"schedulerName": "default-scheduler", "plugins": plugins, "pluginConfig": [args]}
    offline = scheduler([], profile)
    plugin = offline.profiles["default-scheduler"].plugins["Coscheduling"]
    registry, times = MetricRegistry(), iter(range(100))
    AttemptTimes(plugin.cache, registry, lambda: next(times))
    offline.add(node("alder", cpu="2"))
    offline.add(pod("there", container(cpu="2"), on="alder"))
    offline.add(pod("p", container(cpu="2"), priority=priority))
    attempt = offline.attempt("default/p")
    attempt.filter()
    attempt.post_filter()
    text = generate_latest(registry).decode()
    assert f'scheduler_job_preemption_duration_seconds_sum{{result="{result}"}} 1' in text
    assert "jobName" not in text


def test_explanations_are_no_attempts():
    plugins = {point: {"enabled": [{"name": "Coscheduling"}]} for point in ("preEnqueue", "reserve", "permit")}
    offline = scheduler([], {"schedulerName": "default-scheduler", "plugins": plugins})
    plugin = offline.profiles["default-scheduler"].plugins["Coscheduling"]
    registry = MetricRegistry()
    AttemptTimes(plugin.cache, registry, lambda: 0.0)
    offline.add(node("alder"))
    for name in ("a", "b"):
        made = pod(name, container(cpu="1"))
        made["metadata"]["annotations"] = {
            "gang.scheduling.koordinator.sh/name": "g",
            "gang.scheduling.koordinator.sh/min-available": "2",
        }
        offline.add(made)
    counted = "scheduler_gang_schedule_cycle_duration_seconds_count"
    assert offline.explain("default/a").job.complete
    assert counted not in generate_latest(registry).decode()
    assert offline.schedule("default/a").node == "alder"
    assert f'{counted}{{job_size="1-100",reason="gang is already succeed"}} 1.0' in generate_latest(registry).decode()
