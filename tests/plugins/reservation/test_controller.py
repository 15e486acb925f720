"""What the controller writes: status, ends, deletions; against an API server, on virtual time."""

import asyncio
import json

import pytest

from koordsched.plugins.reservation.kinds import OPERATING_MODE, RESERVATION_ALLOCATED, RESERVATION_OWNERS
from tests.plugins.reservation.running import API, ReservationCluster, configuration, scheduling
from tests.virtualtime import run

HOUR, DAY = 3600.0, 86400.0
EXPIRED = ("False", "Expired")


def on_cluster(scenario, config=None, nodes=("n1",), **options):
    """Runs `scenario(cluster)` while a scheduler leads; `scenario.before(cluster)` comes before that."""

    async def main():
        cluster = ReservationCluster(nodes)
        given = scenario.before(cluster) if hasattr(scenario, "before") else None
        async with scheduling(cluster, config, **options) as running:
            await (scenario(cluster, running) if given is None else scenario(cluster, running, given))

    run(main(), limit=40 * DAY)


def series(running, name):
    """Label values -> value, of a metric."""
    return {
        tuple(sample.labels.values()): sample.value
        for metric in running.scheduler.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == name
    }


def test_metrics_of_a_reservation_without_owners():
    """What is not used is shown as 0; of what there is none there is no ratio, and what is no quantity is not shown."""

    async def scenario(cluster, running):
        cluster.available(allocatable={"cpu": "10", "example.com/a": "0", "example.com/b": "lots"})
        await asyncio.sleep(5)
        assert series(running, "scheduler_reservation_resource") == {
            ("allocatable", "r", "cpu", "core"): 10,
            ("allocated", "r", "cpu", "core"): 0,
            ("utilization", "r", "cpu", "ratio"): 0,
            ("allocatable", "r", "example.com/a", "raw"): 0,
            ("allocated", "r", "example.com/a", "raw"): 0,
        }

    on_cluster(scenario)


@pytest.mark.parametrize(
    "created, spec, node, phase",
    [
        pytest.param(300, {"ttl": "1m"}, True, "Failed", id="ttl passed, with a node"),
        pytest.param(300, {"ttl": "1m"}, False, "Failed", id="ttl passed, without a node"),
        pytest.param(0, {"ttl": "1m"}, True, "Available", id="within ttl"),
        pytest.param(0, {"ttl": "0", "expires": 60}, True, "Available", id="ttl 0 switches expires off"),
        pytest.param(25 * 3600, {"ttl": "24h", "expires": -7 * DAY}, True, "Failed", id="the earlier of the two"),
        pytest.param(60, {"ttl": "24h", "expires": 1}, True, "Failed", id="expires passed"),
    ],
)
def test_reservation_case_22_expiry(created, spec, node, phase):
    async def scenario(cluster, running):
        given = {**spec, **({"expires": cluster.ago(spec["expires"])} if "expires" in spec else {})}
        if node:
            cluster.available(created=created, **given)
        else:
            # No node is large enough, so it stays without one.
            cluster.reservation(created=created, requests={"cpu": "100"}, **given)
        await asyncio.sleep(20)
        assert cluster.phase() == phase
        assert cluster.condition("Ready") == (EXPIRED if phase == "Failed" else ("True", "Available"))

    on_cluster(scenario)


def test_reservation_case_22_expiry_at_the_deadline():
    async def scenario(cluster, running):
        cluster.available("a", ttl="1m")
        cluster.available("b", ttl="24h", expires=cluster.ago(-100))
        cluster.reservation("c", ttl="30s", requests={"cpu": "100"})
        assert 29.5 < await cluster.until(lambda: cluster.phase("c") == "Failed") < 31
        assert 29 < await cluster.until(lambda: cluster.phase("a") == "Failed") < 31
        assert 39 < await cluster.until(lambda: cluster.phase("b") == "Failed") < 41
        # What it said before it had no node is kept.
        assert cluster.condition("Scheduled", "c") == ("False", "Unschedulable")
        assert cluster.condition("Scheduled", "a") == ("True", "Scheduled")

    on_cluster(scenario)


