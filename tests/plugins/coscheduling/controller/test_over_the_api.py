"""What is written to PodGroups while pods of a gang come, are bound, run and end (coscheduling spec 3.12)."""

import asyncio
import json
from itertools import pairwise

import pytest

from tests.plugins.coscheduling.running import API, GANG, LABEL, GangCluster, scheduling
from tests.virtualtime import run

DAY = 86400.0
SOON = 2.0
"""Seconds in which a status has settled."""


def on_cluster(scenario, leads=True, **more):
    async def main():
        cluster = GangCluster()
        if hasattr(scenario, "before"):
            scenario.before(cluster)
        async with scheduling(cluster, leads=leads, **more) as running:
            await scenario(cluster, running)

    run(main(), limit=10 * DAY)


def test_the_phases_of_a_gang():
    async def scenario(cluster, running):
        cluster.group()
        assert await cluster.phases(SOON) == ["", "Pending"]
        cluster.members(3, owners=["job"])
        assert await cluster.phases(SOON) == ["Pending", "Scheduled"]
        assert cluster.status() == {"phase": "Scheduled", "scheduled": 3, "occupiedBy": "default/job"}
        assert cluster.get("PodGroup", "g", api_version=API)["status"]["scheduleStartTime"]
        await cluster.becomes("Running", "m-1", "m-2")
        await asyncio.sleep(SOON)
        assert cluster.status() == {"phase": "Scheduled", "scheduled": 3, "running": 2, "occupiedBy": "default/job"}
        await cluster.becomes("Running", "m-3")
        assert await cluster.phases(SOON) == ["Scheduled", "Running"]
        await cluster.becomes("Succeeded", "m-1", "m-2")
        await asyncio.sleep(SOON)
        expected = {"phase": "Running", "scheduled": 3, "running": 1, "succeeded": 2, "occupiedBy": "default/job"}
        assert cluster.status() == expected
        await cluster.becomes("Succeeded", "m-3")
        assert await cluster.phases(SOON) == ["Running", "Finished"]
        assert (cluster.status()["running"], cluster.status()["succeeded"]) == (0, 3)

    on_cluster(scenario)


def test_a_member_that_does_not_fit_keeps_the_gang_scheduling_and_one_that_fails_ends_it():
    async def scenario(cluster, running):
        cluster.group()
        cluster.members(2, node="n1")
        cluster.member("m-3", cpu="100")
        await asyncio.sleep(SOON)
        assert cluster.status() == {"phase": "Scheduling", "scheduled": 2}
        await cluster.delete("m-3")
        cluster.member("m-3")
        await cluster.becomes("Running", "m-1", "m-2")
        await asyncio.sleep(SOON)
        await cluster.becomes("Failed", "m-3")
        await asyncio.sleep(SOON)
        assert cluster.status() == {"phase": "Failed", "scheduled": 3, "running": 2, "failed": 1}

    on_cluster(scenario)


def test_when_all_members_are_gone_the_numbers_are_0():
    async def scenario(cluster, running):
        cluster.group(2)
        cluster.members(2)
        await asyncio.sleep(SOON)
        await cluster.becomes("Running", "m-1", "m-2")
        await asyncio.sleep(SOON)
        assert cluster.status()["phase"] == "Running"
        await cluster.delete("m-1", "m-2")
        await asyncio.sleep(SOON)
        assert cluster.status() == {"phase": "Pending", "scheduled": 0, "running": 0}

    on_cluster(scenario)


def test_finished_pods_that_are_deleted_do_not_count():
    async def scenario(cluster, running):
        cluster.group(3)
        cluster.members(3, node="n1", phase="Running")
        await asyncio.sleep(SOON)
        await cluster.becomes("Succeeded", "m-1")
        await asyncio.sleep(SOON)
        assert cluster.status()["succeeded"] == 1
        await cluster.delete("m-1")
        await asyncio.sleep(SOON)
        assert cluster.status() == {"phase": "Scheduling", "scheduled": 2, "running": 2, "succeeded": 0}

    on_cluster(scenario)


