"""What a status becomes: conditions, and amounts in canonical text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordsched.api import core
from koordsched.api.decoding import DecodeError, convert
from koordsched.plugins.reservation.controller import status
from koordsched.plugins.reservation.controller.expiry import deadline, kept_until, problem
from koordsched.plugins.reservation.kinds import Reservation
from koordsched.plugins.reservation.writer import Failure
from tests.plugins.reservation import hostile
from tests.plugins.reservation.objects import STATE, reservation

NOW, BEFORE = "2030-01-01T00:00:00Z", "2029-12-31T00:00:00Z"


def condition(kind, value, reason, probe=BEFORE, transition=BEFORE, **more):
    times = {"lastProbeTime": probe, "lastTransitionTime": transition}
    return {"type": kind, "status": value, "reason": reason, **times, **more}


SCHEDULED = condition("Scheduled", "True", "Scheduled")
UNSCHEDULABLE = condition("Scheduled", "False", "Unschedulable", message="old")
READY = condition("Ready", "True", "Available", message="fine")


def with_conditions(*conditions):
    return reservation(status={"conditions": list(conditions)})


@pytest.mark.parametrize(
    "before, after",
    [
        ([], [condition("Ready", "False", "Expired", NOW, NOW)]),
        ([UNSCHEDULABLE], [UNSCHEDULABLE, condition("Ready", "False", "Expired", NOW, NOW)]),
        ([READY, SCHEDULED], [condition("Ready", "False", "Expired", NOW, NOW), SCHEDULED]),
        (
            [condition("Ready", "False", "Other", message="m")],
            [condition("Ready", "False", "Expired", NOW, BEFORE, message="m")],
        ),
        ([condition("Ready", "Maybe", "Other")], [condition("Ready", "False", "Expired", NOW, BEFORE)]),
    ],
)
def test_expired(before, after):
    assert status.expired(with_conditions(*before), NOW) == {"phase": "Failed", "conditions": after}


@pytest.mark.parametrize(
    "before, after",
    [
        ([], [condition("Scheduled", "False", "Unschedulable", NOW, NOW, message="new")]),
        ([READY], [READY, condition("Scheduled", "False", "Unschedulable", NOW, NOW, message="new")]),
        ([UNSCHEDULABLE], [condition("Scheduled", "False", "Unschedulable", NOW, BEFORE, message="new")]),
        ([SCHEDULED], [condition("Scheduled", "True", "Scheduled", NOW, BEFORE)]),
    ],
)
def test_unschedulable(before, after):
    one = with_conditions(*before)
    assert status.unschedulable(one, Failure(one, "new", NOW)) == {"conditions": after}


def test_the_same_failure_at_the_same_time_is_not_written_again():
    one = with_conditions(condition("Scheduled", "False", "Unschedulable", NOW, BEFORE, message="new"))
    assert status.unschedulable(one, Failure(one, "new", NOW)) == {}


@pytest.mark.parametrize(
    "before, after",
    [
        ([], [condition("Ready", "False", "Succeeded", NOW, NOW)]),
        (
            [SCHEDULED, READY],
            [SCHEDULED, condition("Ready", "False", "Succeeded", NOW, BEFORE, message="fine")],
        ),
    ],
)
def test_succeeded(before, after):
    use = status.Use({}, (owner("p"),))
    changes = status.used(with_conditions(*before), use, NOW)
    assert changes == {
        "allocated": None,
        "currentOwners": [{"namespace": "default", "name": "p", "uid": "uid-p"}],
        "phase": "Succeeded",
        "conditions": after,
    }


def owner(name):
    return status.CurrentOwner("default", name, f"uid-{name}")


def pod(name, **requests):
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    requests = {key.replace("_", "-"): value for key, value in requests.items()}
    spec = {"containers": [{"name": "c", "resources": {"requests": requests}}], "nodeName": "n1"}
    return STATE.pods.build(convert({"metadata": meta, "spec": spec}, core.Pod))


def used(one, *pods):
    return status.used(one, status.use_of(one, pods, STATE.table.resource_names), NOW)


@pytest.mark.parametrize(
    "allocatable, requests, text",
    [
        ({"cpu": "10"}, {"cpu": "1500m"}, {"cpu": "1500m"}),
        ({"cpu": "10"}, {"cpu": "0.5"}, {"cpu": "500m"}),
        ({"cpu": 10}, {"cpu": "2000m"}, {"cpu": "2"}),
        ({"memory": "10Gi"}, {"memory": "1024Mi"}, {"memory": "1Gi"}),
        ({"memory": "10G"}, {"memory": "2000M"}, {"memory": "2G"}),
        ({"memory": "10Gi"}, {"memory": "1000"}, {"memory": "1000"}),
        ({"ephemeral-storage": "10Gi"}, {"ephemeral_storage": "512Mi"}, {"ephemeral-storage": "512Mi"}),
        ({"cpu": "1"}, {"cpu": "4"}, {"cpu": "4"}),  # more than there is
        ({"cpu": "1", "pods": "3"}, {"cpu": "1", "memory": "1Gi"}, {"cpu": "1"}),
        ({"cpu": "nonsense"}, {"cpu": "1"}, {"cpu": "1"}),
    ],
)
def test_amounts(allocatable, requests, text):
    one = reservation(status={"allocatable": allocatable}, allocateOnce=False)
    changes = used(one, pod("p", **requests))
    assert changes == {
        "allocated": text,
        "currentOwners": [{"namespace": "default", "name": "p", "uid": "uid-p"}],
    }
    shown = reservation(status={"allocatable": allocatable, **changes}, allocateOnce=False)
    assert used(shown, pod("p", **requests)) == {}


def test_what_equals_in_value_is_not_written():
    given = {
        "allocatable": {"cpu": "10", "memory": "10Gi"},
        "allocated": {"cpu": "2000m", "memory": "1048576Ki", "x": "0"},
        "currentOwners": [
            {"namespace": "default", "name": "q", "uid": "uid-q"},
            {"namespace": "default", "name": "p", "uid": "uid-p"},
        ],
    }
    pods = pod("p", cpu="1", memory="512Mi"), pod("q", cpu="1", memory="512Mi")
    assert used(reservation(status=given), *pods) == {}
    given["allocated"]["x"] = "1"
    assert used(reservation(status=given, allocateOnce=False), *pods) == {
        "allocated": {"cpu": "2", "memory": "1Gi", "x": None},
        "currentOwners": [
            {"namespace": "default", "name": "p", "uid": "uid-p"},
            {"namespace": "default", "name": "q", "uid": "uid-q"},
        ],
    }


NAMES = ("phase", "nodeName", "conditions", "type", "status", "reason", "lastProbeTime", "allocated", "cpu", "uid")


@given(hostile.values(*NAMES), st.dictionaries(st.sampled_from(["ttl", "expires", "allocateOnce"]), hostile.SCALARS))
def test_hostile_values(value, spec):
    """What can be decoded at all can be looked at; the result says what it has to."""
    thing = {"metadata": {"name": "r", "uid": "u"}, "spec": spec, "status": value}
    try:
        one = convert(thing, Reservation)
    except DecodeError:
        return
    problem(one)
    deadline(one)
    kept_until(one, 60)
    after = convert({**thing, "status": {**(value or {}), **status.expired(one, NOW)}}, Reservation)
    assert kept_until(after, 60) is not None
    used(one, pod("p", cpu="1"))