def test_reservation_case_22_node_missing():
    async def scenario(cluster, running):
        cluster.available("a", node="gone")
        cluster.available("b", node="n2", ttl="0")
        cluster.available("c", node="n1")
        await cluster.until(lambda: cluster.phase("a") == "Failed", limit=2)
        assert cluster.condition("Ready", "a") == EXPIRED
        assert cluster.phase("b") == "Available"
        cluster.delete("Node", "n2")
        await cluster.until(lambda: cluster.phase("b") == "Failed", limit=2)
        assert cluster.condition("Ready", "b") == EXPIRED
        await asyncio.sleep(30)
        assert cluster.phase("c") == "Available"

    on_cluster(scenario, nodes=("n1", "n2"))


def test_reservation_case_23_status():
    async def scenario(cluster, running, uid):
        await cluster.until(lambda: cluster.phase() == "Succeeded", limit=2)
        status = cluster.status()
        assert status["allocated"] == {"cpu": "8", "memory": "8Gi"}
        pods = [cluster.get("Pod", f"p{number}")["metadata"] for number in range(4)]
        owners = [{key: pod[key] for key in ("namespace", "name", "uid")} for pod in pods]
        assert status["currentOwners"] == sorted(owners, key=lambda owner: owner["uid"])
        assert cluster.condition("Ready") == ("False", "Succeeded")
        assert cluster.condition("Scheduled") == ("True", "Scheduled")
        assert series(running, "scheduler_reservation_resource") == {
            ("allocatable", "r", "cpu", "core"): 10,
            ("allocated", "r", "cpu", "core"): 8,
            ("utilization", "r", "cpu", "ratio"): 0.8,
            ("allocatable", "r", "memory", "Gi"): 10,
            ("allocated", "r", "memory", "Gi"): 8,
            ("utilization", "r", "memory", "ratio"): 0.8,
        }
        phases = {"Pending": 0, "Available": 0, "Succeeded": 1, "Failed": 0}
        assert series(running, "scheduler_reservation_status_phase") == {("r", key): n for key, n in phases.items()}
        # It is over: it does not expire, and its owners are not followed any more.
        version = cluster.get("Reservation", "r", api_version=API)["metadata"]["resourceVersion"]
        cluster.delete("Pod", "p0", "default")
        await asyncio.sleep(2 * 3600)
        assert cluster.get("Reservation", "r", api_version=API)["metadata"]["resourceVersion"] == version

    def before(cluster):
        uid = cluster.available(ttl="1h")
        requests = {"cpu": "2", "memory": "2Gi", "ephemeral-storage": "10Gi"}
        for number in range(4):
            cluster.owner(f"p{number}", uid, requests=requests)
        return uid

    scenario.before = before
    on_cluster(scenario)


def test_owners_come_and_go():
    async def scenario(cluster, running):
        uid = cluster.available(allocateOnce=False, allocatable={"cpu": "10", "memory": "10Gi", "pods": "5"})
        await asyncio.sleep(1)
        assert "allocated" not in cluster.status()
        cluster.owner("a", uid, requests={"cpu": "1500m", "memory": "512Mi"})
        await cluster.until(lambda: cluster.owners() == ["a"], limit=2)
        assert cluster.status()["allocated"] == {"cpu": "1500m", "memory": "512Mi"}
        cluster.owner("b", uid, requests={"cpu": "500m"})
        await cluster.until(lambda: sorted(cluster.owners()) == ["a", "b"], limit=2)
        assert cluster.status()["allocated"] == {"cpu": "2", "memory": "512Mi"}
        # Those on another node, or of another Reservation, are no owners.
        cluster.owner("elsewhere", uid, node="n2")
        cluster.owner("another", "no-such-uid")
        cluster.delete("Pod", "a", "default")
        await cluster.until(lambda: cluster.owners() == ["b"], limit=2)
        assert cluster.status()["allocated"] == {"cpu": "500m"}
        cluster.patch("Pod", "b", {"metadata": {"annotations": {RESERVATION_ALLOCATED: None}}}, "default", "v1")
        await cluster.until(lambda: not cluster.owners(), limit=2)
        assert cluster.status().keys() == {"phase", "nodeName", "allocatable", "conditions"}
        assert cluster.phase() == "Available"

    on_cluster(scenario, nodes=("n1", "n2"))


