"""What is wrong with the requests of a claim, before any node is looked at (dra spec 3.4)."""

from __future__ import annotations

from typing import Any

import pytest

from koordsched.api.decoding import convert
from koordsched.api.resource import DeviceClass, ResourceClaim
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.plugins.dynamicresources.inflight import AllocationsInFlight
from koordsched.plugins.dynamicresources.prefilter import problem_of
from tests.plugins.dynamicresources.deviceworld import claim, device_class

CLASSES = {"dc": convert(device_class(), DeviceClass)}


def found(request: dict[str, Any], *, prioritized_list: bool = True) -> Status:
    """What is found about a claim with this request, where there is the class `dc`."""
    made = claim()
    made["spec"]["devices"]["requests"] = [{"name": "r", **request}]
    in_flight = AllocationsInFlight(lambda uid, allocation: None)
    return problem_of([convert(made, ResourceClaim)], in_flight, CLASSES.get, prioritized_list=prioritized_list)


def exactly(of: str) -> dict[str, Any]:
    """A request for a device of a class."""
    return {"exactly": {"deviceClassName": of}}


def either(*classes: str) -> dict[str, Any]:
    """A request for a device of the first of several classes."""
    return {"firstAvailable": [{"name": f"s{at}", "deviceClassName": of} for at, of in enumerate(classes)]}


@pytest.mark.parametrize("asked", [exactly("dc"), either("dc", "dc")])
def test_requests_for_devices_of_classes_that_there_are(asked: dict[str, Any]) -> None:
    assert found(asked) is SUCCESS


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({}, "resource claim default/c, request r: unknown request type"),
        (exactly("none"), "request r: device class none does not exist"),
        (either("dc", "none"), "request r/s1: device class none does not exist"),
    ],
)
def test_requests_that_no_node_can_meet(asked: dict[str, Any], text: str) -> None:
    assert found(asked) == Status(Code.UNRESOLVABLE, (text,))


@pytest.mark.parametrize(("asked", "name"), [(exactly(""), "r"), (either("dc", ""), "r/s1")])
def test_a_request_without_a_class_is_an_error(asked: dict[str, Any], name: str) -> None:
    assert found(asked) == Status(Code.ERROR, (f"request {name}: unsupported request type",))


def test_alternatives_are_refused_while_their_feature_is_off() -> None:
    text = "resource claim default/c, request r: has subrequests, but the DRAPrioritizedList feature is disabled"
    assert found(either("dc"), prioritized_list=False) == Status(Code.UNRESOLVABLE, (text,))
    assert found(exactly("dc"), prioritized_list=False) is SUCCESS
