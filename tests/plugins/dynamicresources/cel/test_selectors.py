"""Selectors as users write them, on devices (dra spec 3.6, section 7 on CEL)."""

import pytest

from koordsched.api.resource import DeviceAttribute
from koordsched.plugins.dynamicresources.cel import CompileError, Device, EvaluationError, Features, compile

from .selecting import LISTS, device, selects

DEFAULT = Features()
D0 = device({"m": "x"})
D1 = device({"m": "y", "k": 1})


def fails(text, on, features=DEFAULT):
    with pytest.raises(EvaluationError) as caught:
        compile(text, features).evaluate(on)
    return str(caught.value)


def test_a_missing_attribute_is_an_error_of_the_device_that_lacks_it():
    text = "device.attributes['drv'].k == 1"
    assert fails(text, D0) == "no such key: k"
    assert selects(text, D1)


@pytest.mark.parametrize("test", ["has(device.attributes['drv'].k)", "'k' in device.attributes['drv']"])
def test_presence_protects_from_the_error(test):
    text = f"{test} && device.attributes['drv'].k == 1"
    assert not selects(text, D0)
    assert selects(text, D1)


def test_an_unknown_domain_has_no_attributes():
    assert fails("device.attributes['other'].k == 1", D1) == "no such key: k"
    assert not selects("has(device.attributes['other'].k)", D1)
    assert not selects("'other' in device.attributes", D1)
    assert selects("device.attributes['other'].size() == 0 && device.attributes.size() == 1", D1)
    assert selects("device.capacity['other'] == {}", D1)


def test_the_driver():
    assert not selects("device.driver == 'nope'", D1)
    assert selects("device.driver == 'drv' && device.driver.startsWith('d')", D1)


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("device.driver", "string"),
        ("1 + 1", "int"),
        ("device", "kubernetes.DRADevice"),
        ("device.attributes", "map(string, map(string, any))"),
        ("[1]", "list(int)"),
        ("optional.of(true)", "optional_type(bool)"),
        ("null", "null_type"),
        ("dyn(true)", "dyn"),
        ("duration('1s')", "google.protobuf.Duration"),
    ],
)
def test_a_result_that_is_no_bool_is_a_compile_error(text, type_):
    with pytest.raises(CompileError) as caught:
        compile(text)
    assert str(caught.value) == f"must evaluate to bool or the unknown type, not {type_}"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("y", "string could not be converted to bool: unsupported native conversion from string to 'bool'"),
        (1, "int could not be converted to bool: unsupported type conversion from 'int' to bool"),
        (
            ("version", "1.0.0"),
            "kubernetes.Semver could not be converted to bool: type conversion error from 'Semver' to 'bool'",
        ),
    ],
)
def test_an_attribute_as_the_result_must_be_a_bool(value, problem):
    text = "device.attributes['drv'].m"
    assert fails(text, device({"m": value})) == f"CEL result of type {problem}"
    assert selects(text, device({"m": True}))
    assert not selects(text, device({"m": False}))


def test_a_list_attribute_as_the_result():
    text, on = "device.attributes['drv'].m", device({"m": ["a"]}, features=LISTS)
    assert "CEL result of type list could not" in fails(text, on, LISTS)
    with pytest.raises(CompileError, match="not dyn"):
        compile("dyn(1)", Features(list_type_attributes=False))
    assert selects("dyn(true)", on, LISTS)


def test_versions_have_an_order():
    text = "device.attributes['drv'].v.isLessThan(semver('1.10.0'))"
    assert not selects(text, device({"v": ("version", "1.10.0")}))
    assert selects(text, device({"v": ("version", "1.9.0")}))
    assert fails("device.attributes['drv'].v == '1.9.0'", device({"v": ("version", "1.9.0")})) == "no such overload"
    assert selects("device.attributes['drv'].v != '1.9.0'", device({"v": ("version", "1.9.0")}))
    assert selects("device.attributes['drv'].v == semver('1.9.0+b')", device({"v": ("version", "1.9.0+a")}))


def test_capacity_is_a_quantity():
    small, large = device(capacity={"mem": "40Gi"}), device(capacity={"mem": "80Gi"})
    for text in (
        "device.capacity['drv'].mem.compareTo(quantity('50Gi')) >= 0",
        "cel.bind(c, device.capacity['drv'], c.mem.isGreaterThan(quantity('50Gi')))",
        "device.capacity['drv'].mem == quantity('80Gi')",
    ):
        assert not selects(text, small)
        assert selects(text, large)
    with pytest.raises(CompileError, match=r"'_==_' applied to '\(kubernetes.Quantity, int\)'"):
        compile("device.capacity['drv'].mem == 1")