def test_an_owner_counts_once_it_is_bound():
    """From the request of a user to the status, through scheduling."""

    async def scenario(cluster, running):
        cluster.reservation(requests={"cpu": "2", "memory": "2Gi"}, allocateOnce=True)
        await cluster.until(lambda: cluster.phase() == "Available", limit=5)
        cluster.pod("p", requests={"cpu": "1", "memory": "1Gi"}, labels={"app": "web"})
        await cluster.until(lambda: cluster.phase() == "Succeeded", limit=5)
        pod = cluster.get("Pod", "p")
        assert pod["spec"]["nodeName"] == "n1"
        assert json.loads(pod["metadata"]["annotations"][RESERVATION_ALLOCATED])["uid"] == cluster.uid()
        assert cluster.owners() == ["p"]
        assert cluster.status()["allocated"] == {"cpu": "1", "memory": "1Gi"}

    on_cluster(scenario)


def test_why_it_has_no_node():
    async def scenario(cluster, running):
        cluster.reservation(requests={"cpu": "100"})
        await cluster.until(lambda: cluster.condition("Scheduled") == ("False", "Unschedulable"), limit=5)
        [first] = cluster.status()["conditions"]
        assert first["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert first["lastProbeTime"] == first["lastTransitionTime"]
        assert cluster.phase() == "Pending"
        assert running.attempts.keys() == {f"default/{cluster.uid()}"}
        # Writing that is no reason to try it again.
        await asyncio.sleep(20)
        assert list(running.attempts.values()) == [1]
        cluster.node("n2", cpu="128", taints=[{"key": "keep", "effect": "NoSchedule"}])
        await cluster.until(lambda: "0/2 nodes" in cluster.status()["conditions"][0]["message"], limit=60)
        [second] = cluster.status()["conditions"]
        assert second["lastTransitionTime"] == first["lastTransitionTime"]
        assert second["lastProbeTime"] > first["lastProbeTime"]
        cluster.node("n3", cpu="128")
        await cluster.until(lambda: cluster.phase() == "Available", limit=60)
        assert cluster.condition("Scheduled") == ("True", "Scheduled")

    on_cluster(scenario)


def over(cluster, name, phase, reason, ago, node="n1", **times):
    """A Reservation that has been over for so many seconds."""
    at = {"lastProbeTime": cluster.ago(ago), "lastTransitionTime": cluster.ago(ago), **times}
    conditions = [{"type": "Ready", "status": "False", "reason": reason, **at}]
    status = {"phase": phase, "nodeName": node, "conditions": conditions}
    cluster.reservation(name, created=ago + 60, status=status)


def test_reservation_case_24_garbage_collection():
    async def scenario(cluster, running):
        over(cluster, "used", "Succeeded", "Succeeded", 2 * DAY)
        over(cluster, "used-lately", "Succeeded", "Succeeded", DAY - HOUR)
        over(cluster, "probed-lately", "Succeeded", "Succeeded", 2 * DAY, lastProbeTime=cluster.ago(DAY - HOUR))
        over(cluster, "expired-lately", "Failed", "Expired", DAY - HOUR)
        over(cluster, "expired-on-no-node", "Failed", "Expired", 60, node="gone")
        over(cluster, "failed-otherwise", "Failed", "Other", 2 * DAY)
        cluster.available("in-use")
        await asyncio.sleep(61)
        names = ("used", "used-lately", "probed-lately", "expired-lately", "expired-on-no-node", "failed-otherwise")
        assert [name for name in names if cluster.status(name) is None] == ["used", "expired-on-no-node"]
        assert cluster.phase("in-use") == "Available"
        cluster.node("n2")
        over(cluster, "on-n2", "Succeeded", "Succeeded", 60, node="n2")
        await asyncio.sleep(61)
        assert cluster.phase("on-n2") == "Succeeded"
        cluster.delete("Node", "n2")
        await cluster.until(lambda: cluster.status("on-n2") is None, limit=61)
        # The others go when their time has come.
        await asyncio.sleep(HOUR - 300)
        assert cluster.phase("expired-lately") == "Failed"
        await asyncio.sleep(300)
        assert [name for name in names if cluster.status(name) is not None] == ["failed-otherwise"]

    on_cluster(scenario)


def test_garbage_collection_by_the_arguments():
    async def collected(cluster, running):
        over(cluster, "r", "Succeeded", "Succeeded", 0)
        assert 100 < await cluster.until(lambda: cluster.status() is None, limit=200) <= 111

    on_cluster(collected, configuration(gcDurationSeconds=100, gcIntervalSeconds=10))

    async def kept(cluster, running):
        over(cluster, "r", "Succeeded", "Succeeded", 2 * DAY, node="gone")
        await asyncio.sleep(300)
        assert cluster.phase() == "Succeeded"

    on_cluster(kept, configuration(disableGarbageCollection=True))


def test_a_reservation_whose_node_is_gone_is_deleted_although_the_clock_is_set_back():
    async def collected(cluster, running):
        over(cluster, "r", "Failed", "Expired", 0, node="n1")
        await asyncio.sleep(5)
        cluster.delete("Node", "n1")
        await asyncio.sleep(0.5)
        assert cluster.status() is not None
        cluster.clock.wall_offset -= HOUR
        assert await cluster.until(lambda: cluster.status() is None, limit=100) < 61

    on_cluster(collected)


@pytest.mark.parametrize("on", [True, False])
def test_pods_of_a_reservation_that_is_gone(on):
    gates = ("CleanExpiredReservationAllocated=true",) if on else ()

    async def scenario(cluster, running):
        uid = cluster.available(allocateOnce=False)
        cluster.owner("p", uid, labels={"keep": "me"})
        other = cluster.available("other", allocateOnce=False)
        cluster.owner("q", other)
        # One that was never there.
        cluster.owner("stray", "no-such-uid")
        await cluster.until(lambda: cluster.owners() == ["p"], limit=5)
        cluster.delete("Reservation", "r", api_version=API)
        await asyncio.sleep(5)
        annotated = {
            name: RESERVATION_ALLOCATED in (cluster.get("Pod", name)["metadata"].get("annotations") or {})
            for name in ("p", "q", "stray")
        }
        assert annotated == {"p": not on, "q": True, "stray": not on}
        assert cluster.get("Pod", "p")["metadata"]["labels"] == {"keep": "me"}

    on_cluster(scenario, gates=gates)


def test_owners_of_a_pod_that_acts_as_a_reservation_keep_the_annotation_as_long_as_it_is_there():
    async def scenario(cluster, running):
        owners = json.dumps([{"labelSelector": {"matchLabels": {"app": "web"}}}])
        labels, annotations = {OPERATING_MODE: "Reservation"}, {RESERVATION_OWNERS: owners}
        cluster.pod("acts", "n1", labels=labels, annotations=annotations)
        cluster.owner("p", cluster.get("Pod", "acts")["metadata"]["uid"])

        def is_annotated():
            return RESERVATION_ALLOCATED in (cluster.get("Pod", "p")["metadata"].get("annotations") or {})

        await asyncio.sleep(10)
        assert is_annotated()
        cluster.delete("Pod", "acts", "default")
        await cluster.until(lambda: not is_annotated(), limit=10)

    on_cluster(scenario, gates=("CleanExpiredReservationAllocated=true",))


def test_pods_that_wait_are_tried_when_an_owner_is_said_to_use_it_no_more():
    async def scenario(cluster, running):
        uid = cluster.available(allocateOnce=False, allocatePolicy="Restricted")
        cluster.owner("p", uid, requests={"cpu": "10"})
        await cluster.until(lambda: cluster.owners() == ["p"], limit=5)
        needs_one = {"scheduling.koordinator.sh/reservation-affinity": "{}"}
        cluster.pod("q", requests={"cpu": "5"}, labels={"app": "web"}, annotations=needs_one)
        await asyncio.sleep(20)
        assert "nodeName" not in cluster.get("Pod", "q")["spec"]
        annotations = {"metadata": {"annotations": {RESERVATION_ALLOCATED: None}}}
        cluster.patch("Pod", "p", annotations, "default", api_version="v1")
        await cluster.until(lambda: "nodeName" in cluster.get("Pod", "q")["spec"], limit=15)

    on_cluster(scenario)


def test_what_happened_while_none_led():
    """One scheduler ends, things go on, the next one finds all of it."""

    async def main():
        cluster = ReservationCluster(("n1", "n2"))
        gates = ("CleanExpiredReservationAllocated=true",)
        async with scheduling(cluster, gates=gates):
            uids = {name: cluster.available(name, allocateOnce=False) for name in ("used", "left", "deleted")}
            cluster.available("short", ttl="1m")
            cluster.available("on-n2", node="n2")
            once = cluster.available("once")
            for name, uid in uids.items():
                cluster.owner(f"of-{name}", uid)
            await cluster.until(lambda: all(cluster.owners(name) for name in uids), limit=5)
        await asyncio.sleep(120)
        cluster.owner("more", uids["used"])
        cluster.owner("first", once)
        cluster.delete("Pod", "of-left", "default")
        cluster.delete("Reservation", "deleted", api_version=API)
        cluster.delete("Node", "n2")
        assert cluster.phase("short") == cluster.phase("on-n2") == cluster.phase("once") == "Available"
        async with scheduling(cluster, gates=gates):
            await asyncio.sleep(5)
            assert sorted(cluster.owners("used")) == ["more", "of-used"]
            assert cluster.owners("left") == []
            assert (cluster.phase("once"), cluster.phase("short")) == ("Succeeded", "Failed")
            annotations = cluster.get("Pod", "of-deleted")["metadata"].get("annotations") or {}
            assert RESERVATION_ALLOCATED not in annotations
            # Failed, and its node is gone: it is deleted in the first round.
            await cluster.until(lambda: cluster.status("on-n2") is None, limit=61)

    run(main())


@pytest.mark.parametrize(
    "status, spec",
    [
        ({"phase": "Weird"}, {}),
        ({"phase": "Waiting"}, {}),
        ({"conditions": [{"type": "Ready"}, {"type": "Ready", "status": "Maybe", "lastProbeTime": None}]}, {}),
        ({"allocated": {"cpu": "1e3", "nonsense/x": 7}, "currentOwners": [{"name": "ghost"}]}, {}),
        ({}, {"ttl": "soon"}),
        ({}, {"ttl": "-1s"}),
        ({}, {"ttl": "1m", "expires": "0001-01-01T00:00:00Z"}),
    ],
)
def test_hostile_values_harm_their_reservation_alone(status, spec):
    async def scenario(cluster, running):
        cluster.available("bad", status=status, allocateOnce=False, **spec)
        uid = cluster.available("good", allocateOnce=False)
        cluster.owner("p", uid)
        cluster.available("short", ttl="10s")
        await cluster.until(lambda: cluster.owners("good") == ["p"], limit=5)
        await cluster.until(lambda: cluster.phase("short") == "Failed", limit=12)
        # It ends with its node in any case.
        cluster.delete("Node", "n1")
        await cluster.until(lambda: cluster.phase("bad") == "Failed", limit=5)
        assert cluster.condition("Ready", "bad")[1] == "Expired"

    on_cluster(scenario)


def test_a_ttl_that_cannot_be_read_is_reported():
    async def scenario(cluster, running):
        cluster.available(ttl="soon")
        await asyncio.sleep(100)
        notes = [event["note"] for event in cluster.events() if event["reason"] == "InvalidReservation"]
        assert notes == ['spec.ttl: time: invalid duration "soon"']
        assert cluster.phase() == "Available"

    on_cluster(scenario)
