"""Dra spec section 7, cases 35 to 45: selectors in CEL."""

from __future__ import annotations

from typing import Any

import pytest

from koordsched.plugins.dynamicresources.structured import (
    AllocationError,
    Allocator,
    CelExpressions,
    Features,
    celexpressions,
)
from koordsched.plugins.dynamicresources.structured.selectors import read_by
from tests.plugins.dynamicresources.structured.world import World, device, request

OWN = "device.attributes['drv']"


def world(*devices: dict[str, Any]) -> World:
    """A slice of these devices, with selectors in CEL."""
    made = World()
    made.allocator = Allocator(made.index, CelExpressions(made.features), made.features, lambda: "share")
    made.slice("s1", *devices)
    return made


def two() -> World:
    """Two devices, of which one has an attribute k."""
    return world(device("d0", {"m": "x"}), device("d1", {"m": "y", "k": 1}))


def error(made: World, selector: str) -> str:
    """The text with which an attempt fails."""
    with pytest.raises(AllocationError) as raised:
        made.allocate(request(selector=selector))
    return str(raised.value)


def test_dra_case_35_a_missing_attribute() -> None:
    made = two()
    assert error(made, f"{OWN}.k == 1") == "claim default/c: selector #0: CEL runtime error: no such key: k"
    made.use("d0")
    assert made.got(request(selector=f"{OWN}.k == 1")) == ["d1"]


def test_dra_case_36_asking_whether_it_is_there() -> None:
    made = two()
    assert made.got(request(selector=f"has({OWN}.k) && {OWN}.k == 1")) == ["d1"]
    assert made.got(request(selector=f"'k' in {OWN} && {OWN}.k == 1")) == ["d1"]


def test_dra_case_37_another_domain() -> None:
    made = two()
    other = "device.attributes['other'].k"
    assert error(made, f"{other} == 1").endswith("CEL runtime error: no such key: k")
    assert made.got(request(selector=f"has({other})")) is None


def test_dra_case_38_selectors_in_order() -> None:
    made = two()
    made.add_class("dc", "device.driver == 'nope'")
    assert made.got(request(selector="device.nofield == 1")) is None


def test_dra_case_39_classes() -> None:
    made = two()
    made.add_class("dc", "device.driver")
    mismatch = "must evaluate to bool or the unknown type, not string"
    assert error(made, "true") == f"class dc: selector #0: CEL compile error: {mismatch}"
    made.add_class("dc", f"{OWN}.zz")
    assert error(made, "true") == "class dc: selector #0: CEL runtime error: no such key: zz"


def test_dra_case_40_results_that_are_no_bool() -> None:
    mismatch = "must evaluate to bool or the unknown type, not int"
    assert error(two(), "1 + 1") == f"claim default/c: selector #0: CEL compile error: {mismatch}"
    text = "claim default/c: selector #0: CEL runtime error: CEL result of type string could not be converted to bool"
    assert error(two(), f"{OWN}.m").startswith(text)


def test_dra_case_41_versions() -> None:
    made = world(device("d0", {"v": {"version": "1.10.0"}}), device("d1", {"v": {"version": "1.9.0"}}))
    assert made.got(request(selector=f"{OWN}.v.isLessThan(semver('1.10.0'))")) == ["d1"]


def test_dra_case_42_quantities() -> None:
    made = world(*(device(name, capacity={"mem": {"value": size}}) for name, size in (("d0", "40Gi"), ("d1", "80Gi"))))
    own = "device.capacity['drv']"
    assert made.got(request(selector=f"{own}.mem.compareTo(quantity('50Gi')) >= 0")) == ["d1"]
    assert made.got(request(selector=f"cel.bind(c, {own}, c.mem.isGreaterThan(quantity('50Gi')))")) == ["d1"]


def test_dra_case_43_shared_devices() -> None:
    made = world(device("d0"), device("d1", allowMultipleAllocations=True))
    found = made.allocate(request(selector="device.allowMultipleAllocations"))
    assert found is not None
    (result,) = found.results[0].devices.results
    assert (result.device, result.share_id) == ("d1", "share")


def test_dra_case_44_a_version_that_is_none() -> None:
    made = world(device("d0", {"v": {"version": "1.0"}, "u": 1}), device("d1", {"v": {"version": "1.0.0"}, "u": 1}))
    text = "attribute v: parse semantic version: No Major.Minor.Patch elements found"
    for selector in ("true", f"{OWN}.u == 1"):
        assert error(made, selector) == f"claim default/c: selector #0: CEL runtime error: {text}"
    made.use("d0")
    assert made.got(request(selector=f"{OWN}.u == 1")) == ["d1"]
    assert made.got(request()) == ["d1"]


def test_dra_case_45_expressions_that_cost_too_much() -> None:
    ten = "[1,2,3,4,5,6,7,8,9,10]"
    selector = "true"
    for depth in range(6):
        selector = f"{ten}.all(x{depth}, {selector})"
    assert error(two(), selector).endswith("CEL runtime error: operation cancelled: actual cost limit exceeded")


def with_expressions() -> tuple[World, CelExpressions]:
    """A world, and what keeps its expressions."""
    made, expressions = World(), CelExpressions(Features())
    made.allocator = Allocator(made.index, expressions, made.features, lambda: "share")
    return made, expressions


def test_the_text_of_an_error_counts_as_what_is_kept() -> None:
    made, expressions = with_expressions()
    made.slice("s1", "d0")
    text = error(made, "||".join(["x"] * 120))
    assert text.endswith("20 more errors were truncated")
    assert expressions._programs.nbytes > len(text)


def test_long_expressions_take_more_of_the_budget() -> None:
    made, expressions = with_expressions()
    made.slice("s1", "d0")
    assert made.got(request(selector=f"device.driver != '{'x' * 5_000}'")) == ["d0"]
    assert expressions._programs.nbytes > 100 * 5_000


def test_devices_are_read_again_when_too_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(celexpressions, "_DEVICES_KEPT", 3)
    made, expressions = with_expressions()
    made.slice("s1", *(device(f"d{at}", {"k": at}) for at in range(10)))
    assert made.got(request(selector=f"{OWN}.k == 9")) == ["d9"]
    assert made.got(request(selector=f"{OWN}.k >= 0 && {OWN}.k != 0")) == ["d1"]
    assert 0 < len(expressions._devices) <= 3


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("device.driver == 'x'", []),
        (f'{OWN}.k == 1 && device.attributes["x.io"] . m == 2', [("drv", "k"), ("x.io", "m")]),
        (f"has({OWN}.k)", [("drv", "k")]),
        ("device.allowMultipleAllocations", []),
        ("device.capacity['drv'].mem.isInteger()", [("drv", "mem")]),
        (f"'k' in {OWN}", None),
        (f"cel.bind(d, {OWN}, d.k == 1)", None),
        (f"{OWN}['k'] == 1", None),
        (f"{OWN}.?k.hasValue()", None),
        ("device.attributes.size() > 0", None),
        ("device == device", None),
        ("device.attributes[device.driver].k == 1", None),
        ("device.attributes['a' + 'b'].k == 1", None),
        ("device.attributes[r'drv'].k == 1", None),
        ("device.attributes['my-device.io'].k == 1", None),
    ],
)
def test_what_an_expression_reads(text: str, reads: list[tuple[str, str]] | None) -> None:
    assert read_by([text]) == (None if reads is None else frozenset(reads))
