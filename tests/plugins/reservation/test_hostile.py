"""Malformed and huge Reservations: an Event says what is wrong, and nothing else is harmed."""

import asyncio
import json

import pytest

from koordsched.plugins.reservation.kinds import (
    NODE_RESERVATION,
    OPERATING_MODE,
    RESERVATION_AFFINITY,
    RESERVATION_OWNERS,
    RESTRICTED_OPTIONS,
)
from tests.parity.koord import condition_of
from tests.plugins.reservation.running import API, ReservationCluster, scheduling
from tests.virtualtime import run

WEB = {"app": "web"}


def template(requests=None, **spec):
    return {"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": requests or {}}}], **spec}}}


def selecting(**selector):
    return {"owners": [{"labelSelector": selector}]}


def annotated(**values):
    return {"annotations": values}


MALFORMED = {
    "negative request": (template({"cpu": "-1"}), "spec.template.spec.containers[0].resources.requests.cpu: "),
    "request that overflows": (template({"memory": "9e30"}), "is too large"),
    "request that is none": (template({"cpu": "much"}), "spec.template.spec.containers[0].resources.requests.cpu: "),
    "containers that are none": ({"template": {"spec": {"containers": "all"}}}, "spec.template: "),
    "template that is none": ({"template": [1]}, "spec.template: "),
    "no template": ({"template": None}, "the reservation misses the template spec"),
    "priority that overflows": (template(priority=1 << 40), "at `$.spec.priority`"),
    "no owners": ({"owners": []}, "the reservation misses the owner spec"),
    "owners that are none": ({"owners": "everyone"}, "spec.owners: "),
    "operator that is none": (
        selecting(matchExpressions=[{"key": "a", "operator": "Like", "values": ["b"]}]),
        "spec.owners[0].labelSelector: ",
    ),
    "In without values": (
        selecting(matchExpressions=[{"key": "a", "operator": "In"}]),
        "spec.owners[0].labelSelector: ",
    ),
    "no end": ({"ttl": None}, "the reservation misses the expiration spec"),
    "ttl that overflows": ({"ttl": "9999999999999h"}, "spec.ttl: "),
    "ttl that is none": ({"ttl": "soon"}, "spec.ttl: "),
    "restricted options": (
        {"allocatePolicy": "Restricted", **annotated(**{RESTRICTED_OPTIONS: "{"})},
        f"annotation {RESTRICTED_OPTIONS}: ",
    ),
    "inner reserved": (
        annotated(**{NODE_RESERVATION: json.dumps({"resources": {"cpu": "-5"}})}),
        f"annotation {NODE_RESERVATION}: ",
    ),
}


def notes(cluster, name, reason="InvalidReservation"):
    return [
        event["note"] for event in cluster.events() if event["reason"] == reason and event["regarding"]["name"] == name
    ]


async def all_is_well(cluster):
    """Another Reservation gets a node, and its owner uses it."""
    cluster.reservation("good", requests={"cpu": "3"}, owners=[{"object": {"name": "p"}}], allocateOnce=False)
    await cluster.until(lambda: cluster.phase("good") == "Available", limit=5)
    cluster.pod("p")
    await cluster.until(lambda: cluster.owners("good") == ["p"], limit=5)


def put(cluster, name, spec, placed):
    spec = dict(spec)
    annotations = spec.pop("annotations", None)
    make = cluster.available if placed else cluster.reservation
    uid = make(name, allocateOnce=False, **spec)
    if annotations:
        cluster.patch("Reservation", name, {"metadata": {"annotations": annotations}})
    return uid


@pytest.mark.parametrize("placed", [False, True], ids=["waiting", "on a node"])
@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_malformed_is_said_in_an_event(case, placed):
    spec, said = MALFORMED[case]

    async def main():
        cluster = ReservationCluster()
        async with scheduling(cluster):
            put(cluster, "bad", spec, placed)
            await cluster.until(lambda: any(said in note for note in notes(cluster, "bad")), limit=20)
            await all_is_well(cluster)
            assert all(len(note) <= 1024 for note in notes(cluster, "bad"))
            cluster.delete("Reservation", "bad", api_version=API)
            cluster.pod("q")
            await cluster.until(lambda: cluster.get("Pod", "q")["spec"].get("nodeName"), limit=5)

    run(main())


def test_one_that_is_put_right_is_scheduled():
    async def main():
        cluster = ReservationCluster()
        async with scheduling(cluster):
            put(cluster, "r", MALFORMED["negative request"][0], False)
            await cluster.until(lambda: notes(cluster, "r"), limit=20)
            cluster.patch("Reservation", "r", {"spec": template({"cpu": "1"})})
            await cluster.until(lambda: cluster.phase("r") == "Available", limit=5)

    run(main())


def test_what_is_wrong_again_is_said_again():
    async def main():
        cluster = ReservationCluster()
        async with scheduling(cluster):
            good = {"owners": [{"labelSelector": {"matchLabels": WEB}}]}
            put(cluster, "r", MALFORMED["In without values"][0], False)
            for times in (1, 2):
                await asyncio.sleep(5)
                assert len(notes(cluster, "r")) == times
                cluster.patch("Reservation", "r", {"spec": good})
                await asyncio.sleep(5)
                cluster.patch("Reservation", "r", {"spec": MALFORMED["In without values"][0]})

    run(main())


def test_ten_thousand_owners_and_a_huge_template():
    owners = [{"object": {"name": f"o{number}"}} for number in range(10_000)]
    many = [
        {"name": f"c{number}", "image": "x", "resources": {"requests": {"cpu": "1m"}}, "args": ["a" * 50]}
        for number in range(5_000)
    ]

    async def main():
        cluster = ReservationCluster()
        async with scheduling(cluster):
            cluster.reservation("many", owners=owners, requests={"cpu": "3"}, allocateOnce=False)
            cluster.reservation("huge", template={"spec": {"containers": many}}, owners=[{"object": {"name": "h"}}])
            await cluster.until(lambda: {cluster.phase(name) for name in ("many", "huge")} == {"Available"}, limit=10)
            assert cluster.status("huge")["allocatable"] == {"cpu": "5"}
            cluster.pod("o9999")
            await cluster.until(lambda: cluster.owners("many") == ["o9999"], limit=10)
            await all_is_well(cluster)

    run(main())


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"name": 5}', "9" * 5000, "[" * 3000], ids=range(6))
def test_a_pod_whose_annotation_cannot_be_read(text):
    """It waits, with a condition; one without text, for any Reservation."""

    async def main():
        cluster = ReservationCluster()
        async with scheduling(cluster):
            cluster.pod("bad", annotations={RESERVATION_AFFINITY: text}, labels=WEB)
            await cluster.until(lambda: condition_of(cluster.get("Pod", "bad")) is not None, limit=10)
            reason, message = condition_of(cluster.get("Pod", "bad"))
            assert reason == ("Unschedulable" if not text else "SchedulerError")
            assert 'plugin "Reservation"' in message or not text
            await all_is_well(cluster)

    run(main())


@pytest.mark.parametrize("text", ["{", "5", '[{"labelSelector": {"matchExpressions": [{"operator": "Like"}]}}]'])
def test_a_pod_that_acts_as_a_reservation_and_names_no_owners(text):
    async def main():
        cluster = ReservationCluster()
        async with scheduling(cluster):
            acts = {"labels": {OPERATING_MODE: "Reservation"}, "annotations": {RESERVATION_OWNERS: text}}
            cluster.pod("bad", "n1", {"cpu": "3"}, **acts)
            await cluster.until(lambda: notes(cluster, "bad"), limit=10)
            await all_is_well(cluster)

    run(main())
