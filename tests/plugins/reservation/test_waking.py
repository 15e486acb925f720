"""Changes that let a waiting pod use a Reservation, and a waiting Reservation get a node."""

import asyncio
import json
from collections import Counter

import pytest

from koordsched.cluster.events import ASSIGNED_POD, ActionType
from koordsched.plugins.reservation.kinds import (
    EXACT_MATCH,
    OPERATING_MODE,
    PRE_ALLOCATION_REQUIRED,
    RESERVATION_AFFINITY,
    RESERVATION_IGNORED,
    RESERVATION_OWNERS,
)
from tests.parity.koord import condition_of
from tests.plugins.reservation.running import API, ReservationCluster, scheduling
from tests.virtualtime import run

WEB = {"app": "web"}
MOST = {"cpu": "30", "memory": "10Gi"}
TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


def asking(**affinity):
    return {"labels": WEB, "annotations": {RESERVATION_AFFINITY: json.dumps(affinity)}}


def spec(**changes):
    return lambda cluster: cluster.patch("Reservation", "r", {"spec": changes})


def meta(kind, name, **changes):
    namespace = "default" if kind == "Pod" else None
    api = {} if kind == "Reservation" else {"api_version": "v1"}
    return lambda cluster: cluster.patch(kind, name, {"metadata": changes}, namespace, **api)


