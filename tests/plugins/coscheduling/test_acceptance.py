"""The cases of the specification (coscheduling spec 7), through the whole scheduler, unless said otherwise.

Here all members of a group are placed in one attempt, so none waits on Permit for another attempt: what upstream
spreads over several cycles happens in one.
"""

import asyncio

import pytest

from koordsched.framework.interface import CycleState
from koordsched.framework.status import Code
from koordsched.plugins.coscheduling.kinds import BIND_GANG_MEMBER_COUNT
from koordsched.plugins.coscheduling.metrics import job_size
from tests.plugins.coscheduling.placing import (
    Gangs,
    Holds,
    cache_of,
    check,
    configuration,
    scheduling,
    settle,
)
from tests.virtualtime import run

PREEMPTING = configuration(enablePreemption=True)


def playing(scenario, *, config=None, plugins=(), fault=None, settled=True, **options):
    """Runs `scenario(cluster, running)` with a scheduler, which is in order afterwards."""

    async def work():
        cluster = Gangs(**options)
        async with scheduling(cluster, config, plugins=plugins, fault=fault) as running:
            await scenario(cluster, running)
            if settled:
                await settle(running)
        return cluster

    return run(work())


def plugin_of(running):
    return running.scheduler.profiles["default-scheduler"].plugins["Coscheduling"]


def known(running, name):
    """The pod as the scheduler knows it."""
    scheduler = running.scheduler
    pods = [*scheduler.pending_pods(), *scheduler.cluster.assigned.values()]
    return next(pod for pod in pods if pod.name == name)


def gate(running, name):
    """What PreEnqueue says of a pod."""
    return plugin_of(running).pre_enqueue(known(running, name))


def test_coscheduling_case_04_a_gang_whose_pod_group_is_missing_is_held_back():
    async def scenario(cluster, running):
        cluster.pod("p1")
        await settle(running, 120)
        status = gate(running, "p1")
        assert (status.code, status.message) == (
            Code.UNRESOLVABLE,
            "gang has not init, gangName: default/g, podName: default/p1",
        )
        assert cluster.notice("p1") == f"gated by plugin Coscheduling: {status.message}"

    playing(scenario)


def test_coscheduling_case_05_a_gang_that_is_not_complete_is_held_back():
    async def scenario(cluster, running):
        options = {"min_available": "4"}
        cluster.pods("p1", "p2", gang="gangA", by=options)
        await settle(running, 120)
        status = gate(running, "p1")
        assert (status.code, status.message) == (
            Code.UNRESOLVABLE,
            "gangGroup [default/gangA] basic check: memberGangs [default/gangA] child pod not collect enough, "
            "current gang: default/gangA, podName: default/p1",
        )
        assert cluster.bound() == []
        assert cluster.notice("p1") == f"gated by plugin Coscheduling: {status.message}"
        cluster.pods("p3", "p4", gang="gangA", by=options)
        await settle(running)
        assert cluster.bound() == ["p1", "p2", "p3", "p4"]

    playing(scenario)


def test_coscheduling_case_06_one_pod_represents_the_gang_in_the_queue():
    async def scenario(cluster, running):
        scheduler = running.scheduler
        scheduler.queue.pop = lambda: None  # nothing is tried
        for number in range(1, 5):
            cluster.pod(f"p{number}", by={"min_available": "4"})
        for _ in range(200):
            await asyncio.sleep(0)
        cache = cache_of(scheduler)
        group = cache.gangs["default/g"].group
        first = group.representative_key.partition("/")[2]
        assert first
        assert gate(running, first).ok
        assert gate(running, first).ok, "asked again it still is"
        others = {"p1", "p2", "p3", "p4"} - {first}
        for other in others:
            assert gate(running, other).message == (
                f"representative pod default/{first} of gangGroupID default/g already exists"
            )
        places = {each.key: each.place.name for each in scheduler.queue}
        assert places == {f"default/{first}": "ACTIVE"} | {f"default/{other}": "GATED" for other in others}
        del scheduler.queue.pop

    playing(scenario, settled=False)


