"""Gangs that ask for the impossible, in all ways: they harm themselves only, and read why."""

import asyncio
import json

import pytest

from koordsched.plugins.coscheduling.args import CoschedulingArgs
from koordsched.plugins.coscheduling.options import from_pod
from tests.plugins.coscheduling.placing import GANG, Gangs, annotations, cache_of, scheduling, settle
from tests.virtualtime import run

LONGEST = 6000
"""Characters of what a pod shows, whatever its gang names."""


def playing(scenario, **options):
    async def work():
        cluster = Gangs(**options)
        async with scheduling(cluster) as running:
            cluster.pod("before", by=None, cpu="100m")
            await scenario(cluster, running)
            cluster.pod("after", by=None, cpu="100m")
            cluster.group(1, "good")
            cluster.pod("good", "good", cpu="100m")
            await settle(running, 20)
            assert {"before", "after", "good"} <= set(cluster.bound()), "others are not harmed"
        return cluster

    return run(work())


@pytest.mark.parametrize("minimum", [-(1 << 31), -1, 0])
@pytest.mark.parametrize("count", [1, 3])
def test_a_minimum_of_nothing_lets_pods_go_one_by_one(minimum, count):
    async def scenario(cluster, running):
        cluster.group(minimum)
        cluster.members(count)
        cluster.pod("large", cpu="100")
        await settle(running, 20)
        assert {f"m-{number}" for number in range(1, count + 1)} <= set(cluster.bound())
        assert cluster.message("large") == "0/1 nodes are available: 1 Insufficient cpu."

    playing(scenario)


def test_the_largest_minimum_holds_all_back():
    async def scenario(cluster, running):
        cluster.group((1 << 31) - 1)
        cluster.members(3)
        await settle(running, 20)
        assert "child pod not collect enough" in cluster.notice("m-1")

    playing(scenario)


@pytest.mark.parametrize("text", ["", "x", "1.5", "99999999999999999999", "-99999999999", "0x10", "１２", "2147483648"])
def test_an_illegal_minimum_defines_no_gang(text):
    async def scenario(cluster, running):
        cluster.pods("m-1", "m-2", by={"min_available": text})
        await settle(running, 20)
        assert "gang has not init" in cluster.notice("m-1")

    playing(scenario)


@pytest.mark.parametrize("text", ["9223372036854775807h", "1e99s", "9" * 10_000 + "s", "-1s", "0s", "1d", " 1s", "∞"])
def test_a_waiting_time_that_is_none_is_the_default(text):
    notes = annotations(min_available="1", waiting_time=text)
    found = from_pod("default/g", {}, notes, CoschedulingArgs())
    assert found is not None
    assert found.waiting_time == 600.0


def test_a_waiting_time_without_end_is_cut():
    async def scenario(cluster, running):
        cluster.pods("m-1", "m-2", by={"min_available": "2", "waiting_time": "2562047h"})
        await settle(running, 20)
        assert {"m-1", "m-2"} <= set(cluster.bound())

    playing(scenario)


@pytest.mark.parametrize(
    "groups",
    [
        json.dumps([f"default/g{number}" for number in range(10_000)]),
        json.dumps(["default/g"] * 10_000),
        json.dumps(["x" * 250_000]),
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        '{"default/g": 1}',
        '["default/g", 1]',
        "null",
        '"default/g"',
        json.dumps(["", "/", "default/", "default/g", "\ud800".encode("utf-8", "replace").decode()]),
    ],
)
def test_groups_of_any_kind(groups):
    async def scenario(cluster, running):
        cluster.group(2, groups=groups)
        cluster.pods("m-1", "m-2")
        await settle(running, 20)
        bound = {"m-1", "m-2"} <= set(cluster.bound())
        notice = cluster.notice("m-1")
        assert bound or "doesn't exists" in notice or "name more than 1000 gangs" in notice
        assert len(notice) <= LONGEST

    playing(scenario)


def test_gangs_that_name_each_other_in_a_circle():
    async def scenario(cluster, running):
        for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
            cluster.group(1, name, groups=json.dumps([f"default/{name}", f"default/{other}"]))
            cluster.pod(name, name)
        await settle(running, 20)
        assert running.scheduler.queue.in_flight_pods() == []
        before = dict(running.attempts)
        await settle(running, 200)
        assert sum(running.attempts.values()) <= sum(before.values()) + 6, "no endless attempts"

    playing(scenario)


