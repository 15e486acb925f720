"""Room for a pod group as a whole, with the gate WorkloadAwarePreemption (coscheduling spec, Appendix A)."""

import asyncio
from itertools import pairwise
from random import Random

import pytest

from koordsched.fakecluster.clock import rfc3339
from koordsched.framework.turns import at_once
from koordsched.plugins.gangscheduling.messages import EVICTING
from koordsched.plugins.gangscheduling.preemption import RoomForGroup, Unit, _left, _Trial
from tests.plugins.gangscheduling.running import GATES, PodGroupCluster, scheduling
from tests.plugins.gangscheduling.test_over_the_api import FEASIBLE, gating
from tests.virtualtime import run

WHOLE = (*GATES, "WorkloadAwarePreemption=true")
WAITING = "pod group is unschedulable, pod group is waiting for preemption to complete"
AS_A_WHOLE = "preemption: not eligible due to workload aware preemption enabled"


class Preempted(PodGroupCluster):
    """With pods that run since different times, and stay until they are let go."""

    def runs(self, name, node, cpu="2", priority=0, since=100.0, group="", **spec):
        """Puts a pod in that has run for `since` seconds."""
        self.member(name, group=group, cpu=cpu, priority=priority, node=node, **spec)
        record = self.registry.collection(self.resource("Pod")).items["default", name]
        pod = self.get("Pod", name)
        started = {"phase": "Running", "startTime": rfc3339(self.clock.wall() - since)}
        self.registry._commit(self.resource("Pod"), "MODIFIED", record, pod | {"status": started}, dry_run=False)

    def going(self):
        """The names of pods that are being deleted."""
        pods = self.registry.list(self.resource("Pod"))
        return sorted(pod["metadata"]["name"] for pod in pods if pod["metadata"].get("deletionTimestamp"))

    def notes(self, reason):
        return sorted(event["note"] for event in self.events() if event["reason"] == reason)


def playing(scenario, nodes=("n1",), cpu="8", gates=WHOLE, **more):
    async def main():
        cluster = Preempted(nodes, cpu)
        async with scheduling(cluster, gates=gates, **more) as running:
            await scenario(cluster, running)

    run(main(), limit=86400.0)


def case_31(cluster):
    """Six pods of one CPU: old and young ones, of a group, and one that is more important."""
    cluster.group(0, "victims", priority=50, disruptionMode="PodGroup")
    for number, node in enumerate(("n1", "n1", "n1")):
        cluster.runs(f"v-{number}", node, cpu="1", priority=50, group="victims")
    cluster.runs("old", "n1", cpu="1", priority=50, since=1000.0)
    cluster.runs("young", "n1", cpu="1", priority=50, since=10.0)
    cluster.runs("important", "n1", cpu="1", priority=200)


@pytest.mark.parametrize(
    ("slots", "victims"),
    [
        (1, ["young"]),
        (2, ["old", "young"]),
        (3, ["old", "v-0", "v-1", "v-2", "young"]),
    ],
)
def test_coscheduling_case_31(slots, victims):
    """The pod of priority 200 stays; the others come back in the order group, old pod, young pod."""

    async def scenario(cluster, running):
        case_31(cluster)
        cluster.group(slots, priority=100)
        cluster.members(slots, cpu="1")
        await asyncio.sleep(2)
        expected = victims if slots < 3 else ["v-0", "v-1", "v-2"]
        assert cluster.going() == expected

    playing(scenario, cpu="6")


def test_victims_read_for_whom_and_the_group_waits_for_all_of_them():
    async def scenario(cluster, running):
        for name, node in (("a", "n1"), ("b", "n2")):
            cluster.runs(name, node, cpu="8", priority=5)
        cluster.group(2, priority=100)
        cluster.members(2, cpu="8")
        await asyncio.sleep(0.5)
        assert cluster.going() == ["a", "b"]
        assert cluster.condition() == ("False", "Unschedulable", WAITING)
        assert {cluster.nominated("m-1"), cluster.nominated("m-2")} == {"n1", "n2"}
        assert cluster.says("a", "DisruptionTarget") == (
            "PreemptionByScheduler",
            "default-scheduler: preempting to accommodate a higher priority podgroup",
        )
        uid = cluster.get("PodGroup", "g", api_version="scheduling.k8s.io/v1alpha2")["metadata"]["uid"]
        assert cluster.notes("Preempted") == [f"Preempted by podgroup {uid} on node cluster"] * 2
        assert AS_A_WHOLE in cluster.says("m-1")[1]
        await asyncio.sleep(20)
        assert cluster.placed() == {}
        assert len(cluster.notes("Preempted")) == 2
        await cluster.delete("a", "b")
        await asyncio.sleep(30)
        assert set(cluster.placed()) == {"m-1", "m-2"}
        assert cluster.condition() == ("True", "Scheduled", "")
        counted = running.scheduler.metrics.podgroup_schedule_attempts
        assert counted.labels("waiting_on_preemption", "default-scheduler").value == 1

    playing(scenario, nodes=("n1", "n2"))


