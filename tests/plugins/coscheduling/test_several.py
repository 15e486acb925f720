"""Gangs together with other things: extenders, several profiles, gangs as victims."""

import asyncio
import copy

from koordsched.framework.interface import Permit
from koordsched.framework.status import Code, Status
from koordsched.plugins.coscheduling.kinds import BIND_GANG_MEMBER_COUNT
from tests.plugins.coscheduling.placing import Gangs, configuration, scheduling, settle
from tests.virtualtime import run

PREEMPTING = configuration(enablePreemption=True)


def two_profiles():
    made = configuration()
    (first,) = made["profiles"]
    second = copy.deepcopy(first)
    second["schedulerName"] = "other-scheduler"
    made["profiles"].append(second)
    return made


def test_members_of_several_profiles_are_placed_together():
    async def work():
        cluster = Gangs()
        async with scheduling(cluster, two_profiles()) as running:
            cluster.group(4)
            cluster.pods("a", "c", scheduler="other-scheduler", cpu="3")
            cluster.pods("b", "d", cpu="3")
            await settle(running)
            assert cluster.bound() == []
            assert "Insufficient cpu" in cluster.message("c")
            cluster.node("n2", "8")
            await settle(running)
            assert cluster.bound() == ["a", "b", "c", "d"]

    run(work())


def test_a_gang_of_which_a_member_may_not_go_is_no_victim():
    """Of a gang of two one is on a node that is of use and the other is spared: the search for room comes to an end."""

    async def work():
        cluster = Gangs(nodes=("n1", "n2"), cpu="10")
        cluster.group(2, "victims")
        cluster.pod("v1", "victims", node="n1", cpu="10")
        cluster.pod(
            "v2",
            "victims",
            node="n2",
            cpu="10",
            labels={"scheduling.koordinator.sh/disable-preemptible": "true"},
        )
        async with scheduling(cluster, PREEMPTING) as running:
            cluster.group(1, "g")
            cluster.pod("p", "g", cpu="10", priority=100)
            await settle(running, 30)
            assert "v1" in cluster.bound()
            assert "v2" in cluster.bound()
            assert "p" not in cluster.bound()

    run(work())


class HoldsOne(Permit):
    """Has the pod v1 wait."""

    name = "HoldsOne"

    def __init__(self, args, handle):
        self.handle = handle

    def events_to_register(self):
        return []

    def permit(self, cycle, pod, row):
        return Status(Code.WAIT if pod.name == "v1" else Code.SUCCESS), 600.0


def test_a_member_that_waits_on_permit_is_no_victim_if_the_rest_may_not_go():
    async def work():
        cluster = Gangs(nodes=("n1", "n2"), cpu="10")
        spared = {"scheduling.koordinator.sh/disable-preemptible": "true"}
        cluster.group(2, "victims")
        cluster.pod("v2", "victims", node="n2", cpu="10", labels=spared)
        cluster.pod("v1", "victims", cpu="10")
        async with scheduling(cluster, PREEMPTING, plugins=(HoldsOne,)) as running:
            await asyncio.sleep(2)
            assert [each.pod.name for each in running.scheduler.waiting] == ["v1"]
            cluster.pod("p", by=None, cpu="10", priority=100)
            await asyncio.sleep(10)
            (waiting,) = running.scheduler.waiting
            assert waiting.pod.name == "v1", "it keeps its place"
            waiting.allow("HoldsOne")
            await settle(running, 10)
            assert cluster.bound() == ["v1", "v2"]

    run(work())


def test_a_gang_goes_as_a_whole_if_too_few_would_be_left():
    async def work():
        cluster = Gangs(nodes=("n1", "n2"), cpu="10")
        cluster.group(2, "victims")
        cluster.pod("v1", "victims", node="n1", cpu="10")
        cluster.pod("v2", "victims", node="n2", cpu="10")
        async with scheduling(cluster, PREEMPTING) as running:
            cluster.group(1, "g")
            cluster.pod("p", "g", cpu="10", priority=100)
            await settle(running, 60)
            assert cluster.bound() == ["p"]
            assert cluster.get("Pod", "v1") is None
            assert cluster.get("Pod", "v2") is None

    run(work())