def test_options_as_long_as_objects_may_be():
    async def scenario(cluster, running):
        long = "x" * 250_000
        cluster.group(2, match_policy=long)
        cluster.group(2, "h", mode=long, total_number=long, network_topology_spec=long)
        cluster.pods("m-1", "m-2")
        cluster.pods("n-1", "n-2", gang="h")
        cluster.pod("l-1", "l", by={"min_available": "1", "match_policy": long, "waiting_time": long})
        await settle(running, 20)
        assert {"m-1", "m-2", "n-1", "n-2", "l-1"} <= set(cluster.bound())

    playing(scenario)


def test_names_of_pods_and_gangs_with_anything_in_them():
    async def scenario(cluster, running):
        for number, name in enumerate(('"', "\\", "%s", "a,b", "{}", "\u202e", "x" * 5000)):
            cluster.pod(f"m-{number}", name, by={"min_available": "1"}, cpu="100")
            cluster.pod(f"n-{number}", name, by={"min_available": "1"})
        await settle(running, 20)
        for number in range(7):
            assert f"n-{number}" in cluster.bound()
            assert "Insufficient cpu" in cluster.message(f"m-{number}")

    playing(scenario)


def test_a_thousand_gangs_of_one_pod():
    async def scenario(cluster, running):
        for number in range(1000):
            cluster.pod(f"m-{number}", f"g{number}", by={"min_available": "1"}, cpu="10m")
        await settle(running, 30)
        assert len(cluster.bound()) == 1001
        assert sum(running.attempts.values()) == 1001

    playing(scenario, nodes=[f"n{number}" for number in range(12)], cpu="32")


@pytest.mark.slow
def test_a_gang_larger_than_the_cluster_is_tried_when_that_could_help():
    async def scenario(cluster, running):
        cluster.group(2000)
        cluster.pods(*[f"m-{number:04}" for number in range(2000)], cpu="1")
        await settle(running, 30)
        before = sum(running.attempts.values())
        assert before <= 4
        await settle(running, 250)
        assert sum(running.attempts.values()) == before
        assert cluster.bound() == ["before"]
        assert "Insufficient cpu" in cluster.message("m-0001")
        assert "gets rejected due to member Pod" in cluster.message("m-1999")

    playing(scenario, nodes=["n1", "n2"], cpu="100")


@pytest.mark.slow
def test_a_thousand_gangs_that_compete_for_room_for_a_tenth_of_them():
    async def scenario(cluster, running):
        nodes = 10
        for number in range(1000):
            for member in ("a", "b"):
                cluster.pod(f"{number:03}-{member}", f"g{number}", by={"min_available": "2"}, cpu="1")
        await settle(running, 60)
        bound = cluster.bound()
        assert len(bound) == 20 * nodes + 1
        gangs = {name.partition("-")[0] for name in bound if name != "before"}
        assert len(gangs) == 100, "all of them whole"
        first = sum(running.attempts.values())
        assert first <= 1001 + 10
        await settle(running, 200)
        assert sum(running.attempts.values()) == first, "nothing happened: none is tried again"
        # One gang goes: one other comes, and each is tried once at most for each pod that went.
        gone = sorted(gangs)[0]
        cluster.remove("Pod", f"{gone}-a")
        cluster.remove("Pod", f"{gone}-b")
        await settle(running, 60)
        after = {name.partition("-")[0] for name in cluster.bound() if name != "before"}
        assert len(after) == 100
        assert after != gangs
        assert sum(running.attempts.values()) <= first + 2 * 900

    playing(scenario, nodes=[f"n{number}" for number in range(10)], cpu="20100m")


def test_pods_by_the_thousand_without_their_pod_group_cost_others_nothing():
    async def scenario(cluster, running):
        cluster.pods(*[f"m-{number}" for number in range(2000)])
        await settle(running, 30)
        assert sum(running.attempts.values()) == 1
        assert "gang has not init" in cluster.notice("m-77")
        assert len(cache_of(running.scheduler).gangs) == 1

    playing(scenario)