@pytest.mark.parametrize("policy", ["once-satisfied", "only-waiting"])
def test_coscheduling_case_07_a_satisfied_gang_lets_single_pods_in_by_its_policy(policy):
    async def scenario(cluster, running):
        cluster.group(4, match_policy=policy)
        cluster.pod("p1", node="n1")
        cluster.pod("p2")
        await settle(running)
        if policy == "once-satisfied":
            assert cluster.bound() == ["p1", "p2"]
        else:
            assert cluster.bound() == ["p1"]
            assert "child pod not collect enough" in gate(running, "p2").message

    playing(scenario)


def test_a_member_that_has_a_node_is_not_let_in():
    async def scenario(cluster, running):
        cluster.group(1, match_policy="waiting-and-running")
        cluster.pod("p1")
        await settle(running)
        assert cluster.bound() == ["p1"]
        status = gate(running, "p1")
        assert (status.code, status.message) == (Code.UNRESOLVABLE, "pod default/p1 is not exists in gangCache")

    playing(scenario)


def test_coscheduling_case_08_permit_has_members_wait_until_there_are_enough():
    """Asked directly."""

    async def scenario(cluster, running):
        running.scheduler.queue.pop = lambda: None
        cluster.group(3)
        cluster.patch("PodGroup", "g", {"spec": {"scheduleTimeoutSeconds": 10}}, "scheduling.sigs.k8s.io/v1alpha1")
        cluster.pods("p1", "p2", "p3")
        cluster.pod("loner", by=None)
        cluster.pod("orphan", "unknown")
        for _ in range(200):
            await asyncio.sleep(0)
        plugin = plugin_of(running)

        def permit(name):
            pod = known(running, name)
            status, seconds = plugin.permit(CycleState(pod), pod, 0)
            return status.code, seconds

        assert permit("loner") == (Code.SUCCESS, 0.0)
        assert permit("orphan") == (Code.WAIT, 0.0)
        assert permit("p1") == (Code.WAIT, 10.0)
        assert permit("p2") == (Code.WAIT, 10.0)
        assert permit("p3") == (Code.SUCCESS, 0.0)

    playing(scenario, settled=False)


def test_coscheduling_case_08_three_members_are_bound_in_one_attempt():
    async def scenario(cluster, running):
        cluster.group(3)
        cluster.pods("p1", "p2", "p3")
        await settle(running)
        assert cluster.bound() == ["p1", "p2", "p3"]
        assert sum(running.attempts.values()) == 1
        notes = cluster.get("Pod", "p1")["metadata"]["annotations"]
        for prefix in ("internal.scheduling.koordinator.sh/", "scheduling.koordinator.sh/"):
            assert notes[f"{prefix}bind-gang-group-id"] == "default/g"
            assert notes[f"{prefix}bind-gang-member-count"] == "3"

    playing(scenario)


@pytest.mark.parametrize("of_d", [1, 2, 3])
def test_coscheduling_case_09_all_gangs_of_a_group_have_to_have_enough(of_d):
    async def scenario(cluster, running):
        both = '["default/c", "default/d"]'
        cluster.group(2, "c", groups=both)
        cluster.group(2, "d", groups=both)
        cluster.pods("c1", "c2", gang="c")
        cluster.pods(*[f"d{number}" for number in range(of_d)], gang="d")
        await settle(running)
        assert len(cluster.bound()) == (2 + of_d if of_d >= 2 else 0)

    playing(scenario)


def test_coscheduling_case_10_a_member_without_a_place_rejects_those_that_had_one():
    async def scenario(cluster, running):
        cluster.group(4)
        cluster.pods("p1", "p2", "p3", "p4", cpu="4")
        await settle(running)
        fit = "0/1 nodes are available: 1 Insufficient cpu."
        rejected = (
            'GangGroup "default/g" gets rejected due to member Pod "default/p3" is unschedulable with reason '
            f'"{fit}", alreadyWaitForBound: 2'
        )
        assert cluster.bound() == []
        assert cluster.message("p3") == fit
        assert cluster.message("p1") == cluster.message("p2") == f"0/1 nodes are available: 1 {rejected}."
        assert cluster.message("p4") == f"0/1 nodes are available: {rejected}."
        refusals = {refusal.pod: refusal.message for refusal in running.scheduler.decisions.refusals()}
        assert refusals == {f"default/{name}": cluster.message(name) for name in ("p1", "p2", "p3", "p4")}
        assert cache_of(running.scheduler).round is None

    playing(scenario, cpu="9")