CASES = {
    "owners": ({}, {"labels": {"a": "b"}}, spec(owners=[{"labelSelector": {"matchLabels": {"a": "b"}}}])),
    "taints": ({"taints": [TAINT]}, asking(), spec(taints=[])),
    "schedulable": ({"unschedulable": True}, {"labels": WEB}, spec(unschedulable=False)),
    "policy": ({"allocatePolicy": "Restricted"}, asking(), spec(allocatePolicy="Aligned")),
    "labels of the reservation": (
        {},
        asking(reservationSelector={"lane": "x"}),
        meta("Reservation", "r", labels={"lane": "x"}),
    ),
    "labels of the node": ({}, asking(reservationSelector={"lane": "x"}), meta("Node", "n1", labels={"lane": "x"})),
    "labels of the pod": ({}, {"labels": {"a": "b"}}, meta("Pod", "p", labels=WEB)),
    "the pod ignores reservations": ({}, {}, meta("Pod", "p", labels={RESERVATION_IGNORED: "true"})),
    "the pod asks for less": (
        {},
        {"labels": WEB, "annotations": {EXACT_MATCH: json.dumps({"resourceNames": ["cpu"]})}},
        meta("Pod", "p", annotations={EXACT_MATCH: None}),
    ),
    "the pod is named": (
        {"owners": [{"object": {"name": "p"}}], "unschedulable": True},
        {},
        spec(unschedulable=False),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change_lets_a_pod_in(case, caplog):
    """Others that are like the pod, as far as anything but their names and the change says, stay outside."""
    reservation, pod, change = CASES[case]
    too_large_at_first = case == "policy"

    async def main():
        cluster = ReservationCluster()
        async with scheduling(cluster):
            allocatable = {"cpu": "3", "memory": "10Gi"} if too_large_at_first else MOST
            cluster.available("r", allocatable=allocatable, requests=allocatable, allocateOnce=False, **reservation)
            for name in ("before", "p"):
                more = pod if name == "p" or case == "the pod is named" else {"labels": {"x": "y"}}
                cluster.pod(name, requests={"cpu": "4" if too_large_at_first else "5"}, **more)
            refused = lambda: condition_of(cluster.get("Pod", "p")) is not None  # noqa: E731
            await cluster.until(refused)
            change(cluster)
            await cluster.until(lambda: cluster.get("Pod", "p")["spec"].get("nodeName") == "n1", limit=20)
            if not too_large_at_first:
                assert not cluster.get("Pod", "before")["spec"].get("nodeName")

    run(main())
    # A hint that fails lets every pod in.
    assert not [each for each in caplog.records if "hint" in each.getMessage()]


def test_a_reservation_that_a_pod_named_gets_its_node_though_it_takes_no_owners():
    async def main():
        cluster = ReservationCluster()
        async with scheduling(cluster):
            cluster.pod("p", **asking(name="r"))
            await cluster.until(lambda: condition_of(cluster.get("Pod", "p")) is not None)
            cluster.reservation("r", unschedulable=True)
            await cluster.until(lambda: cluster.owners() == ["p"], limit=20)

    run(main())


def test_a_reservation_that_waits_is_tried_again_when_it_changes():
    async def main():
        cluster = ReservationCluster()
        async with scheduling(cluster):
            cluster.available("other", allocatePolicy="Aligned", allocateOnce=False)
            cluster.reservation("r")
            await cluster.until(lambda: cluster.condition("Scheduled") == ("False", "Unschedulable"))
            cluster.patch("Reservation", "r", {"spec": {"allocatePolicy": "Restricted"}})
            await cluster.until(lambda: cluster.phase() == "Available", limit=20)

    run(main())


def test_a_reservation_without_a_policy_comes_to_the_node_of_a_pod_that_has_its_only_owner():
    """Pods that act as Reservations have a policy, and both kinds do not go together while owners may come."""

    async def main():
        cluster = ReservationCluster(nodes=())
        cluster.node("n1", cpu="16")
        cluster.pod("acts", "n1", {"cpu": "3"}, **acting(OWNERS))
        ready(cluster, "acts")
        async with scheduling(cluster):
            cluster.reservation("r")
            await cluster.until(lambda: cluster.condition("Scheduled") == ("False", "Unschedulable"))
            cluster.pod("p", requests={"cpu": "2"}, labels=WEB)
            await cluster.until(lambda: cluster.phase() == "Available", limit=20)

    run(main())


def test_a_reservation_comes_to_the_node_of_another_that_gives_up_its_policy():
    async def main():
        cluster = ReservationCluster()
        async with scheduling(cluster):
            cluster.available("other", allocatePolicy="Aligned", allocateOnce=False)
            cluster.reservation("r")
            await cluster.until(lambda: cluster.condition("Scheduled") == ("False", "Unschedulable"))
            cluster.patch("Reservation", "other", {"spec": {"allocatePolicy": None}})
            await cluster.until(lambda: cluster.phase() == "Available", limit=20)

    run(main())


@pytest.mark.parametrize("beside", ["pod", "reservation"])
def test_room_beside_the_reservations_of_a_pod(beside):
    """The pod, larger than any, has to go to one of two and take more from the node, which the other leaves it."""

    async def main():
        cluster = ReservationCluster(nodes=())
        cluster.node("n1", cpu="16")
        async with scheduling(cluster):
            six = {"cpu": "6", "memory": "1Gi"}
            for name in ("a", "b"):
                cluster.available(name, allocatable=six, requests=six, allocateOnce=False, allocatePolicy="Aligned")
            if beside == "pod":
                cluster.pod("f", "n1", {"cpu": "4"})
            else:
                four = {"cpu": "4"}
                owners = [{"labelSelector": {"matchLabels": {"app": "other"}}}]
                cluster.available("f", allocatable=four, requests=four, owners=owners, allocatePolicy="Aligned")
            cluster.pod("p", requests={"cpu": "8"}, **asking())
            await cluster.until(lambda: condition_of(cluster.get("Pod", "p")) is not None)
            assert "Insufficient cpu by node" in condition_of(cluster.get("Pod", "p"))[1]
            if beside == "pod":
                cluster.delete("Pod", "f", "default")
            else:
                cluster.delete("Reservation", "f", api_version=API)
            await cluster.until(lambda: cluster.get("Pod", "p")["spec"].get("nodeName") == "n1", limit=20)

    run(main())


def test_room_for_a_reservation_that_takes_a_pod_over():
    """It may take one of two pods only, and has to find the rest beside both."""

    async def main():
        cluster = ReservationCluster(nodes=())
        cluster.node("n1", cpu="16")
        async with scheduling(cluster):
            for name, cpu in (("f", "6"), ("o1", "4"), ("o2", "4")):
                cluster.pod(name, "n1", {"cpu": cpu}, labels={} if name == "f" else WEB)
            eight = {"cpu": "8"}
            cluster.reservation(requests=eight, preAllocation=True, allocatePolicy="Restricted", allocateOnce=False)
            await cluster.until(lambda: cluster.condition("Scheduled") == ("False", "Unschedulable"))
            cluster.delete("Pod", "f", "default")
            await cluster.until(lambda: cluster.phase() == "Available", limit=20)
            assert len(cluster.owners()) <= 1

    run(main())


@pytest.mark.parametrize("how", ["a new pod", "another label"])
def test_a_pod_comes_that_a_reservation_has_to_take_over(how):
    async def main():
        cluster = ReservationCluster(nodes=())
        cluster.node("n1", cpu="16")
        async with scheduling(cluster):
            cluster.pod("other", "n1", {"cpu": "4"})
            container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "4"}}}
            required = {"metadata": {"labels": {PRE_ALLOCATION_REQUIRED: "true"}}, "spec": {"containers": [container]}}
            cluster.reservation(template=required, preAllocation=True, allocatePolicy="Restricted", allocateOnce=False)
            await cluster.until(lambda: cluster.condition("Scheduled") == ("False", "Unschedulable"))
            if how == "a new pod":
                cluster.pod("late", "n1", {"cpu": "4"}, labels=WEB)
            else:
                cluster.patch("Pod", "other", {"metadata": {"labels": WEB}}, "default", "v1")
            await cluster.until(lambda: cluster.phase() == "Available", limit=20)

    run(main())