def test_events_follow_each_other_without_a_pause():
    """Pods come and go faster than a gang can be tried: it is tried, with pauses, and goes when there is room."""

    async def scenario(cluster, running):
        cluster.group(3)
        cluster.members(3, cpu="4")
        for number in range(100):
            cluster.pod(f"x-{number}", by=None, node="n1", cpu="10m")
            await asyncio.sleep(0.05)
            cluster.remove("Pod", f"x-{number}")
        attempts = sum(running.attempts.values())
        assert attempts <= 102, "one for each pod that went"
        cluster.node("n2", "8")
        await settle(running, 20)
        assert {"m-1", "m-2", "m-3"} <= set(cluster.bound())

    playing(scenario)


def names(count):
    return json.dumps([f"default/g{number:04}" for number in range(count)])


def test_a_group_of_more_than_a_thousand_gangs_is_not_placed_and_its_pods_show_that():
    async def scenario(cluster, running):
        cluster.pods("m-1", gang="g0000", by={"min_available": "1", "groups": names(1001)})
        cluster.pods("n-1", gang="h", by={"min_available": "1", "groups": '["default/h", "default/g0000"]'})
        cluster.group(1, "g1", groups=names(1001))
        cluster.pod("o-1", "g1")
        await settle(running, 20)
        wrong = "memberGangs [default/g0000] name more than 1000 gangs, current gang: default/g0000, podName: default/m"
        assert wrong in cluster.notice("m-1")
        assert "memberGangs [default/g0000] name more than 1000 gangs, current gang: default/h" in cluster.notice("n-1")
        assert "memberGangs [default/g1] name more than 1000 gangs" in cluster.notice("o-1")
        cluster.regroup("g1", groups=names(2))
        await settle(running, 20)
        assert "memberGangs [default/g0001] doesn't exists" in cluster.notice("o-1")
        cluster.regroup("g1", groups="")
        await settle(running)
        assert "o-1" in cluster.bound()

    playing(scenario)


def test_pods_show_some_of_a_thousand_gangs_and_how_many_more_there_are():
    async def scenario(cluster, running):
        cluster.pods("m-1", "m-2", gang="g0001", by={"min_available": "2", "groups": names(1000)})
        await settle(running, 20)
        notice = cluster.notice("m-1")
        assert "gangGroup [default/g0000 default/g0001 default/g0002 " in notice
        assert "basic check: memberGangs [default/g0000 default/g0002 default/g0003 " in notice
        assert " and 928 more] doesn't exists, current gang: default/g0001, podName: default/m-1" in notice
        assert len(notice) <= LONGEST
        for item in running.scheduler.queue:
            assert len(item.gating_reason) <= LONGEST

    playing(scenario)


def test_what_pods_of_a_group_show_follows_their_gangs():
    async def scenario(cluster, running):
        groups = json.dumps([f"default/{name}" for name in "abc"])

        def put(name, gang, minimum="1"):
            cluster.pod(name, gang, by={"min_available": minimum, "groups": groups})

        def shown(name="a-1"):
            text = cluster.notice(name)
            return text.partition("basic check: ")[2].partition(", current gang")[0]

        put("a-1", "a")
        await settle(running, 10)
        assert shown() == "memberGangs [default/b default/c] doesn't exists"
        put("b-1", "b", "2")
        await settle(running)
        together = "memberGangs [default/a default/b default/c] child pod not collect enough"
        assert shown() == f"memberGangs [default/c] doesn't exists, {together}"
        cluster.pod("c-1", "c", by={"groups": groups})
        await settle(running)
        assert shown() == f"memberGangs [default/c] has not init, {together}"
        put("b-2", "b", "2")
        await settle(running)
        assert shown() == "memberGangs [default/c] has not init"
        cluster.change("b-1", notes={GANG + "name": "d"})
        await settle(running)
        assert shown() == f"memberGangs [default/c] has not init, {together}"
        put("b-3", "b", "2")
        put("c-2", "c")
        await settle(running)
        assert {"a-1", "b-2", "b-3", "c-1", "c-2"} <= set(cluster.bound())

    playing(scenario)
