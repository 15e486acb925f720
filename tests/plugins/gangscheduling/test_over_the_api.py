"""Pod groups of Kubernetes' own over the embedded API server (coscheduling spec, Appendix A)."""

import asyncio

import pytest

from koordsched.framework.interface import PreFilter
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.plugins.gangscheduling.plugin import GangScheduling
from tests.embedded import DEFAULT_CONFIG
from tests.plugins.gangscheduling.running import API, PodGroupCluster, scheduling
from tests.virtualtime import run

SOON = 2.0
"""Seconds in which an attempt is over, and its outcome written."""

FEASIBLE = (
    "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)
NOT_ENOUGH = "waiting for minCount pods from a gang to appear in scheduling queue"


TWO_SCHEDULERS = {**DEFAULT_CONFIG, "profiles": [{"schedulerName": name} for name in ("default-scheduler", "other")]}


def on_cluster(scenario, nodes=("n1",), cpu="8", before=None, **more):
    async def main():
        cluster = PodGroupCluster(nodes, cpu)
        if before is not None:
            before(cluster)
        async with scheduling(cluster, **more) as running:
            await scenario(cluster, running)

    run(main(), limit=10 * 86400.0)


def gating(running, name):
    queued = running.scheduler.queue.get(f"default/{name}")
    return queued.gating_reason if queued is not None else None


def test_coscheduling_case_28():
    async def scenario(cluster, running):
        cluster.group(3)
        cluster.members(2)
        await asyncio.sleep(SOON)
        assert [gating(running, name) for name in ("m-1", "m-2")] == [NOT_ENOUGH, NOT_ENOUGH]
        assert (cluster.placed(), cluster.condition()) == ({}, None)
        cluster.member("m-3")
        await asyncio.sleep(SOON)
        assert cluster.placed() == dict.fromkeys(("m-1", "m-2", "m-3"), "n1")
        assert cluster.condition() == ("True", "Scheduled", "")

    on_cluster(scenario)


def test_coscheduling_case_29():
    async def scenario(cluster, running):
        cluster.group(2)
        cluster.members(2, cpu="8")
        await asyncio.sleep(SOON)
        assert cluster.condition() == ("False", "Unschedulable", "pod group is unschedulable")
        failed = cluster.full_condition()
        cluster.node("n2")
        await asyncio.sleep(30)
        scheduled = cluster.full_condition()
        assert (scheduled["status"], scheduled["reason"], scheduled["observedGeneration"]) == ("True", "Scheduled", 1)
        assert scheduled["lastTransitionTime"] > failed["lastTransitionTime"]
        assert set(cluster.placed()) == {"m-1", "m-2"}
        cluster.member("m-3")
        await asyncio.sleep(30)
        assert running.attempts["default/m-3"] > 1
        assert cluster.full_condition() == scheduled

    on_cluster(scenario)


def test_pods_wait_for_their_group():
    async def scenario(cluster, running):
        cluster.members(2)
        await asyncio.sleep(10)
        text = 'waiting for pods\'s pod group "g" to appear in scheduling queue'
        assert gating(running, "m-1") == text
        assert text in cluster.says("m-1", "koordsched.io/Waiting")[1]
        cluster.group(2)
        await asyncio.sleep(SOON)
        assert set(cluster.placed()) == {"m-1", "m-2"}

    on_cluster(scenario)


def test_members_that_have_a_place_wait_for_the_others_and_all_say_why():
    async def scenario(cluster, running):
        cluster.group(3)
        cluster.members(3, cpu="4")
        await asyncio.sleep(SOON)
        assert cluster.placed() == {}
        assert [cluster.says(f"m-{number}") for number in (1, 2)] == [("Unschedulable", FEASIBLE)] * 2
        assert cluster.says("m-3") == (
            "Unschedulable",
            "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
            "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.",
        )
        assert not any(cluster.nominated(f"m-{number}") for number in (1, 2, 3))

    on_cluster(scenario)


def test_members_without_a_place_do_not_keep_the_others_from_theirs():
    """Members beyond minCount are tried, also after one that does not fit."""

    async def scenario(cluster, running):
        cluster.group(2)
        cluster.member("m-1")
        cluster.member("m-2", cpu="100", priority=10)
        cluster.member("m-3")
        cluster.member("m-4")
        await asyncio.sleep(SOON)
        assert set(cluster.placed()) == {"m-1", "m-3", "m-4"}
        assert cluster.says("m-2")[0] == "Unschedulable"
        assert cluster.condition() == ("True", "Scheduled", "")

    on_cluster(scenario)


def test_a_basic_group_runs_as_far_as_there_is_room():
    async def scenario(cluster, running):
        cluster.group(0)
        cluster.members(10)
        await asyncio.sleep(SOON)
        assert len(cluster.placed()) == 8
        assert cluster.condition() == ("True", "Scheduled", "")

    on_cluster(scenario)


def test_a_failing_group_is_tried_again_after_its_back_off_and_not_before():
    async def scenario(cluster, running):
        cluster.group(2)
        cluster.members(2, cpu="8")
        await asyncio.sleep(60)
        attempts = sum(running.attempts.get(f"default/m-{number}", 0) for number in (1, 2))
        assert 5 <= attempts <= 12

    on_cluster(scenario)


def test_members_of_different_schedulers_are_an_error():
    async def scenario(cluster, running):
        cluster.group(2)
        cluster.member("m-1", priority=1)
        cluster.member("m-2", schedulerName="other")
        await asyncio.sleep(SOON)
        text = (
            "all pods in a single pod group should have the same .spec.schedulerName set, "
            'got: "other" and "default-scheduler"'
        )
        assert [cluster.says(name) for name in ("m-1", "m-2")] == [("SchedulerError", text)] * 2
        assert (cluster.placed(), cluster.condition()) == ({}, None)

    on_cluster(scenario, config=TWO_SCHEDULERS)


@pytest.mark.parametrize(
    ("second", "placed"),
    [({}, ["m-1", "m-2"]), ({"cpu": "100"}, []), ({"schedulerName": "other"}, [])],
    ids=["all fit", "one does not", "they have different schedulers"],
)
def test_the_plugin_hears_of_the_end_of_an_attempt_and_who_stays(second, placed, monkeypatch):
    heard = []
    monkeypatch.setattr(GangScheduling, "end_job", lambda plugin, job, pods, resting: heard.append(list(pods)))

    async def scenario(cluster, running):
        cluster.group(2)
        cluster.member("m-1", priority=1)
        cluster.member("m-2", **second)
        await asyncio.sleep(0.5)
        assert [[pod.name for pod in pods] for pods in heard] == [placed]

    on_cluster(scenario, config=TWO_SCHEDULERS)


def test_pods_of_another_scheduler_count_once_they_are_placed():
    async def scenario(cluster, running):
        cluster.group(2)
        cluster.member("m-1")
        cluster.member("foreign", schedulerName="not-ours")
        await asyncio.sleep(SOON)
        assert cluster.says("m-1") == ("Unschedulable", FEASIBLE)
        status, _ = await cluster.call(
            "POST",
            "/api/v1/namespaces/default/pods/foreign/binding",
            {"metadata": {"name": "foreign"}, "target": {"kind": "Node", "name": "n1"}},
        )
        assert status == 201
        await asyncio.sleep(20)
        assert set(cluster.placed()) == {"m-1", "foreign"}

    on_cluster(scenario)


def test_a_group_that_needs_room_waits_for_all_evictions_together():
    """Victims are evicted for all members that need room; the others are nominated to where they have a place."""

    async def scenario(cluster, running):
        cluster.member("low", group="", cpu="8", node="n1", priority=1)
        cluster.group(2)
        cluster.members(2, cpu="8", priority=10)
        await asyncio.sleep(0.5)
        assert cluster.condition() == (
            "False",
            "Unschedulable",
            "pod group is unschedulable, pod group is waiting for preemption to complete",
        )
        assert {cluster.nominated("m-1"), cluster.nominated("m-2")} == {"n1", "n2"}
        await asyncio.sleep(5)
        assert cluster.placed() == {}
        await cluster.delete("low")  # as the node agent does once its containers have ended
        await asyncio.sleep(30)
        assert set(cluster.placed()) == {"m-1", "m-2"}
        assert cluster.condition() == ("True", "Scheduled", "")

    on_cluster(scenario, nodes=("n1", "n2"))


def test_a_member_that_preempts_no_pods_counts_on_the_room_that_is_made_for_another():
    async def scenario(cluster, running):
        cluster.member("low", group="", cpu="8", node="n1", priority=1)
        cluster.group(2)
        cluster.member("m-1", cpu="4", priority=10)
        cluster.member("m-2", cpu="4", priority=10, preemptionPolicy="Never")
        await asyncio.sleep(SOON)
        assert cluster.get("Pod", "low")["metadata"]["deletionTimestamp"]
        await cluster.delete("low")
        await asyncio.sleep(30)
        assert cluster.placed() == {"m-1": "n1", "m-2": "n1"}

    on_cluster(scenario)


def test_no_pod_is_evicted_for_a_group_that_does_not_fit_even_then():
    async def scenario(cluster, running):
        cluster.member("low", group="", cpu="8", node="n1", priority=1)
        cluster.group(2)
        cluster.members(2, cpu="8", priority=10)
        await asyncio.sleep(30)
        assert cluster.placed() == {"low": "n1"}
        assert cluster.condition() == ("False", "Unschedulable", "pod group is unschedulable")

    on_cluster(scenario)


@pytest.mark.parametrize("minimum", [2**31 - 1, 2**62])
def test_a_huge_min_count_keeps_pods_out(minimum):
    async def scenario(cluster, running):
        cluster.insert(
            {
                "apiVersion": API,
                "kind": "PodGroup",
                "metadata": {"name": "g"},
                "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
            }
        )
        cluster.members(2)
        await asyncio.sleep(SOON)
        assert gating(running, "m-1") == NOT_ENOUGH
        cluster.member("other", group="")
        await asyncio.sleep(SOON)
        assert set(cluster.placed()) == {"other"}

    on_cluster(scenario)


def test_a_group_without_policy_is_reported_and_scheduled_as_basic():
    async def scenario(cluster, running):
        cluster.insert({"apiVersion": API, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {}})
        cluster.members(2)
        await asyncio.sleep(SOON)
        assert set(cluster.placed()) == {"m-1", "m-2"}
        notes = [event["note"] for event in cluster.events() if event["reason"] == "InvalidPodGroup"]
        assert notes == ["spec.schedulingPolicy has neither basic nor gang: its pods are scheduled as with basic"]

    on_cluster(scenario)


def test_a_group_that_is_deleted_keeps_its_pods_out_again():
    async def scenario(cluster, running):
        cluster.group(2)
        cluster.members(2, cpu="8")
        await asyncio.sleep(SOON)
        await cluster.delete("g", kind="podgroups", api=f"/apis/{API}")
        await asyncio.sleep(30)
        assert gating(running, "m-1") == 'waiting for pods\'s pod group "g" to appear in scheduling queue'

    on_cluster(scenario)


def test_gated_and_terminating_members_take_no_part():
    async def scenario(cluster, running):
        cluster.group(2)
        cluster.members(1)
        cluster.member("gated", schedulingGates=[{"name": "example.com/wait"}])
        await asyncio.sleep(SOON)
        assert cluster.placed() == {}
        cluster.member("m-2")
        await asyncio.sleep(20)
        assert set(cluster.placed()) == {"m-1", "m-2"}

    on_cluster(scenario)


def test_without_the_gates_groups_mean_nothing():
    async def scenario(cluster, running):
        cluster.members(2)
        await asyncio.sleep(SOON)
        assert set(cluster.placed()) == {"m-1", "m-2"}
        assert running.scheduler.cluster.objects.at(f"/apis/{API}/podgroups") is None

    on_cluster(scenario, gates=())


def test_a_restart_counts_the_members_that_are_bound():
    async def scenario(cluster, running):
        await asyncio.sleep(SOON)
        assert cluster.condition() == ("True", "Scheduled", "")
        cluster.member("m-3")
        await asyncio.sleep(SOON)
        assert "m-3" in cluster.placed()

    def before(cluster):
        cluster.group(2)
        cluster.members(2, node="n1")

    on_cluster(scenario, before=before)


def test_attempts_are_counted_by_how_they_end():
    async def scenario(cluster, running):
        cluster.group(2)
        cluster.members(2, cpu="8")
        await asyncio.sleep(SOON)
        cluster.node("n2")
        await asyncio.sleep(30)
        metrics = running.scheduler.metrics
        counted = metrics.podgroup_schedule_attempts
        assert counted.labels("scheduled", "default-scheduler").value == 1
        failures = counted.labels("unschedulable", "default-scheduler").value
        assert failures >= 1
        attempts = metrics.podgroup_scheduling_attempt_duration
        assert attempts.labels("scheduled", "default-scheduler").count == 1
        assert attempts.labels("unschedulable", "default-scheduler").count == failures
        assert metrics.podgroup_scheduling_algorithm_duration.labels().count == failures + 1

    on_cluster(scenario)


def test_an_error_of_one_member_ends_the_attempt_for_all():
    class Breaks(PreFilter):
        name = "Breaks"

        def __init__(self, args, handle):
            pass

        def pre_filter(self, cycle, pod):
            return Status(Code.ERROR, ("it broke",)) if pod.name == "m-1" else SUCCESS

    async def scenario(cluster, running):
        cluster.group(2)
        cluster.member("m-2", priority=5)
        cluster.member("m-1", priority=3)
        cluster.member("m-3", priority=1)
        await asyncio.sleep(SOON)
        own = 'running PreFilter plugin "Breaks": it broke'
        group = f"failed to schedule other pod from a pod group: {own}"
        assert cluster.placed() == {}
        assert [cluster.says(name) for name in ("m-2", "m-1", "m-3")] == [
            ("SchedulerError", group),
            ("SchedulerError", own),
            ("SchedulerError", group),
        ]
        assert cluster.condition() == ("False", "SchedulerError", group)

    on_cluster(scenario, plugins=[Breaks])