def test_pods_that_get_nodes_ask_those_alone_that_act_as_reservations():
    async def main():
        cluster = ReservationCluster(nodes=())
        async with scheduling(cluster) as running:
            uid = cluster.reservation(preAllocation=True, allocatePolicy="Restricted", allocateOnce=False)
            cluster.pod("p")
            await cluster.until(lambda: cluster.condition("Scheduled") == ("False", "Unschedulable"))
            (profile,) = running.scheduler.profiles.values()
            came = next(
                each
                for each in profile.plugins["Reservation"].events_to_register()
                if each.event.resource is ASSIGNED_POD and ActionType.ADD & each.event.action
            )
            for pod in (queued.pod for queued in running.scheduler.queue):
                came.index.add(pod.uid, pod)
            assert list(came.index.concerned(None, None)) == [uid]
            came.index.remove(uid)
            assert list(came.index.concerned(None, None)) == []

    run(main())


def of(name, **changes):
    return lambda cluster: cluster.patch("Reservation", name, {"spec": changes})


OTHERS = [{"labelSelector": {"matchLabels": {"app": "other"}}}]
OWNERS = [{"labelSelector": {"matchLabels": WEB}}]
UNREADABLE = {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}}
IDLE = {
    "a pod leaves another node": lambda cluster: cluster.delete("Pod", "f", "default"),
    "a node without Reservations gets a label": meta("Node", "n2", labels={"lane": "x"}),
    "a Reservation of others changes": of("of-others", taints=[TAINT]),
    "a Reservation of others ends": lambda cluster: cluster.delete("Reservation", "of-others", api_version=API),
    "a pod leaves the node of one that has its only owner": lambda cluster: cluster.delete("Pod", "g", "default"),
    "a pod leaves the node of one that cannot be read": lambda cluster: cluster.delete("Pod", "h", "default"),
}


@pytest.mark.parametrize("case", IDLE)
def test_a_change_that_cannot_help_has_no_pod_tried(case):
    async def main():
        cluster = ReservationCluster(nodes=("n1", "n2", "n3", "n4", "n5"))
        async with scheduling(cluster) as running:
            small = {"cpu": "1", "memory": "1Gi"}
            cluster.available("r", allocatable=small, requests=small, allocateOnce=False)
            cluster.available("of-others", "n5", allocatable=small, requests=small, owners=OTHERS)
            cluster.available("used", "n3", allocatable=small, requests=small)
            cluster.owner("o", cluster.uid("used"), "n3", requests=small, labels=WEB)
            cluster.available("odd", "n4", allocatable=small, requests=small, owners=[*OWNERS, UNREADABLE])
            for name, where in (("f", "n2"), ("g", "n3"), ("h", "n4")):
                cluster.pod(name, where, {"cpu": "1"})
            cluster.pod("p", requests={"cpu": "1"}, **asking(reservationSelector={"lane": "x"}))
            await cluster.until(lambda: condition_of(cluster.get("Pod", "p")) is not None)
            await asyncio.sleep(60)
            before = running.attempts["default/p"]
            IDLE[case](cluster)
            await asyncio.sleep(60)
            assert running.attempts["default/p"] == before

    run(main())


