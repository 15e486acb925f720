"""The phases of a PodGroup (coscheduling spec 3.12, case 12)."""

import pytest

from koordsched.api.meta import ObjectMeta
from koordsched.plugins.coscheduling.controller.status import (
    Counts,
    changes,
    is_left_alone,
    next_status,
    settled_status,
)
from koordsched.plugins.coscheduling.kinds import PodGroup, PodGroupSpec, PodGroupStatus

NOW = "2026-01-03T00:00:00Z"
CREATED = "2026-01-01T00:00:00Z"
WITHIN, TOO_LATE = "2026-01-03T00:00:00Z", "2026-01-03T00:00:01Z"


def group(minimum: int = 3, **status: object) -> PodGroup:
    meta = ObjectMeta(namespace="ns", name="g", creation_timestamp=CREATED)
    return PodGroup(metadata=meta, spec=PodGroupSpec(min_member=minimum), status=PodGroupStatus(**status))


def step(before: PodGroup, owners: str = "ns/job", **counted: int) -> PodGroupStatus:
    return next_status(before, Counts(**counted), owners, NOW)


def test_case_12_the_life_of_a_gang():
    status = step(group(), pods=3)
    assert status == PodGroupStatus(phase="Pending")
    for counted, expected in [
        ({"pods": 3}, {"phase": "PreScheduling", "occupied_by": "ns/job"}),
        ({"pods": 3, "scheduled": 2}, {"phase": "Scheduling", "scheduled": 2, "schedule_start_time": NOW}),
        ({"pods": 3, "scheduled": 3}, {"phase": "Scheduled", "scheduled": 3}),
        ({"pods": 3, "scheduled": 3, "running": 2}, {"phase": "Scheduled", "scheduled": 3, "running": 2}),
        ({"pods": 3, "scheduled": 3, "running": 3}, {"phase": "Running", "scheduled": 3, "running": 3}),
    ]:
        before = status
        status = next_status(group(**fields(before)), Counts(**counted), "ns/job", NOW)
        assert {name: getattr(status, name) for name in expected} == expected
    failing = step(group(**fields(status)), pods=3, scheduled=3, running=2, failed=1)
    assert (failing.phase, failing.running, failing.failed) == ("Failed", 2, 1)
    finished = step(group(**fields(status)), pods=3, scheduled=3, succeeded=3)
    assert (finished.phase, finished.succeeded, finished.running) == ("Finished", 3, 0)


def fields(status: PodGroupStatus) -> dict[str, object]:
    return {name: getattr(status, name) for name in status.__struct_fields__}


@pytest.mark.parametrize(
    "minimum, pods, phase",
    [(3, 2, "Pending"), (3, 3, "PreScheduling"), (3, 4, "PreScheduling"), (0, 3, "Pending"), (-1, 3, "Pending")],
)
def test_a_gang_without_enough_pods_is_pending(minimum, pods, phase):
    assert step(group(minimum, phase="Pending"), pods=pods).phase == phase


LATER = ["PreScheduling", "Scheduling", "Scheduled", "Running", "Unknown"]


@pytest.mark.parametrize("phase", LATER)
@pytest.mark.parametrize(
    "counted, expected",
    [
        ({"pods": 3}, "Scheduling"),
        ({"pods": 3, "scheduled": 2, "running": 2}, "Scheduling"),
        ({"pods": 3, "scheduled": 3}, "Scheduled"),
        ({"pods": 3, "scheduled": 3, "running": 2, "succeeded": 1}, "Running"),
        ({"pods": 4, "scheduled": 4, "running": 3, "failed": 1}, "Failed"),
        ({"pods": 4, "scheduled": 4, "running": 1, "failed": 1}, "Scheduled"),
        ({"pods": 3, "scheduled": 2, "succeeded": 2, "failed": 1}, "Failed"),
        ({"pods": 4, "scheduled": 4, "succeeded": 3, "failed": 1}, "Finished"),
        ({"pods": 3, "scheduled": 2, "running": 2, "succeeded": 2}, "Scheduling"),
    ],
)
def test_phases_by_the_numbers(phase, counted, expected):
    assert step(group(phase=phase), **counted).phase == expected


@pytest.mark.parametrize("phase", LATER)
def test_without_pods_the_gang_is_pending_and_all_numbers_are_0(phase):
    before = group(phase=phase, scheduled=3, running=2, succeeded=1, failed=1, schedule_start_time=CREATED)
    assert step(before) == PodGroupStatus(phase="Pending", schedule_start_time=CREATED)


@pytest.mark.parametrize("phase", ["", "Pending", *LATER])
@pytest.mark.parametrize(
    "counted, expected",
    [
        ({}, {"phase": "Pending"}),
        ({"pods": 2, "scheduled": 2, "running": 1}, {"scheduled": 2, "running": 1}),
        ({"pods": 3}, {"phase": "Scheduling"}),
        ({"pods": 3, "scheduled": 3, "running": 3}, {"phase": "Running", "scheduled": 3, "running": 3}),
        ({"pods": 3, "scheduled": 3, "succeeded": 3}, {"phase": "Finished", "scheduled": 3, "succeeded": 3}),
    ],
)
def test_settled_is_where_steps_lead(phase, counted, expected):
    status = group(phase=phase).status
    for _ in range(10):
        status = step(group(**fields(status)), **counted)
    settled = settled_status(group(phase=phase), Counts(**counted), "ns/job", NOW)
    assert settled == status
    assert {name: getattr(settled, name) for name in expected} == expected


def test_old_numbers_of_a_pending_gang_are_corrected():
    """Another scheduler left them."""
    before = group(phase="Pending", scheduled=1, running=1)
    assert step(before) == PodGroupStatus(phase="Pending")
    assert step(before, pods=1).running == 0


def test_the_start_is_written_once():
    before = group(phase="Scheduling", schedule_start_time=CREATED)
    assert step(before, pods=3, scheduled=1).schedule_start_time == CREATED
    assert step(group(phase="PreScheduling"), pods=3, scheduled=3).schedule_start_time == NOW


@pytest.mark.parametrize(
    "status, left_alone",
    [
        ({"phase": "Finished"}, True),
        ({"phase": "Failed"}, True),
        ({"phase": "Running", "scheduled": 3}, False),
        ({"phase": "Scheduled", "scheduled": 3, "schedule_start_time": WITHIN}, False),
        ({"phase": "Scheduled", "scheduled": 3, "schedule_start_time": TOO_LATE}, True),
        ({"phase": "Running", "scheduled": 3, "running": 1, "schedule_start_time": TOO_LATE}, False),
        ({"phase": "Scheduling", "scheduled": 2, "schedule_start_time": TOO_LATE}, False),
        ({"phase": "Scheduled", "scheduled": 4, "schedule_start_time": TOO_LATE}, False),
        ({"phase": "Scheduled", "scheduled": 3, "schedule_start_time": "no time"}, False),
        ({}, False),
    ],
)
def test_what_is_left_alone(status, left_alone):
    assert is_left_alone(group(**status)) is left_alone


def test_only_what_changes_is_written():
    before = PodGroupStatus(phase="Scheduling", scheduled=2, running=1, schedule_start_time=NOW)
    assert changes(before, before) == {}
    after = PodGroupStatus(phase="Scheduled", scheduled=3, schedule_start_time=NOW)
    assert changes(before, after) == {"phase": "Scheduled", "scheduled": 3, "running": 0}
    assert changes(PodGroupStatus(), after) == {"phase": "Scheduled", "scheduled": 3, "scheduleStartTime": NOW}
