"""Pods and PodGroups that change at any moment: no gang is forgotten, no pod is lost."""

import asyncio
from itertools import pairwise

import pytest

from tests.plugins.coscheduling.placing import API, LABEL, Gangs, annotations, check, scheduling, settle
from tests.virtualtime import run


def playing(scenario, *, config=None, **options):
    """Runs `scenario(cluster, running)` with a scheduler that is in order afterwards."""

    async def work():
        cluster = Gangs(**options)
        async with scheduling(cluster, config) as running:
            await scenario(cluster, running)
            await settle(running)
        return cluster

    return run(work())


def test_a_lower_minimum_lets_a_waiting_gang_go():
    async def scenario(cluster, running):
        cluster.group(4)
        cluster.members(4, cpu="2")
        await settle(running)
        assert cluster.bound() == []
        cluster.regroup("g", 3)
        await settle(running)
        assert len(cluster.bound()) == 3

    playing(scenario, cpu="6")


def test_a_pod_that_completes_another_gang_by_its_label_has_it_tried():
    async def scenario(cluster, running):
        cluster.group(2, "a")
        cluster.group(2, "b")
        cluster.pod("m-1", "a")
        cluster.pod("m-2", "b")
        await settle(running)
        assert cluster.bound() == []
        cluster.change("m-2", {LABEL: "a"})
        await settle(running)
        assert cluster.bound() == ["m-1", "m-2"]

    playing(scenario)


def test_a_pod_that_completes_another_gang_by_its_annotation_has_it_tried():
    async def scenario(cluster, running):
        cluster.pod("m-1", "a", by={"min_available": "2"})
        cluster.pod("m-2", "b", by={"min_available": "2"})
        await settle(running)
        assert cluster.bound() == []
        cluster.change("m-2", notes=annotations(name="a"))
        await settle(running)
        assert cluster.bound() == ["m-1", "m-2"]

    playing(scenario)


def test_an_annotation_that_defines_the_gang_later_has_it_tried():
    async def scenario(cluster, running):
        cluster.pods("m-1", "m-2", by={})
        await settle(running)
        assert cluster.bound() == []
        cluster.change("m-1", notes=annotations(min_available="2"))
        await settle(running)
        assert cluster.bound() == ["m-1", "m-2"]

    playing(scenario)


@pytest.mark.parametrize("policy", ["waiting-and-running", "only-waiting", "once-satisfied"])
def test_a_member_that_comes_bound_completes_the_gang(policy):
    async def scenario(cluster, running):
        cluster.group(3, match_policy=policy)
        cluster.pods("m-1", "m-2")
        await settle(running)
        assert cluster.bound() == []
        cluster.pod("m-3", node="n1")
        await settle(running)
        expected = ["m-3"] if policy == "only-waiting" else ["m-1", "m-2", "m-3"]
        assert cluster.bound() == expected

    playing(scenario)


@pytest.mark.parametrize("policy", ["waiting-and-running", "once-satisfied"])
def test_a_member_that_another_scheduler_binds_completes_the_gang(policy):
    async def scenario(cluster, running):
        cluster.group(3, match_policy=policy)
        cluster.pods("m-1", "m-2")
        cluster.pod("m-3", scheduler="other")
        await settle(running)
        assert cluster.bound() == []
        status, _ = await cluster.call(
            "POST",
            "/api/v1/namespaces/default/pods/m-3/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "m-3"},
                "target": {"kind": "Node", "name": "n1"},
            },
        )
        assert status == 201
        await settle(running)
        assert cluster.bound() == ["m-1", "m-2", "m-3"]

    playing(scenario)


@pytest.mark.parametrize("policy", ["waiting-and-running", "only-waiting", "once-satisfied"])
def test_members_beyond_the_minimum_follow(policy):
    async def scenario(cluster, running):
        cluster.pods("m-1", "m-2", "m-3", "m-4")
        await settle(running)
        cluster.group(2, match_policy=policy)
        await settle(running)
        assert cluster.bound() == ["m-1", "m-2", "m-3", "m-4"]

    playing(scenario)


@pytest.mark.parametrize("policy", ["waiting-and-running", "only-waiting", "once-satisfied"])
def test_the_first_of_a_gang_is_not_lost_if_enough_are_there_without_it(policy):
    """The one that is taken from the queue sorts last."""

    async def scenario(cluster, running):
        cluster.group(3, match_policy=policy)
        cluster.pods("r-1", "r-2", node="n1", cpu="3")
        cluster.pod("z", cpu="3")  # no room: it rests on behalf of the gang
        await settle(running)
        cluster.pod("a", cpu="3")
        await settle(running)
        assert cluster.bound() == ["r-1", "r-2"]
        cluster.node("n2", "8")
        await settle(running)
        expected = ["r-1", "r-2"] if policy == "only-waiting" else ["a", "r-1", "r-2", "z"]
        assert cluster.bound() == expected

    playing(scenario)