@pytest.mark.parametrize("policy", ["once-satisfied", "only-waiting"])
def test_coscheduling_case_11_members_that_wait_for_others_are_rejected_with_the_first(policy):
    """They wait for another Permit plugin; one of them is rejected there."""

    async def scenario(cluster, running):
        cluster.group(2, match_policy=policy)
        cluster.pod("p0", node="n1")
        cluster.pods("p1", "p2", "p3")
        await asyncio.sleep(2)
        waiting = {each.pod.name: each for each in running.scheduler.waiting}
        assert waiting.keys() == {"p1", "p2", "p3"}
        waiting["p1"].reject("Holds", "not this one")
        await asyncio.sleep(0.5)
        left = {each.pod.name for each in running.scheduler.waiting}
        if policy == "once-satisfied":
            assert {"p2", "p3"} <= left, "the group is satisfied: they go on"
        else:
            texts = [cluster.message(name) for name in ("p2", "p3")]
            expected = '0/1 nodes are available: 1 Gang "default/g" gets rejected due to Pod "p1" in Unreserve.'
            assert expected in texts

    playing(scenario, plugins=(Holds,), settled=False)


def test_coscheduling_case_11_a_member_that_is_deleted_rejects_those_that_wait_with_it():
    async def scenario(cluster, running):
        cluster.group(3)
        cluster.pods("p1", "p2", "p3")
        await asyncio.sleep(2)
        assert len(running.scheduler.waiting) == 3
        cluster.remove("Pod", "p1")
        await asyncio.sleep(2)
        assert len(running.scheduler.waiting) == 0
        assert not running.scheduler.cluster.assumed
        cluster.pod("p4")
        await asyncio.sleep(2)
        for each in running.scheduler.waiting:
            each.allow("Holds")
        await settle(running)
        assert cluster.bound() == ["p2", "p3", "p4"]

    playing(scenario, plugins=(Holds,))


def test_members_that_were_placed_together_say_so_although_their_gang_joins_a_group():
    """Its PodGroup changes before they are bound."""

    async def scenario(cluster, running):
        cluster.group(2)
        cluster.pods("p1", "p2")
        await asyncio.sleep(2)
        cluster.regroup("g", groups='["default/g", "default/h"]')
        await asyncio.sleep(1)
        for each in running.scheduler.waiting:
            each.allow("Holds")
        await settle(running)
        written = [cluster.get("Pod", name)["metadata"]["annotations"] for name in cluster.bound()]
        assert [each[BIND_GANG_MEMBER_COUNT] for each in written] == ["2", "2"]

    playing(scenario, plugins=(Holds,))


def test_coscheduling_case_12_the_status_follows_the_pods():
    async def scenario(cluster, running):
        cluster.group(3)
        cluster.pods("p1", "p2")
        await settle(running, 10)
        assert cluster.status()["phase"] == "Pending"
        cluster.node("n2", "0")
        cluster.pod("p3", cpu="20")
        await settle(running, 10)
        assert cluster.status()["phase"] in ("PreScheduling", "Scheduling")
        assert cluster.status().get("scheduled", 0) == 0
        cluster.node("n3", "40")
        await settle(running, 10)
        assert cluster.status()["phase"] == "Scheduled"
        assert cluster.status()["scheduled"] == 3
        await cluster.becomes("Running", "p1", "p2", "p3")
        await settle(running, 10)
        assert cluster.status() | {"occupiedBy": ""} == {
            "phase": "Running", "scheduled": 3, "running": 3, "occupiedBy": "",
        }  # fmt: skip
        await cluster.becomes("Failed", "p1")
        await settle(running, 10)
        assert cluster.status()["phase"] == "Failed"
        assert cluster.status()["failed"] == 1

    playing(scenario)


