"""Groups of which a pod is bound: gangs that go on one by one, beside gangs that have to be whole again."""

import asyncio

from koordsched.plugins.coscheduling.kinds import BIND_GANG_MEMBER_COUNT
from tests.plugins.coscheduling.placing import LABEL, Gangs, Holds, cache_of, scheduling, settle, text
from tests.virtualtime import run

TOGETHER = {"groups": text(["default/a", "default/b"])}


def playing(scenario, plugins=(), **options):
    """Runs `scenario(cluster, running)`; nothing is under way afterwards."""

    async def work():
        cluster = Gangs(**options)
        async with scheduling(cluster, plugins=plugins) as running:
            await scenario(cluster, running)
            await settle(running)

    run(work())


def declare(cluster, first=2, second=1):
    """Two gangs: the pods of `a` go on one by one, those of `b` are always placed together."""
    cluster.group(first, "a", match_policy="once-satisfied", **TOGETHER)
    cluster.group(second, "b", match_policy="only-waiting", **TOGETHER)


def test_a_pod_that_goes_on_alone_does_not_wait_for_another_gang():
    async def scenario(cluster, running):
        declare(cluster)
        cluster.pods("a-1", "a-2", gang="a")
        cluster.pod("b-1", "b")
        await settle(running)
        assert cluster.bound() == ["a-1", "a-2", "b-1"]
        cluster.pod("a-3", "a")
        await settle(running)
        assert cluster.bound() == ["a-1", "a-2", "a-3", "b-1"]

    playing(scenario)


async def satisfied(cluster, running):
    """Both gangs, of two pods each, are bound."""
    declare(cluster, second=2)
    cluster.pods("a-1", "a-2", gang="a")
    cluster.pods("b-1", "b-2", gang="b")
    await settle(running)


def test_a_pod_that_goes_on_alone_does_not_take_others_along():
    async def scenario(cluster, running):
        await satisfied(cluster, running)
        cluster.pod("b-3", "b", cpu="2")
        cluster.pod("b-4", "b", cpu="9")  # fits nowhere
        await settle(running)
        cluster.pod("a-3", "a")
        await settle(running)
        assert cluster.bound() == ["a-1", "a-2", "a-3", "b-1", "b-2"]

    playing(scenario)


def test_a_pod_that_goes_on_alone_is_placed_although_an_attempt_for_others_fails():
    """The attempt is for `b-3` and `b-4`, of which the second one fits nowhere; `a-3` has a place."""

    async def scenario(cluster, running):
        await satisfied(cluster, running)
        cluster.pod("a-3", "a", nodeSelector={"kubernetes.io/hostname": "n2"})
        cluster.pod("b-3", "b", cpu="2")
        cluster.pod("b-4", "b", cpu="9")
        await settle(running)
        assert cluster.waiting() == ["a-3", "b-3", "b-4"]
        cluster.node("n2", "8")
        cluster.patch("Node", "n2", {"metadata": {"labels": {"kubernetes.io/hostname": "n2"}}})
        await settle(running, 15)
        assert cluster.waiting() == ["b-3", "b-4"]

    playing(scenario)


def test_a_pod_that_goes_on_alone_has_a_place_that_others_would_take_in_vain():
    """`b-3` is more important and comes first, and the room is enough for one; without another pod it may not go."""

    async def scenario(cluster, running):
        await satisfied(cluster, running)
        cluster.pod("other", by=None, cpu="4", node="n1")
        await settle(running)
        cluster.pod("a-3", "a")
        cluster.pod("b-3", "b", priority=10)
        await settle(running)
        assert cluster.waiting() == ["a-3", "b-3"]
        cluster.remove("Pod", "b-1")
        await settle(running, 15)
        assert cluster.waiting() == ["b-3"]

    playing(scenario)


def test_the_rest_of_a_group_is_tried_when_its_representative_goes_on_alone():
    """`a-1` is in the queue for all when `a-3` turns out to be bound. Then it stands for itself, and has no place."""

    async def scenario(cluster, running):
        declare(cluster)
        running.work.cancel()  # a standby watches, and its queue fills
        cluster.pods("a-1", "a-2", gang="a", cpu="16")
        cluster.pod("b-1", "b", cpu="2")
        await asyncio.sleep(1)
        cluster.pod("a-3", "a", node="n1")
        await asyncio.sleep(1)
        running.work = asyncio.create_task(running.scheduler.run())
        await settle(running)
        assert cluster.bound() == ["a-3", "b-1"]

    playing(scenario)


def test_a_pod_that_goes_on_alone_and_completes_the_group_has_the_others_tried():
    async def scenario(cluster, running):
        declare(cluster)
        cluster.pods("a-1", "a-2", gang="a")
        cluster.pod("b-1", "b")
        await settle(running)
        cluster.remove("Pod", "a-1")
        cluster.pod("b-2", "b")
        await settle(running)
        assert cluster.waiting() == ["b-2"]
        cluster.pod("a-3", "a", cpu="16")  # has no place itself
        await settle(running)
        assert cluster.waiting() == ["a-3"]

    playing(scenario)