def test_members_are_no_victims_of_each_other():
    """The important one comes last; there is no room for it but that of the others."""

    async def work():
        for config in (PREEMPTING, configuration()):
            if config is not PREEMPTING:
                del config["profiles"][0]["plugins"]["postFilter"]["disabled"]
            cluster = Gangs(cpu="3")
            async with scheduling(cluster, config) as running:
                cluster.group(3)
                cluster.pods("a", "b", cpu="1")
                cluster.pod("z", cpu="3", priority=100)
                await settle(running, 60)
                assert cluster.bound() == []
                assert cluster.nominated("z") == ""
                assert {"a", "b", "z"} == set(cluster.waiting())
                cluster.node("n2", "8")
                await settle(running, 30)
                assert cluster.bound() == ["a", "b", "z"]

    run(work())


def test_room_that_is_made_for_one_member_is_used_by_the_gang():
    """Preemption pod by pod, as without job preemption."""

    async def work():
        config = configuration()
        del config["profiles"][0]["plugins"]["postFilter"]["disabled"]
        cluster = Gangs(nodes=("n1", "n2"), cpu="4")
        cluster.pod("low-1", by=None, node="n1", cpu="4")
        cluster.pod("low-2", by=None, node="n2", cpu="4")
        async with scheduling(cluster, config) as running:
            cluster.group(2)
            cluster.pods("a", "b", cpu="4", priority=100)
            await asyncio.sleep(60)
            await settle(running, 60)
            assert cluster.bound() == ["a", "b"]

    run(work())


def test_members_that_may_not_be_in_one_zone_get_room_in_two():
    """The second node would fit any of them, but not after the first."""
    away = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [away]}}

    async def work():
        zones = {"n1": "a", "n2": "a", "n3": "b"}
        cluster = Gangs(tuple(zones), cpu="16")
        for name, zone in zones.items():
            cluster.patch("Node", name, {"metadata": {"labels": {"zone": zone}}})
            cluster.pod(f"low-{name}", by=None, node=name, cpu="16")
        async with scheduling(cluster, PREEMPTING) as running:
            cluster.group(2)
            cluster.pods("p1", "p2", cpu="16", priority=100, labels={"app": "x"}, affinity=affinity)
            await settle(running, 30)
            assert cluster.bound() == ["low-n2", "p1", "p2"]

    run(work())


class HoldsAll(HoldsOne):
    """Has all pods wait."""

    def permit(self, cycle, pod, row):
        return Status(Code.WAIT), 600.0


def test_a_gang_that_comes_to_a_group_while_it_is_bound_says_how_many_are_bound_together():
    """Also if another gang has left that group while it was bound."""

    async def work():
        cluster, three = Gangs(), '["default/a", "default/b", "default/c"]'
        async with scheduling(cluster, plugins=(HoldsAll,)) as running:

            async def let_go(*names):
                for each in running.scheduler.waiting:
                    if each.pod.name in names:
                        each.allow("HoldsOne")
                await asyncio.sleep(1)

            cluster.group(2, "c")
            cluster.pods("c1", "c2", gang="c")
            await asyncio.sleep(2)
            cluster.group(1, "a", groups=three)
            cluster.group(1, "b", groups=three)
            cluster.pod("a1", "a")
            cluster.pod("b1", "b")
            await asyncio.sleep(2)
            await let_go("b1")
            cluster.regroup("a", groups='["default/a"]')
            await asyncio.sleep(1)
            cluster.regroup("c", groups=three)
            await asyncio.sleep(1)
            await let_go("a1", "c1", "c2")
            assert cluster.bound() == ["a1", "b1", "c1", "c2"]
            written = [cluster.get("Pod", name)["metadata"]["annotations"] for name in ("c1", "c2")]
            assert [each.get(BIND_GANG_MEMBER_COUNT) for each in written] == ["2", "2"]

    run(work())
