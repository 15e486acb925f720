"""Annotations of Reservations and their owners."""

import json
import re
from contextlib import suppress

import pytest
from hypothesis import given, settings

from koordsched.plugins.reservation.annotations import (
    Allocated,
    allocated_text,
    inner_reserved,
    parse_allocated,
    resized_allocatable,
    restricted_names,
)
from koordsched.plugins.reservation.kinds import NODE_RESERVATION, RESIZE_ALLOCATABLE, RESTRICTED_OPTIONS
from koordsched.plugins.reservation.malformed import MalformedReservation
from tests.depth import examples
from tests.plugins.reservation.hostile import values

NAMES = ("memory", "cpu", "example.com/gpu")
SORTED = ("cpu", "example.com/gpu", "memory")


def test_the_allocation_is_written_as_upstream_writes_it():
    assert allocated_text("r-a", "3f0c") == '{"name":"r-a","uid":"3f0c"}'
    assert parse_allocated(allocated_text("r-a", "3f0c")) == Allocated("r-a", "3f0c")


@pytest.mark.parametrize("text", ["", "null", "{}", '{"name": "r-a"}', '{"name": "r-a", "uid": null}'])
def test_an_allocation_without_a_uid_is_none(text):
    assert parse_allocated(text) is None


@pytest.mark.parametrize("text", ["[]", "5", "{", '{"uid": 5}', "\ud800"])
def test_an_allocation_that_cannot_be_read_is_refused(text):
    with pytest.raises(ValueError, match=r"Expected|JSON|truncated|surrogates"):
        parse_allocated(text)


@pytest.mark.parametrize(
    "text, reserved",
    [
        (None, {}),
        ("", {}),
        ("null", {}),
        ("{}", {}),
        ('{"resources": {"cpu": "2", "memory": "1Gi"}}', {"cpu": "2", "memory": "1Gi"}),
        ('{"resources": {"memory": "1Gi"}, "reservedCPUs": "0-3,8"}', {"cpu": "5", "memory": "1Gi"}),
        ('{"resources": {"cpu": "9"}, "reservedCPUs": "0-3"}', {"cpu": "4"}),
        ('{"resources": null, "reservedCPUs": "", "applyPolicy": "Default"}', {}),
    ],
)
def test_inner_reserved(text, reserved):
    assert inner_reserved({} if text is None else {NODE_RESERVATION: text}) == reserved


@pytest.mark.parametrize(
    "read, key, text, said",
    [
        (inner_reserved, NODE_RESERVATION, "x", "invalid character 'x'"),
        (inner_reserved, NODE_RESERVATION, "[]", "Go value of type extension.NodeReservation"),
        (inner_reserved, NODE_RESERVATION, '{"reservedCPUs": "0-"}', "reservedCPUs: cpuset '0-'"),
        (inner_reserved, NODE_RESERVATION, '{"reservedCPUs": 3}', "$.reservedCPUs"),
        (inner_reserved, NODE_RESERVATION, '{"resources": {"cpu": "x"}}', "resources.cpu: quantity 'x'"),
        (inner_reserved, NODE_RESERVATION, '{"resources": {"cpu": "-1"}}', "resources.cpu: quantity '-1' is negative"),
        (inner_reserved, NODE_RESERVATION, '{"resources": {"cpu": "1e30"}}', "'1e30' is too large"),
        (inner_reserved, NODE_RESERVATION, f'{{"resources": {{"x": "{1 << 63}"}}}}', f"'{1 << 63}' is too large"),
        (inner_reserved, NODE_RESERVATION, '{"resources": {"cpu": true}}', "$.resources[...]"),
        (resized_allocatable, RESIZE_ALLOCATABLE, "{", "unexpected end of JSON input"),
        (resized_allocatable, RESIZE_ALLOCATABLE, '{"resources": {"cpu": -1}}', "resources.cpu: quantity '-1'"),
        (resized_allocatable, RESIZE_ALLOCATABLE, "[" * 9000, "unexpected end of JSON input"),
    ],
)
def test_what_cannot_be_read_is_named(read, key, text, said):
    with pytest.raises(MalformedReservation, match=re.escape(said)) as error:
        read({key: text})
    assert str(error.value).startswith(f"annotation {key}: ")


@pytest.mark.parametrize(
    "text, names",
    [
        (None, SORTED),
        ("", SORTED),
        ("{}", SORTED),
        ('{"resources": null}', SORTED),
        ('{"resources": ["memory"]}', ("memory",)),
        ('{"resources": ["memory", "cpu", "memory", "other"]}', ("cpu", "memory")),
        ('{"resources": ["other"]}', SORTED),
    ],
)
def test_restricted_names(text, names):
    assert restricted_names({} if text is None else {RESTRICTED_OPTIONS: text}, NAMES) == names


@pytest.mark.parametrize("text", ["x", "[]", '{"resources": "cpu"}', '{"resources": [1]}'])
def test_restricted_options_that_cannot_be_read_are_refused(text):
    with pytest.raises(MalformedReservation, match=re.escape(f"annotation {RESTRICTED_OPTIONS}: ")):
        restricted_names({RESTRICTED_OPTIONS: text}, NAMES)


def test_resized_allocatable():
    assert resized_allocatable({}) == {}
    assert resized_allocatable({RESIZE_ALLOCATABLE: '{"resources": {"gpu": "50"}}'}) == {"gpu": "50"}


@given(values("resources", "reservedCPUs", "cpu", "name", "uid"))
@settings(max_examples=examples(600), deadline=None)
def test_any_json_is_read_or_refused(value):
    text = json.dumps(value)
    for read, key in (
        (inner_reserved, NODE_RESERVATION),
        (resized_allocatable, RESIZE_ALLOCATABLE),
        (lambda annotations: restricted_names(annotations, NAMES), RESTRICTED_OPTIONS),
    ):
        with suppress(MalformedReservation):
            read({key: text})
    with suppress(ValueError):
        assert (parse_allocated(text) or Allocated("", "a")).uid
