"""Gangs whose binding was interrupted: completed, or given up after their waiting time."""

import asyncio

import pytest

from koordsched.plugins.coscheduling.kinds import BIND_GANG_GROUP_ID, BIND_GANG_MEMBER_COUNT
from tests.plugins.coscheduling.running import GANG, GangCluster, scheduling
from tests.virtualtime import run

OPTIONS = {f"{GANG}name": "g", f"{GANG}min-available": "3", f"{GANG}waiting-time": "60s"}


def bound(cluster, name, together=3, node="n1", cpu="4", ago=5.0):
    """A member that was bound with others."""
    written = {BIND_GANG_GROUP_ID: "default/g", BIND_GANG_MEMBER_COUNT: str(together)}
    cluster.member(name, node=node, cpu=cpu, labels={}, annotations=OPTIONS | written, age=20.0, scheduled=ago)


def waiting(cluster, name, cpu="4", age=20.0, **options):
    cluster.member(name, cpu=cpu, labels={}, annotations=OPTIONS | options, age=age)


def on_cluster(scenario, **more):
    async def main():
        cluster = GangCluster(**more)
        async with scheduling(cluster):
            await scenario(cluster)

    run(main(), limit=10_000.0)


def there(cluster):
    """The members that are bound and stay."""
    pods = [cluster.get("Pod", f"m-{number}", "default") for number in (1, 2, 3)]
    return [
        pod["metadata"]["name"]
        for pod in pods
        if pod is not None and pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
    ]


def test_the_missing_members_are_placed_where_there_is_room():
    async def scenario(cluster):
        bound(cluster, "m-1", cpu="1")
        waiting(cluster, "m-2", cpu="1")
        waiting(cluster, "m-3", cpu="1")
        await asyncio.sleep(120)
        assert there(cluster) == ["m-1", "m-2", "m-3"]

    on_cluster(scenario)


def test_without_room_for_them_those_that_are_bound_go_after_the_waiting_time():
    async def scenario(cluster):
        bound(cluster, "m-1")
        waiting(cluster, "m-2")
        waiting(cluster, "m-3", cpu="6")
        await asyncio.sleep(40)
        assert there(cluster) == ["m-1", "m-2"]
        await asyncio.sleep(40)
        assert there(cluster) == ["m-2"] or there(cluster) == []
        events = [event for event in cluster.events() if event["reason"] == "GangIncomplete"]
        assert events, "the bound members say why"

    on_cluster(scenario)


def test_members_that_come_again_later_do_not_make_a_gang_interrupted():
    async def scenario(cluster):
        bound(cluster, "m-1")
        bound(cluster, "m-2")
        waiting(cluster, "m-3", cpu="6", age=0.0)
        await asyncio.sleep(200)
        assert there(cluster) == ["m-1", "m-2"]

    on_cluster(scenario)


def test_a_gang_that_is_not_strict_keeps_what_is_bound():
    async def scenario(cluster):
        written = {BIND_GANG_GROUP_ID: "default/g", BIND_GANG_MEMBER_COUNT: "3", f"{GANG}mode": "NonStrict"}
        cluster.member("m-1", node="n1", cpu="6", labels={}, annotations=OPTIONS | written, age=20.0, scheduled=5.0)
        waiting(cluster, "m-2", cpu="6", **{f"{GANG}mode": "NonStrict"})
        waiting(cluster, "m-3", cpu="6", **{f"{GANG}mode": "NonStrict"})
        await asyncio.sleep(200)
        assert there(cluster) == ["m-1"]

    on_cluster(scenario)


@pytest.mark.parametrize("count", ["", "x", "٣", "-1"])
def test_a_malformed_number_says_nothing(count):
    async def scenario(cluster):
        written = {BIND_GANG_GROUP_ID: "default/g", BIND_GANG_MEMBER_COUNT: count}
        cluster.member("m-1", node="n1", cpu="6", labels={}, annotations=OPTIONS | written, age=20.0, scheduled=5.0)
        waiting(cluster, "m-2", cpu="6")
        waiting(cluster, "m-3", cpu="6")
        await asyncio.sleep(200)
        assert there(cluster) == ["m-1"]

    on_cluster(scenario)