def test_a_pod_that_takes_the_room_that_was_made_goes_too():
    async def scenario(cluster, running):
        cluster.runs("low", "n1", cpu="8", priority=1)
        cluster.group(1, priority=100)
        cluster.members(1, cpu="8")
        await asyncio.sleep(0.5)
        assert cluster.going() == ["low"]
        cluster.runs("intruder", "n1", cpu="8", priority=1)
        await asyncio.sleep(5)
        assert cluster.going() == ["low"]
        await cluster.delete("low")
        await asyncio.sleep(30)
        assert cluster.going() == ["intruder"]

    playing(scenario)


def test_no_pod_is_evicted_for_a_group_that_does_not_fit_even_then():
    async def scenario(cluster, running):
        cluster.runs("low", "n1", cpu="8", priority=1)
        cluster.group(2, priority=10)
        cluster.members(2, cpu="8")
        await asyncio.sleep(30)
        assert (cluster.going(), cluster.placed()) == ([], {"low": "n1"})
        assert cluster.condition() == ("False", "Unschedulable", "pod group is unschedulable")

    playing(scenario)


@pytest.mark.parametrize(
    ("spec", "member", "text"),
    [
        ({"priority": 1}, {}, "No preemption victims found for incoming preemptor"),
        ({}, {"priority": 100}, "No preemption victims found for incoming preemptor"),
        ({"priority": 100}, {"preemptionPolicy": "Never"}, "not eligible due to preemptionPolicy=Never."),
    ],
)
def test_whether_room_may_be_made_goes_by_the_group_and_no_member_may_object(spec, member, text):
    async def scenario(cluster, running):
        cluster.runs("low", "n1", cpu="8", priority=1)
        cluster.group(1, **spec)
        cluster.members(1, cpu="8", **member)
        await asyncio.sleep(3)
        assert cluster.going() == []
        assert cluster.condition() == ("False", "Unschedulable", f"pod group is unschedulable, {text}")

    playing(scenario)


def test_members_with_a_place_read_what_they_did():
    async def scenario(cluster, running):
        cluster.group(2, priority=100)
        cluster.members(2, cpu="8")
        await asyncio.sleep(3)
        texts = {cluster.says(name)[1] for name in ("m-1", "m-2")}
        assert FEASIBLE in texts
        assert any(AS_A_WHOLE in text for text in texts)

    playing(scenario)


TOPOLOGY = "TopologyAwareWorkloadScheduling=true"
NOT_SUPPORTED = "workload aware preemption is not supported for pod groups with scheduling constraints"
BY_PLACEMENT = "preemption: not eligible due to placement-based pod group scheduling limitation"


@pytest.mark.parametrize(
    ("gates", "reason", "member"), [(WHOLE, f", {NOT_SUPPORTED}", AS_A_WHOLE), (GATES, "", BY_PLACEMENT)]
)
def test_for_groups_with_constraints_no_room_is_made(gates, reason, member):
    async def scenario(cluster, running):
        cluster.node("n2", "8", {"rack": "r"})
        cluster.runs("low", "n2", cpu="8", priority=1)
        cluster.group(1, priority=100, schedulingConstraints={"topology": [{"key": "rack"}]})
        cluster.members(1, cpu="8", priority=100)
        await asyncio.sleep(3)
        assert cluster.going() == []
        text = "0/1 placements are available, first placement status: pod group is unschedulable"
        assert cluster.condition()[2] == text + reason
        assert member in cluster.says("m-1")[1]

    playing(scenario, gates=(*gates, TOPOLOGY))


