"""When Reservations end, and until when they are kept; with times as users and other programs write them."""

import math

import pytest

from koordsched.plugins.reservation.controller.expiry import deadline, kept_until, problem
from koordsched.plugins.shared.moments import moment
from tests.plugins.reservation.objects import reservation

CREATED = "2030-01-01T00:00:00Z"
T0 = moment(CREATED)
NEVER = math.inf


@pytest.mark.parametrize(
    "spec, after, complaint",
    [
        ({"ttl": "1m"}, 60, ""),
        ({"ttl": "1h30m"}, 5400, ""),
        ({"ttl": "24h", "expires": "2030-01-01T00:01:00Z"}, 60, ""),
        ({"ttl": "24h", "expires": "2030-01-08T00:00:00Z"}, 86400, ""),
        ({"ttl": None, "expires": "2030-01-01T01:00:00+01:00"}, 0, ""),
        ({"ttl": None, "expires": "2030-01-01T00:00:00.5Z"}, 0.5, ""),
        ({"ttl": None}, NEVER, ""),
        ({"ttl": "0"}, NEVER, ""),
        ({"ttl": "0s", "expires": "2029-01-01T00:00:00Z"}, NEVER, ""),
        ({"ttl": "0.5ns", "expires": "2029-01-01T00:00:00Z"}, NEVER, ""),
        ({"ttl": "-1s"}, -1, ""),
        ({"ttl": "2540400h"}, 2540400 * 3600, ""),
        ({"ttl": "soon"}, NEVER, 'spec.ttl: time: invalid duration "soon"'),
        ({"ttl": ""}, NEVER, 'spec.ttl: time: invalid duration ""'),
        ({"ttl": "1" * 5000 + "h"}, NEVER, "spec.ttl: time: invalid duration"),
        ({"ttl": "5", "expires": "2030-01-01T00:01:00Z"}, 60, 'spec.ttl: time: missing unit in duration "5"'),
        ({"ttl": "1m", "expires": "tomorrow"}, 60, "spec.expires: 'tomorrow' is not a time"),
        ({"ttl": "1m", "expires": "2030-99-01T00:00:00Z"}, 60, "spec.expires: '2030-99-01T00:00:00Z' is not a time"),
        ({"ttl": "24h", "expires": "0001-01-01T00:00:00Z"}, moment("0001-01-01T00:00:00Z") - T0, ""),
    ],
)
def test_deadlines(spec, after, complaint):
    one = reservation(meta={"creationTimestamp": CREATED}, **spec)
    assert deadline(one) - T0 == after
    assert problem(one).startswith(complaint)
    assert bool(problem(one)) == bool(complaint)


@pytest.mark.parametrize("created", [None, "", "long ago"])
def test_a_reservation_of_no_age_ends_by_expires_alone(created):
    one = reservation(meta={"creationTimestamp": created}, ttl="1m", expires="2030-01-01T02:00:00Z")
    assert deadline(one) - T0 == 7200


def over(phase, *conditions, created=CREATED):
    return reservation(meta={"creationTimestamp": created}, status={"phase": phase, "conditions": list(conditions)})


def ready(reason, probe="2030-01-01T00:00:01Z", transition="2030-01-01T00:00:02Z", status="False", **more):
    times = {"lastProbeTime": probe, "lastTransitionTime": transition}
    return {"type": "Ready", "status": status, "reason": reason, **times, **more}


@pytest.mark.parametrize(
    "one, after",
    [
        (over("Succeeded", ready("Succeeded")), 101),
        (over("Failed", ready("Expired")), 102),
        (over("Failed", ready("Expired", transition=None)), 101),
        (over("Failed", ready("Expired", transition="never")), 101),
        (over("Succeeded", ready("Succeeded", probe="")), 102),
        (over("Succeeded", ready("Succeeded", probe="x", transition="y")), 100),
        (over("Succeeded", ready("Succeeded", probe="x", transition="y"), created=None), NEVER),
        (over("Succeeded"), NEVER),
        (over("Failed"), None),
        (over("Failed", ready("Other")), None),
        (over("Failed", ready("Expired", status="True")), None),
        (over("Failed", ready("Expired", type="Other")), None),
        (over("Available", ready("Expired")), None),
        (over("Weird", ready("Expired")), None),
        (over("", ready("Succeeded")), None),
    ],
)
def test_what_is_over_is_kept_for_some_time(one, after):
    until = kept_until(one, 100)
    assert (None if until is None else until - T0) == after
