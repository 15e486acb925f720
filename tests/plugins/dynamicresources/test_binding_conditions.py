"""Devices that become ready after they were allocated (dra spec 3.8, case 105)."""

import asyncio

import pytest

from koordsched.api.decoding import convert
from koordsched.api.resource import ResourceClaim
from koordsched.plugins.dynamicresources.conditions import is_overdue
from tests.plugins.dynamicresources.deviceworld import N1, N2, allocated, claim, claiming, device_class, slice_of, world
from tests.virtualtime import run

CONDITIONS = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Failed"]}
ALLOCATIONS = "scheduler_dra_bindingconditions_allocations_total"
WAITS = "scheduler_dra_bindingconditions_wait_duration_seconds_count"


def report(there, kind, **more):
    """The driver says something of the device."""
    registry = there.embedded.registry
    resource = registry.resource("resource.k8s.io", "v1", "resourceclaims")
    record = registry.record(resource, "default", "c")
    device = {"driver": "drv", "pool": "n1", "device": "d0", "conditions": [{"type": kind, "status": "True", **more}]}
    thing = record.obj()
    registry.replace_record(resource, record, {**thing, "status": {**thing["status"], "devices": [device]}})


def counted(there):
    """Outcomes that were counted, by status."""
    found = {}
    for family in there.running.scheduler.metrics.registry.collect():
        for sample in family.samples:
            if sample.name in (ALLOCATIONS, WAITS):
                labels = sample.labels
                assert (labels["profile"], labels["driver"]) == ("default-scheduler", "drv")
                found.setdefault(labels["status"], []).append(sample.value)
    return found


def play(steps, *more, args=None, conditions=CONDITIONS, gates=()):
    async def work():
        objects = (N1, device_class(), slice_of("n1", ("d0", conditions)), *more)
        async with world(*objects, args=args, gates=gates) as there:
            await steps(there)

    run(work())


def test_dra_case_105_a_device_becomes_ready():
    async def steps(there):
        there.embedded.insert(claiming("p", "c"))
        await asyncio.sleep(7)
        assert there.where("p") is None
        assert "waiting for binding conditions for device on node n1" in there.notes()
        report(there, "Ready")
        await asyncio.sleep(0.5)
        assert there.where("p") == "n1"
        assert counted(there) == {"success": [1, 1]}

    play(steps, claim())


def test_dra_case_105_a_device_fails():
    async def steps(there):
        there.embedded.insert(claiming("p", "c"))
        await asyncio.sleep(1)
        report(there, "Failed", reason="R", message="M")
        await asyncio.sleep(0.5)
        text = 'running PreBind plugin "DynamicResources": device binding failed: claim=c, reason=R, message="M"'
        assert there.message("p") == text
        assert counted(there) == {"failure": [1, 1]}
        await asyncio.sleep(2)
        text = "1 resourceclaim not available on the node. deallocation of ResourceClaim completed"
        assert any(text in note for note in there.notes())
        assert {"allocation": None, "reservedFor": None, "devices": None} in [
            w.body.get("status") for w in there.writes
        ]

    play(steps, claim())


@pytest.mark.parametrize("timeout, text", [("2s", "context deadline exceeded"), ("11s", "context deadline exceeded")])
def test_dra_case_105_a_device_is_not_ready_in_time(timeout, text):
    async def steps(there):
        there.embedded.insert(claiming("p", "c"))
        await asyncio.sleep(float(timeout[:-1]) + 0.5)
        assert there.message("p") == f'running PreBind plugin "DynamicResources": device binding timeout: {text}'
        assert counted(there) == {"timeout": [1, 1]}

    play(steps, claim(), args={"bindingTimeout": timeout})


def test_dra_case_105_the_claims_own_time_is_over():
    async def steps(there):
        # Allocated for a pod that is gone, 3 of 8 seconds ago: at the poll after 10 seconds its time is over, while the
        # wait would last until the 8th second of its own.
        await asyncio.sleep(3)
        there.embedded.insert(claiming("p", "c"))
        await asyncio.sleep(5.5)
        assert there.message("p") == 'running PreBind plugin "DynamicResources": device binding timeout: claim=c'

    old = allocated("d0", timestamp="2029-12-31T23:59:59Z", **CONDITIONS)
    play(steps, claim(status=old), args={"bindingTimeout": "8s"})


@pytest.mark.parametrize(
    "status",
    [
        allocated("d0", timestamp="2029-12-31T23:00:00Z", **CONDITIONS),
        allocated("d0", **CONDITIONS)
        | {
            "devices": [
                {"driver": "drv", "pool": "n1", "device": "d0", "conditions": [{"type": "Failed", "status": "True"}]}
            ]
        },
    ],
    ids=["too old", "failed"],
)
def test_dra_case_105_a_claim_that_will_not_be_ready_is_freed(status):
    async def steps(there):
        there.embedded.insert(claiming("p", "c"))
        await asyncio.sleep(0.5)
        assert there.message("p").startswith(
            "0/2 nodes are available: 2 resourceclaim not available on the node. "
            "deallocation of ResourceClaim completed, "
        )

    play(steps, N2, claim(status=status))


def test_a_claim_that_is_ready_is_used_however_long_ago_it_was_allocated():
    async def steps(there):
        there.embedded.insert(claiming("p", "c"))
        await asyncio.sleep(0.5)
        assert there.where("p") == "n1"

    said = {"type": "Ready", "status": "True", "reason": "R", "lastTransitionTime": "2029-12-31T23:01:00Z"}
    ready = {"driver": "drv", "pool": "n1", "device": "d0", "conditions": [said]}
    old = allocated("d0", timestamp="2029-12-31T23:00:00Z", **CONDITIONS)
    play(steps, claim(status={**old, "devices": [ready]}))


@pytest.mark.parametrize("seconds, overdue", [(59, False), (60, False), (61, True)])
def test_a_claim_is_overdue_when_more_than_its_time_has_passed(seconds, overdue):
    held = convert(claim(status=allocated("d0", timestamp="1970-01-01T00:10:00Z", **CONDITIONS)), ResourceClaim)
    assert is_overdue(held, 60, 600 + seconds) is overdue


def test_without_the_feature_no_pod_waits_for_conditions():
    async def steps(there):
        there.embedded.insert(claiming("p", "c"))
        await asyncio.sleep(0.5)
        assert there.where("p") == "n1"

    old = allocated("d0", timestamp="2029-12-31T23:00:00Z", **CONDITIONS)
    play(steps, claim(status=old), gates=("DRADeviceBindingConditions=false",))
