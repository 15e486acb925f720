"""Texts of compile errors: what is wrong, where, and the line with a mark below."""

import pytest

from koordsched.plugins.dynamicresources.cel import CompileError, compile

OPERAND = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)


def error(text):
    with pytest.raises(CompileError) as caught:
        compile(text)
    return str(caught.value)


def test_the_line_and_a_mark():
    assert error("device.nofield") == (
        "compilation failed: ERROR: <input>:1:7: undefined field 'nofield'\n | device.nofield\n | ......^"
    )


def test_several_errors_in_the_order_of_the_text():
    assert error("true &&\n\tfoo(1) == device.driver + 1") == (
        "compilation failed: ERROR: <input>:2:5: undeclared reference to 'foo' (in container '')\n"
        " |  foo(1) == device.driver + 1\n | ....^\n"
        "ERROR: <input>:2:26: found no matching overload for '_+_' applied to '(string, int)'\n"
        " |  foo(1) == device.driver + 1\n | .........................^"
    )


def test_wide_characters_have_wide_dots():
    assert error("'é\x7f\x80' + 1 == '😁'").endswith("\n | 'é\x7f\x80' + 1 == '😁'\n | .\uff0e.\uff0e..^")


@pytest.mark.parametrize(("character", "mark"), [("\x7f", "^"), ("\x80", "\uff3e")])
def test_the_mark_is_as_wide_as_the_character(character, mark):
    assert error(character).endswith(f"\n | {character}\n | {mark}")


def test_a_line_of_more_than_16_kibibytes_is_not_shown():
    long = "x + 'é" + "a" * 16_376
    assert error(f"{long}'").endswith("\n | ^")
    assert error(f"{long}a'").endswith("(in container '')")


def test_more_than_a_hundred_errors_are_cut():
    assert error("||".join(["x"] * 120)).endswith("20 more errors were truncated")


def test_literals_are_checked_if_nothing_else_is_wrong():
    assert "invalid matches argument" in error("'a'.matches('(')")
    assert "invalid matches argument" not in error("x && 'a'.matches('(')")


MESSAGES = {
    "x": "1:1: undeclared reference to 'x' (in container '')",
    "device.driver.x": "1:14: type 'string' does not support field selection",
    "device['driver'] == ''": "1:7: found no matching overload for '_[_]' applied to '(kubernetes.DRADevice, string)'",
    "1 && true": "1:1: expected type 'bool' but found 'int'",
    "!1": "1:1: found no matching overload for '!_' applied to '(int)'",
    "true ? 1 : 'a'": "1:6: found no matching overload for '_?_:_' applied to '(bool, int, string)'",
    "[1, 'a'].size() == 1": "1:5: expected type 'int' but found 'string'",
    "{'a': 1, 'b': 'c'}.size() == 1": "1:15: expected type 'int' but found 'string'",
    "1.startsWith('a')": "1:13: found no matching overload for 'startsWith' applied to 'int.(string)'",
    "startsWith('a', 'b')": "1:11: found no matching overload for 'startsWith' applied to '(string, string)'",
    "1.all(x, true)": "1:1: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",  # noqa: E501
    "[1].all(x, x)": "1:12: expected type 'bool' but found 'int'",
    "[1].exists(x, x)": "1:15: expected type 'bool' but found 'int'",
    "[1].exists_one(x, x)": "1:15: found no matching overload for '_?_:_' applied to '(int, int, int)'",
    "[1].exists(x, y == x)": "1:15: undeclared reference to 'y' (in container '')",
    "[1].filter(x, x) == []": "1:11: found no matching overload for '_?_:_' applied to '(int, list(int), list(int))'",
    "[1].all(1, true)": "1:9: argument must be a simple name",
    "[1].map(1, true) == []": "1:9: argument is not an identifier",
    "[1].all(x, x, true)": "1:12: duplicate variable name: x",
    "[1].all(__result__, true)": "1:9: iteration variable overwrites accumulator variable",
    "cel.bind(1, 2, true)": "1:10: cel.bind() variable names must be simple identifiers",
    "optional.of(1).optMap(1, 2).hasValue()": "1:23: optMap() variable name must be a simple identifier",
    "'a'.sortBy(x, x) == []": "1:1: sortBy can only be applied to a list, identifier, comprehension, call or select expression",  # noqa: E501
    "has(1)": "1:5: invalid argument to has() macro",
    "[?1].size() == 1": "1:3: expected type 'optional_type(int)' but found 'int'",
    "1.?a.hasValue()": "1:2: type 'int' does not support field selection",
    "'%d'.format(['a']) == ''": "1:14: error during formatting: decimal clause can only be used on integers, was given string",  # noqa: E501
    "'%s'.format([1, 2]) == ''": "1:12: too many arguments supplied to string.format (expected 1, got 2)",
    "'%s'.format([]) == ''": "1:12: index 0 out of range",
    "'%z'.format([1]) == ''": '1:12: could not parse formatting clause: unrecognized formatting clause "z"',
    "int{}": "1:4: 'int' is not a message type",
    "Foo{a: 1}": "1:4: undeclared reference to 'Foo' (in container '')",
    "for": "1:1: reserved identifier: for",
    "9223372036854775808 == 1": "1:1: invalid int literal",
    "18446744073709551616u == 1u": "1:1: invalid uint literal",
    "1e999 == 1.0": "1:1: invalid double literal",
    r"'\ud800' == ''": "1:1: invalid unicode code point",
    "device.`a`": "1:8: unsupported syntax: '`'",
    "": f"1:1: Syntax error: mismatched input '<EOF>' expecting {OPERAND}",
    "1 +": f"1:4: Syntax error: mismatched input '<EOF>' expecting {OPERAND}",
    "true ? 1": "1:9: Syntax error: mismatched input '<EOF>' expecting ':'",
    "(true": "1:6: Syntax error: mismatched input '<EOF>' expecting ')'",
    "true true": "1:6: Syntax error: mismatched input 'true' expecting <EOF>",
    "true # false": "1:6: Syntax error: token recognition error at: '#'",
    r"'a\z'": r"1:1: Syntax error: token recognition error at: ''a\z'",
    "'a": "1:1: Syntax error: token recognition error at: ''a'",
    "\ud800": "1:1: Syntax error: token recognition error at: '\ud800'",
}


@pytest.mark.parametrize("text", MESSAGES)
def test_message(text):
    first, *_ = error(text).removeprefix("compilation failed: ERROR: <input>:").split("\n")
    assert first == MESSAGES[text]