def test_a_resting_representative_does_not_block_the_group_it_is_moved_to():
    async def scenario(cluster, running):
        cluster.group(2, "a")
        cluster.group(1, "b", groups='["default/a", "default/b"]')
        cluster.pods("a-1", "a-2", gang="a", cpu="5")
        await settle(running)
        assert cluster.bound() == []
        cluster.pod("b-1", "b")
        await settle(running)
        cluster.regroup("a", 1, groups='["default/a", "default/b"]')
        await settle(running)
        assert len(cluster.bound()) == 2
        assert "b-1" in cluster.bound()

    playing(scenario)


def test_the_rest_of_a_group_goes_on_when_the_gang_of_its_representative_leaves():
    async def scenario(cluster, running):
        both = '["default/a", "default/b"]'
        cluster.group(1, "a", groups=both)
        cluster.group(1, "b", groups=both)
        cluster.pod("a-1", "a", cpu="20")
        cluster.pod("b-1", "b")
        await settle(running)
        assert cluster.bound() == []
        cluster.regroup("a", groups='["default/a"]')
        cluster.regroup("b", groups='["default/b"]')
        await settle(running)
        assert cluster.bound() == ["b-1"]

    playing(scenario)


def test_a_gang_that_does_not_name_the_other_wakes_no_group_of_its_own():
    """As recorded of upstream (gang-group-one-sided): only one of the two names the other."""

    async def scenario(cluster, running):
        cluster.group(1, "b", groups='["default/a", "default/b"]')
        cluster.pod("b-1", "b")
        await settle(running)
        assert cluster.bound() == []
        cluster.group(1, "a")
        await settle(running)
        cluster.pod("a-1", "a")
        await settle(running)
        assert cluster.bound() == ["a-1"]
        cluster.group(1, "a", groups='["default/a", "default/b"]')
        await settle(running)
        assert cluster.bound() == ["a-1", "b-1"]

    playing(scenario)


def test_a_gang_that_is_not_in_its_own_group_waits_for_the_others():
    async def scenario(cluster, running):
        cluster.group(1, "z", groups='["default/a"]')
        cluster.pod("z-1", "z")
        await settle(running)
        cluster.group(1, "a")
        await settle(running)
        assert cluster.bound() == []
        cluster.pod("a-1", "a")
        await settle(running)
        cluster.pod("z-2", "z")
        await settle(running)
        assert cluster.bound() == ["a-1", "z-1", "z-2"]

    playing(scenario)


def test_a_gang_that_claims_to_belong_to_others_does_not_harm_them():
    async def scenario(cluster, running):
        cluster.group(1, "a", groups='["default/a", "default/b"]')
        cluster.group(1, "b", groups='["default/a", "default/b"]')
        cluster.group(1, "z", groups='["default/a", "default/b"]')
        cluster.pod("z-1", "z", gates=("wait",))
        cluster.pod("z-2", "z", cpu="100")
        cluster.pod("a-1", "a")
        cluster.pod("b-1", "b")
        await settle(running)
        assert cluster.bound() == ["a-1", "b-1"]

    playing(scenario)


def test_names_with_commas_are_not_mistaken_for_several():
    async def scenario(cluster, running):
        cluster.group(1, "z", groups='["default/a,default/b"]')
        cluster.group(1, "a", groups='["default/a", "default/b"]')
        cluster.group(1, "b", groups='["default/a", "default/b"]')
        cluster.pod("z-1", "z")
        cluster.pod("a-1", "a")
        cluster.pod("b-1", "b")
        await settle(running)
        assert cluster.bound() == ["a-1", "b-1"]

    playing(scenario)


def test_a_gang_may_name_itself_twice():
    async def scenario(cluster, running):
        cluster.group(2, groups='["default/g", "default/g"]')
        cluster.members(2)
        await settle(running)
        assert cluster.bound() == ["m-1", "m-2"]

    playing(scenario)


def test_a_representative_that_is_being_deleted_hands_over():
    """A finalizer keeps it; the others do not wait for that."""

    async def scenario(cluster, running):
        cluster.group(2)
        cluster.pods("m-1", finalizers=["example.com/wait"], cpu="5")
        cluster.pods("m-2", "m-3", cpu="5")
        await settle(running)
        assert cluster.bound() == []
        cluster.remove("Pod", "m-1")
        await settle(running, 1)
        assert cluster.get("Pod", "m-1") is not None
        cluster.node("n2", "8")
        await settle(running, 1)
        assert cluster.bound() == ["m-2", "m-3"]
        cluster.finish("m-1")

    playing(scenario)


def test_a_representative_in_the_queue_that_is_being_deleted_hands_over():
    """Before it was tried even once."""

    async def scenario(cluster, running):
        cluster.group(2)
        for number in range(1, 4):
            cluster.pod(f"m-{number}", finalizers=["example.com/wait"] if number == 2 else [])
        cluster.remove("Pod", "m-2")
        await asyncio.sleep(1)
        assert cluster.bound() == ["m-1", "m-3"]
        cluster.finish("m-2")

    playing(scenario)


def test_a_smaller_member_has_the_gang_tried_again():
    """Not the one for which there was no room, but one that had a place."""

    async def scenario(cluster, running):
        cluster.group(2)
        cluster.pods("m-1", "m-2", cpu="5")
        await settle(running)
        assert cluster.bound() == []
        cluster.change("m-1", cpu="3")
        await settle(running)
        assert cluster.bound() == ["m-1", "m-2"]

    playing(scenario)