@pytest.mark.parametrize("comes", [True, False], ids=["comes", "leaves"])
def test_a_pod_that_a_reservation_cannot_take_over_does_not_have_it_tried(comes):
    async def main():
        cluster = ReservationCluster()
        async with scheduling(cluster) as running:
            cluster.available("other", allocatePolicy="Aligned", allocateOnce=False)
            uid = cluster.reservation("r")
            if not comes:
                cluster.pod("f", "n1", {"cpu": "1"})
            await cluster.until(lambda: cluster.condition("Scheduled") == ("False", "Unschedulable"))
            await asyncio.sleep(60)
            before = Counter(running.attempts)
            if comes:
                cluster.pod("f", "n1", {"cpu": "1"})
            else:
                cluster.delete("Pod", "f", "default")
            await asyncio.sleep(60)
            assert [key for key in before if uid in key]
            assert Counter(running.attempts) == before

    run(main())


CONTROLLER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u-1", "controller": True}
BYSTANDER = {**CONTROLLER, "name": "web-2", "uid": "u-2"}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j"}
LATE = {
    "name": lambda uid: {"object": {"name": "p"}},
    "namespace and name": lambda uid: {"object": {"namespace": "default", "name": "p", "apiVersion": "v1"}},
    "uid": lambda uid: {"object": {"uid": uid}},
    "uid and labels": lambda uid: {"object": {"uid": uid}, "labelSelector": {"matchLabels": WEB}},
    "controller": lambda uid: {"controller": CONTROLLER},
    "another owner": lambda uid: {"controller": JOB},
    "labels": lambda uid: {"labelSelector": {"matchLabels": {"mine": "yes"}}},
}


@pytest.mark.parametrize("how", ["created", "changed", "acting"])
@pytest.mark.parametrize("case", LATE)
def test_a_pod_that_waits_becomes_an_owner(case, how):
    """By a Reservation that was made later, or by a change of owners; others that are like it stay outside."""

    async def main():
        cluster = ReservationCluster()
        if how == "acting":
            cluster.pod("acts", "n1", {"cpu": "3"}, **acting([{"object": {"name": "someone"}}]))
            ready(cluster, "acts")
        async with scheduling(cluster):
            if how == "changed":
                cluster.available("r", allocateOnce=False, owners=[{"object": {"name": "someone"}}])
            for name in ("before", "p", "behind"):
                given = asking()
                if case == "labels" and name == "p":
                    given["labels"] = {**WEB, "mine": "yes"}
                if case in ("controller", "another owner"):
                    references = [CONTROLLER if name == "p" else BYSTANDER]
                    if case == "another owner":
                        references = [BYSTANDER, JOB if name == "p" else {**JOB, "name": "k", "uid": "u-k"}]
                    given["ownerReferences"] = references
                cluster.pod(name, requests={"cpu": "2"}, **given)
                await cluster.until(lambda name=name: condition_of(cluster.get("Pod", name)) is not None)
            owners = [LATE[case](cluster.get("Pod", "p")["metadata"]["uid"])]
            if how == "created":
                cluster.reservation("r", allocateOnce=False, owners=owners)
            elif how == "changed":
                cluster.patch("Reservation", "r", {"spec": {"owners": owners}})
            else:
                meta("Pod", "acts", annotations={RESERVATION_OWNERS: json.dumps(owners)})(cluster)
            await cluster.until(lambda: cluster.get("Pod", "p")["spec"].get("nodeName") == "n1", limit=20)
            assert not any(cluster.get("Pod", name)["spec"].get("nodeName") for name in ("before", "behind"))

    run(main())


def acting(owners):
    """Metadata of a pod that acts as a Reservation."""
    return {"labels": {OPERATING_MODE: "Reservation"}, "annotations": {RESERVATION_OWNERS: json.dumps(owners)}}


def ready(cluster, name):
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    cluster.patch("Pod", name, {"status": status}, "default", api_version="v1", subresource="status")