def test_what_happened_before_the_scheduler_started_counts():
    async def scenario(cluster, running):
        assert await cluster.phases(SOON) == ["", "Failed"]
        assert cluster.status() == {"phase": "Failed", "scheduled": 3, "running": 1, "succeeded": 1, "failed": 1}

    def before(cluster):
        cluster.group()
        for name, phase in {"m-1": "Running", "m-2": "Succeeded", "m-3": "Failed"}.items():
            cluster.member(name, node="n1", phase=phase)
        cluster.member("other", gang="h", node="n1", phase="Failed")

    scenario.before = before
    on_cluster(scenario)


def test_nothing_is_written_without_a_change():
    async def scenario(cluster, running):
        cluster.group()
        cluster.members(3)
        await asyncio.sleep(SOON)
        version = cluster.version()
        await cluster.becomes("Pending", "m-1")
        await cluster.call(
            "PATCH",
            "/api/v1/namespaces/default/pods/m-1",
            {"metadata": {"labels": {"touched": "1"}}},
            headers={"content-type": "application/merge-patch+json"},
        )
        cluster.member("bystander", gang="h")
        await asyncio.sleep(3600)
        assert cluster.version() == version

    on_cluster(scenario)


@pytest.mark.parametrize("status", [{"phase": "Finished"}, {"phase": "Failed", "failed": 1}])
def test_what_is_over_stays(status):
    async def scenario(cluster, running):
        cluster.group(status=status)
        cluster.members(3)
        await asyncio.sleep(SOON)
        assert cluster.status() == status

    on_cluster(scenario)


def test_a_gang_that_was_placed_48_hours_after_its_creation_is_left_alone():
    async def scenario(cluster, running):
        cluster.group(age=3 * DAY)
        cluster.members(3)
        await asyncio.sleep(SOON)
        assert cluster.status() == {"phase": "Scheduled", "scheduled": 3}
        await cluster.becomes("Running", "m-1", "m-2", "m-3")
        await asyncio.sleep(SOON)
        assert cluster.status() == {"phase": "Scheduled", "scheduled": 3}

    on_cluster(scenario)


def test_case_13_owners_in_order():
    async def scenario(cluster, running):
        cluster.group(1)
        cluster.member("m-1", owners=["owner-c", "owner-a", "owner-b"])
        cluster.member("m-2", owners=["owner-d"])
        await asyncio.sleep(SOON)
        assert cluster.status()["occupiedBy"] == "default/owner-a,default/owner-b,default/owner-c"

    on_cluster(scenario)


def test_a_podgroup_of_a_gang_by_annotation():
    """Such pods are found as long as they are not over."""

    async def scenario(cluster, running):
        cluster.group(2)
        for name in ("m-1", "m-2"):
            cluster.member(name, labels={}, annotations={GANG + "name": "g", GANG + "min-available": "2"})
        cluster.member("m-3", labels={f"{LABEL}/name": "g"})
        await asyncio.sleep(SOON)
        assert cluster.status() == {"phase": "Scheduled", "scheduled": 3}

    on_cluster(scenario)


def test_a_change_of_the_minimum():
    async def scenario(cluster, running):
        cluster.group(3)
        cluster.members(2)
        await asyncio.sleep(SOON)
        assert cluster.status()["phase"] == "Pending"
        path = f"/apis/{API}/namespaces/default/podgroups/g"
        changed = {"spec": {"minMember": 2}}
        await cluster.call("PATCH", path, changed, headers={"content-type": "application/merge-patch+json"})
        await asyncio.sleep(SOON)
        assert cluster.status() == {"phase": "Scheduled", "scheduled": 2}

    on_cluster(scenario)