def test_members_whose_binding_fails_are_tried_again_as_they_are_now():
    """PreBind wrote annotations: the API server shows a newer version than the one that was placed."""

    async def work():
        cluster = Gangs()
        refusals = 0

        async def fault(call, proceed):
            nonlocal refusals
            if call.path.endswith("/binding") and refusals < 3:
                refusals += 1
                return 403, {}, b"{}"
            return await proceed()

        cluster.group(3, match_policy="only-waiting")
        async with scheduling(cluster, fault=fault) as running:
            cluster.members(3)
            await settle(running, 60)
            assert refusals == 3
            assert cluster.bound() == ["m-1", "m-2", "m-3"]
            check(running)

    run(work())


@pytest.mark.parametrize("policy", ["once-satisfied", "only-waiting", "waiting-and-running"])
@pytest.mark.parametrize("others", [("m-0",), ("m-2",), ("m-0", "m-2")])
def test_a_member_whose_binding_fails_rests_although_others_that_fit_nowhere_are_tried(policy, others):
    async def work():
        cluster = Gangs()
        refused = []
        refuses = True

        async def fault(call, proceed):
            if call.path.endswith("/binding") and refuses and len(refused) < 50:
                refused.append(asyncio.get_running_loop().time())
                return 403, {}, b"{}"
            return await proceed()

        cluster.group(1, match_policy=policy)
        async with scheduling(cluster, fault=fault) as running:
            cluster.pod("m-1")
            for number, name in enumerate(others):
                cluster.pod(name, cpu=str(98 + number))
            await asyncio.sleep(60)
            pauses = [round(later - earlier) for earlier, later in pairwise(refused)]
            assert 7 <= len(refused) <= 9, pauses
            assert 1 <= min(pauses) <= max(pauses) <= 12
            assert pauses == sorted(pauses)
            tried = {each.pod.name: each.attempts for each in running.scheduler.queue}
            assert max(tried.values()) <= 4 * len(refused), tried
            refuses = False
            await settle(running, 12)
            assert cluster.bound() == ["m-1"]

    run(work())


def test_a_member_whose_binding_failed_is_tried_again_with_the_others_that_it_needs():
    """During an outage no binding succeeds."""

    async def work():
        cluster = Gangs()
        refuses = True

        async def fault(call, proceed):
            if call.path.endswith("/binding") and refuses:
                return 403, {}, b"{}"
            return await proceed()

        cluster.group(3, match_policy="only-waiting")
        async with scheduling(cluster, fault=fault) as running:
            cluster.members(3)
            await asyncio.sleep(40)
            assert cluster.bound() == []
            refuses = False
            await settle(running, 12)
            assert cluster.bound() == ["m-1", "m-2", "m-3"]

    run(work())


def test_a_pod_that_changes_gang_while_it_is_being_bound_keeps_its_place():
    async def work():
        cluster = Gangs()
        release = asyncio.Event()

        async def fault(call, proceed):
            if call.path.endswith("m-1/binding"):
                await release.wait()
            return await proceed()

        cluster.group(2, "a")
        cluster.group(2, "b")
        async with scheduling(cluster, fault=fault) as running:
            cluster.pods("m-1", "m-2", gang="a")
            await asyncio.sleep(1)
            cluster.change("m-1", {LABEL: "b"})
            cluster.pod("b-1", "b")
            await asyncio.sleep(1)
            release.set()
            await settle(running, 30)
            assert cluster.bound() == ["b-1", "m-1", "m-2"]
            assert running.attempts.get("default/m-1", 0) <= 1

    run(work())


def test_a_namesake_that_is_seen_before_its_predecessor_is_gone_is_placed():
    """As after a break of the watch, where the list comes before the removals."""

    async def scenario(cluster, running):
        cluster.group(2)
        cluster.pods("m-1", "m-2", cpu="5")
        await settle(running)
        scheduler = running.scheduler
        handler, older = scheduler.pod_handler, next(pod for pod in scheduler.pending_pods() if pod.name == "m-1")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(scheduler.pod_handler, "delete", lambda wire: None)
            cluster.remove("Pod", "m-1")
            cluster.pod("m-1", cpu="3")
            await asyncio.sleep(1)
        assert cluster.get("Pod", "m-1")["metadata"]["uid"] != older.uid
        handler.forget(older.uid)
        await settle(running)
        assert cluster.bound() == ["m-1", "m-2"]

    playing(scenario)


def test_a_pod_group_that_comes_again_finds_its_pods():
    async def scenario(cluster, running):
        cluster.group(2)
        cluster.pods("m-1", "m-2", cpu="5")
        await settle(running)
        cluster.remove("PodGroup", "g", API)
        await settle(running)
        cluster.node("n2", "8")
        await settle(running)
        assert cluster.bound() == []
        cluster.group(2)
        await settle(running)
        assert cluster.bound() == ["m-1", "m-2"]

    playing(scenario)