def test_room_that_a_reservation_gives_up_is_for_others():
    async def main():
        cluster = ReservationCluster()
        async with scheduling(cluster) as running:
            cluster.available(allocatable=MOST, requests=MOST)
            cluster.pod("other", requests={"cpu": "20"})
            await asyncio.sleep(10)
            assert running.attempts["default/other"] == 1
            less = {"status": {"allocatable": {"cpu": "10", "memory": "10Gi"}}}
            cluster.patch("Reservation", "r", less, subresource="status")
            await cluster.until(lambda: cluster.get("Pod", "other")["spec"].get("nodeName") == "n1", limit=5)

    run(main())


def test_a_pod_that_acts_as_a_reservation_becomes_ready():
    async def main():
        cluster = ReservationCluster()
        async with scheduling(cluster):
            cluster.pod("acts", "n1", {"cpu": "3"}, **acting([{"object": {"name": "p"}}]))
            for name in ("before", "p"):
                cluster.pod(name, requests={"cpu": "2"}, **asking())
                await cluster.until(lambda name=name: condition_of(cluster.get("Pod", name)) is not None)
            ready(cluster, "acts")
            await cluster.until(lambda: cluster.get("Pod", "p")["spec"].get("nodeName") == "n1", limit=20)
            assert not cluster.get("Pod", "before")["spec"].get("nodeName")

    run(main())


def test_a_pod_is_taken_over_by_an_owner_that_is_not_its_controller():
    """Of a pod on a node all owner references are known."""

    async def main():
        cluster = ReservationCluster()
        async with scheduling(cluster):
            for name, references in (("o1", [CONTROLLER]), ("o2", [CONTROLLER, {**JOB, "controller": False}])):
                cluster.pod(name, "n1", {"cpu": "4"}, labels=WEB, ownerReferences=references)
            owners = [{"labelSelector": {"matchLabels": WEB}, "controller": JOB}]
            taking = {"preAllocation": True, "allocatePolicy": "Restricted", "allocateOnce": False}
            cluster.reservation(requests={"cpu": "28"}, owners=owners, **taking)
            await cluster.until(lambda: cluster.owners() == ["o2"], limit=20)

    run(main())


def test_the_reservation_that_a_pod_names_ends_although_it_ignores_reservations():
    """As long as it is there the pod is looked for a place on its node alone (upstream); then on those of others."""

    async def main():
        cluster = ReservationCluster(nodes=("n2",))
        cluster.node("n1", taints=[TAINT])
        cluster.available(requests={"cpu": "1"}, allocatable={"cpu": "1"})
        cluster.available("other", "n2", requests={"cpu": "1"}, allocatable={"cpu": "1"})
        async with scheduling(cluster):
            named = asking(name="r")
            cluster.pod("p", requests={"cpu": "2"}, **(named | {"labels": {RESERVATION_IGNORED: "true"}}))
            await cluster.until(lambda: condition_of(cluster.get("Pod", "p")), limit=5)
            assert not cluster.get("Pod", "p")["spec"].get("nodeName")
            cluster.delete("Reservation", "r", api_version=API)
            await cluster.until(lambda: cluster.get("Pod", "p")["spec"].get("nodeName") == "n2", limit=20)

    run(main())


def test_the_only_reservation_of_a_pod_ends_that_was_too_small_for_it():
    """It took the room on the node that its owner needs."""

    async def main():
        cluster = ReservationCluster(nodes=())
        cluster.node("n1", cpu="2", memory="2Gi")
        small = {"cpu": "2", "memory": "200Mi"}
        cluster.available(requests=small, allocatable=small, allocateOnce=False, allocatePolicy="Restricted")
        async with scheduling(cluster):
            cluster.pod("p", requests={"cpu": "2", "memory": "1Gi"}, labels=WEB)
            cluster.pod("other", requests={"cpu": "2", "memory": "1Gi"}, labels={"app": "other"})
            await cluster.until(lambda: condition_of(cluster.get("Pod", "p")), limit=5)
            assert not cluster.get("Pod", "p")["spec"].get("nodeName")
            cluster.delete("Pod", "other", "default")
            cluster.delete("Reservation", "r", api_version=API)
            await cluster.until(lambda: cluster.get("Pod", "p")["spec"].get("nodeName") == "n1", limit=20)

    run(main())