def test_a_pod_that_comes_to_a_gang_that_goes_on_alone_is_tried():
    """By its label, as another gang's pod before."""

    async def scenario(cluster, running):
        declare(cluster)
        cluster.pods("a-1", "a-2", gang="a")
        cluster.pod("b-1", "b")
        cluster.pod("c-1", "c")
        await settle(running)
        assert cluster.waiting() == ["c-1"]
        cluster.change("c-1", {LABEL: "a"})
        await settle(running)
        assert cluster.waiting() == []

    playing(scenario)


def test_a_representative_whose_policy_changes_hands_over():
    async def scenario(cluster, running):
        cluster.group(2, "a", match_policy="waiting-and-running", **TOGETHER)
        cluster.group(1, "b", match_policy="only-waiting", **TOGETHER)
        cluster.pods("a-1", "a-2", gang="a")
        cluster.pod("b-1", "b")
        await settle(running)
        running.work.cancel()
        cluster.pod("a-3", "a", cpu="16")
        cluster.pod("b-2", "b", cpu="2")
        await asyncio.sleep(1)
        cluster.regroup("a", match_policy="once-satisfied")
        await asyncio.sleep(1)
        running.work = asyncio.create_task(running.scheduler.run())
        await settle(running)
        assert cluster.waiting() == ["a-3"]

    playing(scenario)


def test_a_pod_that_goes_on_alone_is_not_bound_with_those_that_are_placed_in_the_same_moment():
    async def scenario(cluster, running):
        await satisfied(cluster, running)
        cluster.pod("a-3", "a")
        cluster.pods("b-3", "b-4", gang="b")
        await settle(running)

        def said(name):
            found = cluster.get("Pod", name)["metadata"].get("annotations") or {}
            return found.get(BIND_GANG_MEMBER_COUNT)

        assert cluster.bound() == ["a-1", "a-2", "a-3", "b-1", "b-2", "b-3", "b-4"]
        assert {name: said(name) for name in ("a-1", "a-3", "b-3", "b-4")} == {
            "a-1": "4",
            "a-3": None,
            "b-3": "2",
            "b-4": "2",
        }

    playing(scenario)


def test_the_others_go_on_if_the_one_that_is_being_bound_is_deleted():
    """One is enough, and the others wait for its binding, which is slow."""

    async def slow(call, proceed):
        if call.path.endswith("/binding"):
            await asyncio.sleep(5)
        return await proceed()

    async def work():
        cluster = Gangs()
        cluster.group(1)
        async with scheduling(cluster, fault=slow) as running:
            cluster.pods("a", "b")
            await asyncio.sleep(2)
            [placed] = cache_of(running.scheduler).gangs["default/g"].waiting.values()
            assert cluster.bound() == []
            cluster.remove("Pod", placed.name)
            await settle(running, 20.0)
            assert cluster.bound() == sorted({"a", "b"} - {placed.name})

    run(work())


def test_a_pod_that_goes_on_alone_keeps_its_place_when_one_that_does_not_loses_its_own():
    """They wait for another Permit plugin. Nothing would have it tried again."""

    async def scenario(cluster, running):
        declare(cluster, first=1)
        cluster.pod("b-0", "b", node="n1")
        cluster.pods("a-1", gang="a")
        cluster.pod("b-1", "b")
        await asyncio.sleep(2)
        waiting = {each.pod.name: each for each in running.scheduler.waiting}
        assert waiting.keys() == {"a-1", "b-1"}
        waiting["b-1"].reject("Holds", "not this one")
        await asyncio.sleep(1)
        assert "a-1" in {each.pod.name for each in running.scheduler.waiting}
        waiting["a-1"].allow("Holds")
        await asyncio.sleep(60)
        assert "a-1" in cluster.bound()
        for each in running.scheduler.waiting:
            each.allow("Holds")

    playing(scenario, plugins=(Holds,))


def test_a_pod_that_goes_on_alone_rests_after_its_binding_failed_although_others_are_tried():
    async def work():
        cluster, refused = Gangs(), []

        async def fault(call, proceed):
            if call.path.endswith("a-3/binding") and len(refused) < 50:
                refused.append(asyncio.get_running_loop().time())
                return 403, {}, b"{}"
            return await proceed()

        async with scheduling(cluster, fault=fault) as running:
            declare(cluster)
            cluster.pods("a-1", "a-2", gang="a")
            cluster.pod("b-1", "b")
            await settle(running)
            cluster.pod("b-3", "b", cpu="98")
            cluster.pod("b-4", "b", cpu="99")
            cluster.pod("a-3", "a")
            await asyncio.sleep(60)
            assert 7 <= len(refused) <= 9, refused

    run(work())
