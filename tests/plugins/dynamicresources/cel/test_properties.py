"""Properties: arithmetic against Python's, orders, and that no expression fails in a way that is not foreseen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordsched.api import quantity
from koordsched.plugins.dynamicresources.cel import CompileError, EvaluationError, compile
from koordsched.plugins.dynamicresources.cel.quantities import parse_quantity
from tests.depth import examples

from .selecting import LISTS, device, selects

ON = device({"n": 3, "s": "text", "b": True, "v": ("version", "1.2.3"), "l": ["a", "b"]}, {"m": "1Gi"}, features=LISTS)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NEAR = st.one_of(INT64, st.integers(-5, 5))
OPERATIONS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


@settings(max_examples=examples(100), deadline=None)
@given(NEAR, st.sampled_from(sorted(OPERATIONS)), NEAR)
def test_integers_are_exact_or_overflow(left, operation, right):
    expected = OPERATIONS[operation](left, right)
    text = f"({left}) {operation} ({right})"
    if -(1 << 63) <= expected < 1 << 63:
        assert selects(f"{text} == {expected}")
    else:
        with pytest.raises(EvaluationError, match="integer overflow"):
            selects(f"{text} == 0")


@settings(max_examples=examples(100), deadline=None)
@given(NEAR, NEAR.filter(bool))
def test_quotient_and_remainder_make_the_dividend(dividend, divisor):
    if (dividend, divisor) != (-(1 << 63), -1):
        a, b = f"({dividend})", f"({divisor})"
        assert selects(f"({a} / {b}) * {b} + {a} % {b} == {a}")


@settings(max_examples=examples(100), deadline=None)
@given(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r"), max_size=20), st.integers(0, 20))
def test_texts_come_back(text, offset):
    literal = "".join(f"\\U{ord(each):08x}" for each in text)
    assert selects(f"size('{literal}') == {len(text)}")
    if offset <= len(text):
        assert selects(f"'{literal}'.substring(0, {offset}) + '{literal}'.substring({offset}) == '{literal}'")
    assert selects(f"'{literal}'.split('').join() == '{literal}' && string(bytes('{literal}')) == '{literal}'")


SUFFIXES = st.sampled_from(
    ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-2"]
)
QUANTITIES = st.builds(
    lambda sign, number, fraction, suffix: f"{sign}{number}{fraction}{suffix}",
    st.sampled_from(["", "+", "-"]),
    st.integers(0, 10**6),
    st.sampled_from(["", ".5", ".25", ".0", ".123456789123"]),
    SUFFIXES,
)


@settings(max_examples=examples(200), deadline=None)
@given(QUANTITIES)
def test_quantities_are_those_of_the_api(text):
    exact = quantity.parse(text) * 10**9
    rounded = -(-abs(exact).numerator // exact.denominator)
    capped = min(rounded, ((1 << 63) - 1) * 10**9)
    assert abs(parse_quantity(text).order) in (rounded, capped)
    assert (parse_quantity(text).order < 0) is (exact < 0)


NUMBERS = st.integers(0, 11).map(str)
VERSIONS = st.builds(
    lambda numbers, pre: ".".join(numbers) + pre,
    st.tuples(NUMBERS, NUMBERS, NUMBERS),
    st.sampled_from(["", "-a", "-a.1", "-a.b", "-1", "-10", "-2"]),
)


@settings(max_examples=examples(100), deadline=None)
@given(VERSIONS, VERSIONS, VERSIONS)
def test_versions_are_ordered(one, other, third):
    def order(left, right):
        return next(sign for sign in (-1, 0, 1) if selects(f"semver('{left}').compareTo(semver('{right}')) == {sign}"))

    assert order(one, other) == -order(other, one)
    assert (order(one, other) == 0) is (one == other)
    if order(one, other) <= 0 and order(other, third) <= 0:
        assert order(one, third) <= 0


ATOMS = st.sampled_from(
    [
        "1", "2u", "1.5", "'a'", "b'a'", "true", "null", "[]", "[1, 2]", "{}", "{'a': 1}", "device", "device.driver", "x",  # noqa: E501
        "device.attributes['drv'].n", "device.attributes['drv'].s", "device.attributes['drv'].v", "device.attributes",
        "device.attributes['drv'].l", "device.capacity['drv'].m", "quantity('1')", "semver('1.0.0')", "optional.none()",
        "optional.of(1)", "duration('1s')", "timestamp(0)", "ip('::1')", "cidr('::/0')", "url('/a')", "dyn(1)", "int",
        "device.attributes['drv'].nope", "format.uuid()", "lists.range(3)", "dyn([dyn(1), dyn('a')])", "-1", "1/0",
    ]
)  # fmt: skip
BINARY = st.sampled_from(["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in"])
METHODS = st.sampled_from(
    [
        "size",
        "contains",
        "startsWith",
        "matches",
        "find",
        "findAll",
        "split",
        "join",
        "replace",
        "format",
        "indexOf",
        "lastIndexOf",
        "charAt",
        "substring",
        "trim",
        "lowerAscii",
        "sort",
        "distinct",
        "reverse",
        "flatten",
        "slice",
        "sum",
        "min",
        "max",
        "isSorted",
        "first",
        "last",
        "value",
        "hasValue",
        "or",
        "orValue",
        "add",
        "sub",
        "compareTo",
        "isLessThan",
        "isGreaterThan",
        "asInteger",
        "isInteger",
        "major",
        "getHours",
        "getSeconds",
        "getFullYear",
        "family",
        "masked",
        "ip",
        "containsIP",
        "getHost",
        "getQuery",
        "validate",
        "includes",
        "unwrapOpt",
    ]
)
GLOBALS = st.sampled_from(
    [
        "size",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "bool",
        "type",
        "dyn",
        "duration",
        "timestamp",
        "quantity",
        "semver",
        "isSemver",
        "ip",
        "cidr",
        "url",
        "isURL",
        "sets.contains",
        "sets.equivalent",
        "optional.of",
        "optional.ofNonZeroValue",
        "strings.quote",
        "sign",
        "matches",
        "format.named",
    ]
)
MACROS = st.sampled_from(["all", "exists", "exists_one", "map", "filter", "optMap", "optFlatMap", "sortBy"])


def extend(parts):
    arguments = st.lists(parts, max_size=2).map(", ".join)
    return st.one_of(
        st.builds(lambda left, operator, right: f"({left} {operator} {right})", parts, BINARY, parts),
        st.builds(lambda target, name, given: f"{target}.{name}({given})", parts, METHODS, arguments),
        st.builds(lambda name, given: f"{name}({given})", GLOBALS, arguments),
        st.builds(lambda target, name, body: f"{target}.{name}(x, {body})", parts, MACROS, parts),
        st.builds(lambda target, body: f"{target}.transformMapEntry(i, x, {{x: {body}}})", parts, parts),
        st.builds(lambda value, body: f"cel.bind(x, {value}, {body})", parts, parts),
        st.builds(lambda test, yes, no: f"({test} ? {yes} : {no})", parts, parts, parts),
        st.builds(lambda target, index: f"{target}[{index}]", parts, parts),
        st.builds(lambda target: f"{target}.?a", parts),
        st.builds(lambda target: f"has({target}.a)", parts),
        st.builds(lambda values: f"[{values}]", arguments),
        st.builds(lambda key, value: f"{{{key}: {value}}}", parts, parts),
    )


EXPRESSIONS = st.recursive(ATOMS, extend, max_leaves=8)


def outcome(text):
    try:
        return compile(text, LISTS).evaluate(ON)
    except (CompileError, EvaluationError) as error:
        return str(error)


@settings(max_examples=examples(900), deadline=None)
@given(EXPRESSIONS)
def test_every_expression_has_a_result_or_a_foreseen_error(text):
    for each in (text, f"dyn({text}) == dyn(1)", f"dyn({text})"):
        result = outcome(each)
        assert result is True or result is False or result
        assert outcome(each) == result


@settings(max_examples=examples(300), deadline=None)
@given(st.text(max_size=40))
def test_every_text_compiles_or_has_an_error(text):
    assert outcome(text) in (True, False) or outcome(text)