def test_coscheduling_case_13_a_group_is_occupied_by_the_owners_of_its_first_pod():
    async def scenario(cluster, running):
        cluster.group(1)
        cluster.member("p1", owners=("owner-c", "owner-a", "owner-b"))
        await settle(running, 10)
        assert cluster.status()["occupiedBy"] == "default/owner-a,default/owner-b,default/owner-c"

    playing(scenario)


def low(cluster, places, priority=0):
    for name, node in places.items():
        cluster.pod(name, by=None, node=node, cpu="16", priority=priority)


def test_coscheduling_case_22_job_preemption_makes_room_for_all_members_on_the_cheapest_nodes():
    async def scenario(cluster, running):
        low(cluster, {"existing-1": "n1", "existing-2": "n1", "existing-3": "n2", "existing-4": "n2"})
        cluster.group(2)
        cluster.pods("p1", "p2", cpu="16", priority=100)
        await asyncio.sleep(0.01)
        seen = [(cluster.nominated(name), cluster.message(name)) for name in ("p1", "p2")]
        await settle(running, 40)
        assert cluster.bound() == ["existing-3", "existing-4", "p1", "p2"]
        assert {cluster.node_of("p1"), cluster.node_of("p2")} == {"n1"}
        assert {node for node, _ in seen} <= {"n1", ""}
        notes = [event["note"] for event in cluster.events() if event["reason"] == "FailedScheduling"]
        assert any("preempt success, alreadyWaitingForBound: 0/2" in note for note in notes), notes

    playing(scenario, config=PREEMPTING, nodes=("n1", "n2"), cpu="32")


@pytest.mark.parametrize("shown", [True, False], ids=["", "their status never says so"])
def test_the_room_that_is_made_for_each_member_is_kept_for_it(shown):
    """Also on a node where it is free already, while others still leave."""

    async def refuse(call, proceed):
        refused = b'{"kind":"Status","code":403,"reason":"Forbidden","message":"not you"}'
        ours = call.path.endswith(("/pods/p1/status", "/pods/p2/status"))
        return (403, {}, refused) if ours and not shown else await proceed()

    async def scenario(cluster, running):
        for node in ("n1", "n2"):
            cluster.pod(f"on-{node}", by=None, node=node, cpu="16", finalizers=["example.com/kept"])
        cluster.group(2)
        cluster.pods("p1", "p2", cpu="16", priority=100)
        await asyncio.sleep(5)
        promised = running.scheduler.queue.nominator.nominated_on
        assert [[pod.name for pod in promised(node)] for node in ("n1", "n2")] == [["p1"], ["p2"]]
        assert [cluster.nominated(name) for name in ("p1", "p2")] == (["n1", "n2"] if shown else ["", ""])
        refusals = {refusal.pod: refusal.nominated_node for refusal in running.scheduler.decisions.refusals()}
        assert refusals == {"default/p1": "n1", "default/p2": "n2"}
        for node, bound in (("n2", ["on-n1"]), ("n1", ["p1", "p2"])):
            cluster.patch("Pod", f"on-{node}", {"metadata": {"finalizers": None}})
            cluster.pod(f"after-{node}", by=None, cpu="16")
            await asyncio.sleep(20)
            assert cluster.bound() == bound

    playing(scenario, config=PREEMPTING, nodes=("n1", "n2"), cpu="16", fault=refuse, settled=shown)


def test_room_is_made_elsewhere_if_the_promised_node_takes_no_pods_any_more():
    """The victims there still leave."""

    async def scenario(cluster, running):
        for node in ("n1", "n2"):
            cluster.pod(f"on-{node}", by=None, node=node, cpu="16", finalizers=["example.com/kept"])
        cluster.pod("p", by=None, cpu="16", priority=100)
        await asyncio.sleep(5)
        assert (cluster.nominated("p"), cluster.leaving()) == ("n1", ["on-n1"])
        cluster.patch("Node", "n1", {"spec": {"unschedulable": True}})
        await asyncio.sleep(400)
        assert (cluster.nominated("p"), cluster.leaving()) == ("n2", ["on-n1", "on-n2"])

    playing(scenario, config=PREEMPTING, nodes=("n1", "n2"), cpu="16")