def test_a_podgroup_that_is_deleted_and_made_again():
    async def scenario(cluster, running):
        cluster.group(2)
        cluster.members(2)
        await asyncio.sleep(SOON)
        path = f"/apis/{API}/namespaces/default/podgroups/g"
        assert (await cluster.call("DELETE", path))[0] == 200
        await asyncio.sleep(SOON)
        cluster.group(2)
        await asyncio.sleep(SOON)
        assert cluster.status() == {"phase": "Scheduled", "scheduled": 2}

    on_cluster(scenario)


def test_refused_writes_are_repeated():
    refused = []

    async def fault(call, proceed):
        if call.method == "PATCH" and "/podgroups/" in call.path and len(refused) < 3:
            refused.append(call.path)
            return 403, {}, b'{"kind": "Status", "status": "Failure", "code": 403, "message": "not now"}'
        return await proceed()

    async def scenario(cluster, running):
        cluster.group()
        cluster.members(3)
        await asyncio.sleep(10)
        assert cluster.status() == {"phase": "Scheduled", "scheduled": 3}
        assert len(refused) == 3

    on_cluster(scenario, fault=fault)


def test_without_leading_nothing_is_written():
    async def scenario(cluster, running):
        cluster.group()
        cluster.members(3)
        await asyncio.sleep(10)
        assert cluster.status() == {}

    on_cluster(scenario, leads=False)


def test_a_successor_goes_on():
    async def main():
        cluster = GangCluster()
        cluster.group()
        cluster.members(3)
        async with scheduling(cluster):
            await asyncio.sleep(SOON)
        await cluster.becomes("Running", "m-1", "m-2", "m-3")
        await cluster.becomes("Succeeded", "m-3")
        async with scheduling(cluster):
            await asyncio.sleep(SOON)
        assert cluster.status() == {"phase": "Running", "scheduled": 3, "running": 2, "succeeded": 1}

    run(main(), limit=DAY)


def test_a_gang_that_comes_and_is_bound_at_once_is_one_write():
    written = []

    async def fault(call, proceed):
        if call.method == "PATCH" and "/podgroups/" in call.path:
            written.append(json.loads(call.body)["status"])
        return await proceed()

    async def scenario(cluster, running):
        cluster.group()
        cluster.members(3, owners=["job"])
        await asyncio.sleep(60)
        (status,) = written
        assert status.pop("scheduleStartTime")
        assert status == {"phase": "Scheduled", "scheduled": 3, "occupiedBy": "default/job"}

    on_cluster(scenario, fault=fault)


def test_at_most_one_write_a_second_and_the_last_state_is_written():
    times = []

    async def fault(call, proceed):
        if call.method == "PATCH" and "/podgroups/" in call.path:
            times.append(asyncio.get_running_loop().time())
        return await proceed()

    async def scenario(cluster, running):
        cluster.group(20)
        cluster.members(20, cpu="10m")
        for number in range(1, 21):
            await asyncio.sleep(0.25)
            await cluster.becomes("Running", f"m-{number}")
        await asyncio.sleep(1.5)
        assert cluster.status() == {"phase": "Running", "scheduled": 20, "running": 20}
        assert 4 <= len(times) <= 8
        assert min(later - earlier for earlier, later in pairwise(times)) >= 1.0

    on_cluster(scenario, fault=fault)


def test_a_storm_of_events_is_few_writes():
    async def scenario(cluster, running):
        cluster.group(100)
        for number in range(100):
            cluster.member(f"m-{number}", cpu="10m")
            await asyncio.sleep(0.01)
        await asyncio.sleep(SOON)
        first = int(cluster.version())
        patches = []
        for number in range(100):
            await cluster.becomes("Running", f"m-{number}")
            patches.append(cluster.version())
            await asyncio.sleep(0.01)
        await asyncio.sleep(SOON)
        patches.append(cluster.version())
        assert cluster.status() == {"phase": "Running", "scheduled": 100, "running": 100}
        assert int(cluster.version()) > first
        assert len(set(patches)) < 15

    on_cluster(scenario)