def test_without_default_preemption_there_is_none():
    async def scenario(cluster, running):
        cluster.runs("low", "n1", cpu="8", priority=1)
        cluster.group(1, priority=100)
        cluster.members(1, cpu="8")
        await asyncio.sleep(3)
        refusal = "default preemption plugin is not registered, workload aware preemption is disabled"
        assert cluster.condition()[2] == f"pod group is unschedulable, {refusal}"

    off = {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}]}}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "plugins": off}],
    }
    playing(scenario, config=config)


@pytest.mark.parametrize(("mode", "victims"), [("PodGroup", ["v-0", "v-1"]), ("Pod", ["v-0"]), (None, ["v-0"])])
def test_a_group_is_evicted_as_its_disruption_mode_says(mode, victims):
    """One pod of it is where the other has nothing to do with that."""

    async def scenario(cluster, running):
        cluster.group(0, "victims", priority=1, **({"disruptionMode": mode} if mode else {}))
        cluster.runs("v-0", "n1", cpu="8", priority=1, group="victims")
        cluster.runs("v-1", "n2", cpu="2", priority=1, group="victims")
        cluster.runs("fixed", "n2", cpu="6", priority=1000)
        cluster.group(1, priority=100)
        cluster.members(1, cpu="8")
        await asyncio.sleep(2)
        assert cluster.going() == victims

    playing(scenario, nodes=("n1", "n2"))


def test_pods_with_a_budget_come_back_first():
    async def scenario(cluster, running):
        cluster.disruption_budget("kept")
        cluster.runs("kept", "n1", priority=1, labels={"app": "kept"})
        cluster.runs("other", "n1", priority=50)
        cluster.group(1, priority=100)
        cluster.members(1, cpu="2")
        await asyncio.sleep(2)
        assert cluster.going() == ["other"]

    playing(scenario, cpu="4")


@pytest.mark.parametrize("group", ["g", "important"])
def test_pods_of_the_group_itself_and_of_more_important_ones_are_no_victims(group):
    """Whatever the priority of the pod says."""

    async def scenario(cluster, running):
        cluster.group(0, "important", priority=500, disruptionMode="PodGroup")
        cluster.runs("there", "n1", cpu="8", priority=0, group=group)
        cluster.group(1, priority=100)
        cluster.members(1, cpu="8")
        await asyncio.sleep(3)
        assert cluster.going() == []

    playing(scenario)


def test_a_group_with_too_few_pods_left_keeps_no_room():
    async def scenario(cluster, running):
        cluster.runs("low", "n1", cpu="8", priority=1)
        cluster.group(2, priority=100)
        cluster.members(2, cpu="4", priority=100)
        await asyncio.sleep(3)
        assert [cluster.nominated(name) for name in ("m-1", "m-2")] == ["n1", "n1"]
        cluster.member("late", group="", cpu="8", priority=10)
        await cluster.delete("m-1")
        await cluster.delete("low")
        await asyncio.sleep(30)
        assert cluster.placed() == {"late": "n1"}

    playing(scenario)


class _Slow:
    """Evictions take a while."""

    async def __call__(self, call, proceed):
        if "/pods/low" in call.path and call.method in ("PATCH", "DELETE"):
            await asyncio.sleep(20)
        return await proceed()


def test_the_group_stays_out_of_the_queue_while_pods_are_told_to_go():
    async def scenario(cluster, running):
        for name in ("low-1", "low-2"):
            cluster.runs(name, "n1", cpu="4", priority=1)
        cluster.group(2, priority=100)
        cluster.members(2, cpu="4")
        await asyncio.sleep(10)
        assert [gating(running, name) for name in ("m-1", "m-2")] == [EVICTING, EVICTING]
        await asyncio.sleep(120)
        await cluster.delete("low-1", "low-2")
        await asyncio.sleep(60)
        assert set(cluster.placed()) == {"m-1", "m-2"}

    playing(scenario, fault=_Slow())