def test_coscheduling_case_23_pods_that_are_as_important_are_no_victims():
    async def scenario(cluster, running):
        low(cluster, {"existing-1": "n1", "existing-2": "n1", "existing-3": "n2", "existing-4": "n2"}, priority=100)
        cluster.group(2)
        cluster.pods("p1", "p2", cpu="16", priority=100)
        await settle(running, 20)
        assert len(cluster.bound()) == 4
        assert "preemption: 0/2 nodes are available: 2 no potential victims." in cluster.message("p1")
        assert cluster.nominated("p1") == cluster.nominated("p2") == ""

    playing(scenario, config=PREEMPTING, nodes=("n1", "n2"), cpu="32")


def test_coscheduling_case_23_nodes_where_evictions_do_not_help():
    async def scenario(cluster, running):
        low(cluster, {"existing-1": "n1", "existing-2": "n1", "existing-3": "n2", "existing-4": "n2"})
        cluster.group(2)
        cluster.pods("p1", "p2", cpu="16", priority=100, nodeSelector={"no": "such"})
        await settle(running, 20)
        assert len(cluster.bound()) == 4
        assert "0/2 nodes are available: 2 Preemption is not helpful for scheduling." in cluster.message("p1")

    playing(scenario, config=PREEMPTING, nodes=("n1", "n2"), cpu="32")


def test_coscheduling_case_23_a_node_with_room_for_some_says_what_the_next_member_lacks():
    async def scenario(cluster, running):
        low(cluster, {"existing-1": "n1", "existing-2": "n1"})
        cluster.group(3)
        cluster.pods("p1", "p2", "p3", cpu="16", priority=100)
        await settle(running, 20)
        assert cluster.bound() == ["existing-1", "existing-2"]
        assert "preemption: 0/1 nodes are available: 1 Insufficient cpu." in cluster.message("p1")

    playing(scenario, config=PREEMPTING, nodes=("n1",), cpu="32")


def test_coscheduling_case_23_a_member_that_never_preempts():
    async def scenario(cluster, running):
        low(cluster, {"existing-1": "n1", "existing-2": "n1"})
        cluster.group(2)
        cluster.pods("p1", "p2", cpu="16", priority=100, preemptionPolicy="Never")
        await settle(running, 20)
        assert cluster.bound() == ["existing-1", "existing-2"]
        assert "preemption: not eligible due to preemptionPolicy=Never." in cluster.message("p1")
        assert (
            "preemption: preemption already attempted by default/p1 with message not eligible due to "
            "preemptionPolicy=Never." in cluster.message("p2")
        )

    playing(scenario, config=PREEMPTING, nodes=("n1",), cpu="32")


@pytest.mark.parametrize(
    ("pods", "label"), [(0, "0"), (1, "1-100"), (100, "1-100"), (101, "101-200"), (1000, "901-1000"), (1001, "1000+")]
)
def test_coscheduling_case_24_sizes_of_jobs_as_labels(pods, label):
    assert job_size(pods) == label


def test_coscheduling_case_25_if_there_are_never_enough_all_places_are_given_back():
    """A member counts towards the minimum that this scheduler does not place."""

    async def scenario(cluster, running):
        cluster.group(5)
        cluster.pods("p1", "p2", "p3", "p4")
        cluster.pod("p5", scheduler="other")
        await settle(running)
        assert cluster.bound() == []
        assert not running.scheduler.cluster.assumed
        for name in ("p1", "p2", "p3", "p4"):
            expected = "0/1 nodes are available: 1 all pending pods is already been attempted."
            assert cluster.message(name) == expected

    playing(scenario)