def test_multiple_allocations():
    assert selects("device.allowMultipleAllocations", device(shared=True))
    assert not selects("device.allowMultipleAllocations", device(shared=None))
    with pytest.raises(CompileError, match="undefined field 'allowMultipleAllocations'"):
        compile("device.allowMultipleAllocations", Features(consumable_capacity=False))


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("1.0", "No Major.Minor.Patch elements found"),
        ("", "Version string empty"),
        ("v1.0.0", 'Invalid character(s) found in major number "v1"'),
        ("1.01.0", 'Minor number must not contain leading zeroes "01"'),
        ("1.0.0-", "Prerelease is empty"),
        ("1.0.0-01", 'Numeric PreRelease version must not contain leading zeroes "01"'),
        ("1.0.0-a_b", 'Invalid character(s) found in prerelease "a_b"'),
        ("1.0.0+", "Build meta data is empty"),
        ("1.0.x", 'Invalid character(s) found in patch number "x"'),
    ],
)
def test_a_version_that_is_none_fails_every_selector(version, problem):
    assert fails("true", device({"v": ("version", version)})) == f"attribute v: parse semantic version: {problem}"


def test_lists_need_their_feature_gate():
    assert fails("true", device({"n": ["a"]})) == "attribute n: unsupported attribute value"
    on = device({"n": ["a", "b"], "v": [("version", "1.0.0")]}, features=LISTS)
    assert selects("device.attributes['drv'].n.includes('b') && 'a' in device.attributes['drv'].n", on, LISTS)
    assert selects(
        "device.attributes['drv'].n.exists(x, x == 'b') && device.attributes['drv'].n.size() == 2", on, LISTS
    )
    assert selects("device.attributes['drv'].v.all(v, v.major() == 1)", on, LISTS)
    with pytest.raises(CompileError, match="undeclared reference to 'includes'"):
        compile("device.attributes['drv'].n.includes('b')")
    with pytest.raises(CompileError, match="expression of type 'any' cannot be range of a comprehension"):
        compile("device.attributes['drv'].n.exists(x, x == 'b')")


def test_an_attribute_without_a_value_is_an_error():
    broken = Device.of("drv", {"e": DeviceAttribute()}, {})
    assert fails("true", broken) == "attribute e: unsupported attribute value"


def test_includes():
    on = device({"one": "a", "many": list(map(str, range(49)))}, features=LISTS)
    assert selects("device.attributes['drv'].one.includes('a')", on, LISTS)
    assert not selects("device.attributes['drv'].one.includes(1)", on, LISTS)
    assert selects("device.attributes['drv'].many.includes('47')", on, LISTS)
    problem = "'includes' function cannot be applied to lists longer than 48 values"
    assert fails("device.attributes['drv'].many.includes('48')", on, LISTS) == problem


def test_iterating_what_cannot_be():
    on = device({"n": 1, "b": True, "s": "a", "v": ("version", "1.0.0")}, features=LISTS)
    for name, kind in (("n", "types.Int"), ("b", "types.Bool"), ("s", "types.String"), ("v", "cel.Semver")):
        text = f"device.attributes['drv'].{name}.exists(x, true)"
        assert fails(text, on, LISTS) == f"got '{kind}', expected iterable type"


def test_names_with_a_domain():
    on = device({"model": "a", "other.test/zone": "x"}, {"other.test/bw": "100M"})
    assert selects("device.attributes['other.test'].zone == 'x' && device.attributes['drv'].model == 'a'", on)
    assert selects("device.attributes[?'other.test'].?zone.orValue('') == 'x'", on)
    assert selects("device.attributes['drv'].?nope.orValue('none') == 'none'", on)
    assert selects("device.capacity['other.test'].bw.isGreaterThan(quantity('50M'))", on)
    assert selects("device.attributes.exists_one(domain, domain == 'other.test')", on)


def test_numbers_of_any_type_compare():
    on = device({"n": 3})
    assert selects("device.attributes['drv'].n > 2.5 && device.attributes['drv'].n == 3.0", on)
    assert selects("device.attributes['drv'].n < 4u && device.attributes['drv'].n in [1, 3]", on)
    assert not selects("device.attributes['drv'].n == '3'", on)
    assert fails("device.attributes['drv'].n > '2'", on) == "no such overload"


def test_a_method_that_the_attribute_does_not_have():
    on = device({"n": 3})
    text = "device.attributes['drv'].n.isLessThan(semver('1.0.0'))"
    assert fails(text, on) == "no such overload: isLessThan(int, kubernetes.Semver)"
    assert fails("device.attributes['drv'].n.startsWith('a')", on) == "no such overload"
    assert fails("device.attributes['drv'].n.foo == 1", on) == "no such key: foo"
    assert fails("device.attributes['drv'].n && true", on) == "no such overload"
    assert fails("device.attributes['drv'].n ? true : false", on) == "no such overload"


def test_errors_are_absorbed_where_the_result_is_certain():
    assert not selects("device.attributes['drv'].zz == 1 && false")
    assert selects("device.attributes['drv'].zz == 1 || true")
    assert fails("device.attributes['drv'].zz == 1 || false", D1) == "no such key: zz"
    assert selects("[1, 2].exists(x, x == 2 || device.attributes['drv'].zz == x)")