def test_where_pods_on_other_nodes_decide_the_right_ones_go():
    """The member must not be in the zone of a pod that it repels: that one goes as well, though it is elsewhere."""

    async def scenario(cluster, running):
        for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b")):
            cluster.node(name, "4", {"zone": zone})
        cluster.runs("full", "a1", cpu="4", priority=1)
        cluster.runs("repelled", "a2", cpu="1", priority=2, labels={"app": "x"})
        cluster.runs("beside", "a2", cpu="1", priority=1)
        cluster.runs("kept", "b1", cpu="4", priority=1000)
        term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        cluster.group(1, priority=100)
        cluster.members(1, cpu="4", affinity=affinity)
        await asyncio.sleep(2)
        going = cluster.going()
        await cluster.delete(*going)
        await asyncio.sleep(30)
        assert "m-1" in cluster.placed()
        node = cluster.placed()["m-1"]
        assert going == (["full", "repelled"] if node == "a1" else ["beside", "repelled"])

    playing(scenario, nodes=())


def test_halves_are_tried_before_single_ones_with_the_same_result():
    draw = Random(7)
    for _ in range(300):
        sizes = [draw.randint(1, 5) for _ in range(draw.randint(0, 12))]
        room = draw.randint(0, sum(sizes) + 2)
        asked = []

        def fits(going, sizes=sizes, room=room, asked=asked):
            asked.append(tuple(going))
            yield
            return sum(sizes) - sum(sizes[at] for at in going) <= room

        expected, used = [], 0
        for at, size in enumerate(sizes):
            if used + size <= room:
                used += size
            else:
                expected.append(at)
        assert at_once(_left(list(range(len(sizes))), fits)) == expected
        assert len(asked) <= 2 * len(sizes) + 1


def test_far_pods_are_not_tried_one_by_one(monkeypatch):
    """Five pods on each of 20 nodes; one node is needed."""

    async def main():
        cluster = Preempted([f"n{number:02}" for number in range(20)], "5")
        for number in range(100):
            cluster.runs(f"p-{number:02}", f"n{number % 20:02}", "1", 1)
        cluster.group(1, priority=100)
        cluster.members(1, cpu="5")
        evicted = []
        fits = _Trial.fits

        def counting(trial, going):
            going = list(going)
            evicted.append(len(going))
            return fits(trial, going)

        monkeypatch.setattr(_Trial, "fits", counting)
        async with scheduling(cluster, gates=WHOLE):
            await asyncio.sleep(0.5)
        assert len(cluster.going()) == 5
        assert len(evicted) < 20
        assert max(evicted) == 5

    run(main(), limit=86400.0)


@pytest.mark.parametrize("seed", range(10))
def test_victims_found_by_parts_are_those_found_on_the_whole(seed, monkeypatch):
    """Each part of the cluster by itself leads to the same as all units one after the other."""

    async def main():
        draw = Random(seed)
        nodes = [f"n{number}" for number in range(5)]
        cluster = Preempted(nodes, "8")
        for name in ("v", "w"):
            cluster.group(0, name, priority=draw.choice((0, 5)), disruptionMode="PodGroup")
        for number in range(16):
            group = draw.choice(("", "", "v", "w"))
            cluster.runs(f"p-{number:02}", draw.choice(nodes), "1", draw.choice((0, 5, 9)), float(number), group)
        cluster.group(5, priority=100)
        cluster.members(5, cpu=draw.choice(("6", "7")))
        seen = []

        def whole(room, places):
            with room._handle.hypothesis() as trial:
                trial.withdraw(room._members)
                units = at_once(room._in_order(at_once(room._candidates.everywhere())))
                return at_once(_left(units, _Trial(trial, places).fits))

        by_parts = RoomForGroup._going

        def both(room, places):
            found = yield from by_parts(room, places)
            seen.append((sorted(unit.name for unit in found), sorted(unit.name for unit in whole(room, places))))
            return found

        monkeypatch.setattr(RoomForGroup, "_going", both)
        async with scheduling(cluster, gates=WHOLE):
            await asyncio.sleep(3)
        assert seen
        assert all(one == other for one, other in seen)

    run(main(), limit=86400.0)


def test_order_is_total():
    class Ran:
        row = 0

        def __init__(self, start):
            self.start_time = start

    early, late = Ran("2026-01-01T00:00:00Z"), Ran("2026-01-02T00:00:00Z")
    units = [
        Unit("a", [late], 60),
        Unit("b", [late, late, late], 50, True),
        Unit("c", [early, late], 50, True),
        Unit("d", [late, late], 50, True),
        Unit("e", [early], 50),
        Unit("f", [late], 50),
        Unit("g", [Ran(None)], 50),
        Unit("h", [early], 10),
    ]
    for one, other in pairwise(units):
        assert one.importance() < other.importance()