def test_coscheduling_case_26_members_see_where_those_before_them_go():
    """20 CPUs would be free: room for two of three."""

    async def scenario(cluster, running):
        cluster.pod("low", by=None, node="n1", cpu="20")
        cluster.group(3)
        cluster.pods("p1", "p2", "p3", cpu="10", priority=100)
        await settle(running, 40)
        assert cluster.bound() == ["low"], "none is evicted for a job that does not fit all the same"
        assert cluster.nominated("p1") == ""

    playing(scenario, config=PREEMPTING, cpu="20")


# --- complaints about upstream -------------------------------------------------------------------------


def test_members_that_come_one_after_the_other_are_placed_as_soon_as_there_are_enough():
    """Nothing but the last of them has to happen."""

    async def scenario(cluster, running):
        cluster.group(4)
        for number in range(1, 5):
            cluster.pod(f"p{number}")
            await settle(running, 30)
            assert len(cluster.bound()) == (4 if number == 4 else 0)

    playing(scenario)


def test_a_large_job_is_placed_when_enough_room_comes_later():
    """In one attempt; it is not tried over and over before."""

    async def scenario(cluster, running):
        cluster.group(200)
        cluster.pods(*[f"p{number:03}" for number in range(200)], cpu="1")
        await settle(running, 30)
        before = sum(running.attempts.values())
        assert before <= 3
        cluster.node("n2", "300")
        await settle(running, 10)
        assert len(cluster.bound()) == 200
        assert sum(running.attempts.values()) <= before + 1

    playing(scenario, cpu="100")


def test_two_jobs_that_each_need_all_the_room_do_not_hold_it_against_each_other():
    async def scenario(cluster, running):
        for gang in ("a", "b"):
            cluster.group(4, gang)
        for number in range(4):
            for gang in ("a", "b"):
                cluster.pod(f"{gang}{number}", gang, cpu="2")
        await settle(running)
        assert cluster.bound() in (["a0", "a1", "a2", "a3"], ["b0", "b1", "b2", "b3"])
        loser = "b" if cluster.bound()[0] == "a0" else "a"
        cluster.node("n2", "8")
        await settle(running)
        assert {f"{loser}{number}" for number in range(4)} <= set(cluster.bound())

    playing(scenario)


def test_a_pod_that_is_deleted_as_its_attempt_fails_leaves_nothing_behind():
    async def scenario(cluster, running):
        original = running.scheduler.pod_handler.forget
        for number in range(20):
            cluster.pod(f"head-{number}", f"g{number}", by={"min_available": "1"}, cpu="100")
            for _ in range(number):
                await asyncio.sleep(0)
            cluster.remove("Pod", f"head-{number}")
        await settle(running)
        assert original is not None
        assert len(running.scheduler.queue) == 0
        assert cache_of(running.scheduler).gangs == {}
        assert cache_of(running.scheduler)._groups == {}

    playing(scenario)


def test_a_failed_member_is_not_left_behind_when_the_others_go():
    """Its gang needs fewer: it is tried again by itself."""

    async def scenario(cluster, running):
        cluster.group(2, match_policy="once-satisfied")
        cluster.pods("p1", "p2", cpu="4")
        cluster.pod("p3", cpu="4")
        await settle(running)
        assert len(cluster.bound()) == 2
        cluster.node("n2", "4")
        await settle(running)
        assert cluster.bound() == ["p1", "p2", "p3"]
        check(running)

    playing(scenario)


@pytest.mark.parametrize("large", ["a", "b", "c", "d"])
@pytest.mark.parametrize("minimum", [1, 2, 3])
@pytest.mark.parametrize("mode", ["Strict", "NonStrict"])
def test_a_member_that_fits_nowhere_does_not_hold_back_those_that_are_enough(large, minimum, mode):
    async def scenario(cluster, running):
        cluster.group(minimum, mode=mode)
        for name in ("a", "b", "c", "d"):
            cluster.pod(name, cpu="100" if name == large else "1")
        await settle(running, 20)
        assert cluster.bound() == sorted({"a", "b", "c", "d"} - {large})
        assert cluster.message(large).startswith("0/1 nodes are available: 1 Insufficient cpu.")
        attempts = sum(running.attempts.values())
        assert attempts <= 6
        await settle(running, 200)
        assert sum(running.attempts.values()) == attempts

    playing(scenario)
