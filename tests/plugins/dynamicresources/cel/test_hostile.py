"""Expressions that want to take all the time, all the memory or all the stack."""

import sys

import pytest

from koordsched.plugins.dynamicresources.cel import CompileError, EvaluationError, compile
from koordsched.plugins.dynamicresources.cel.frame import COST_LIMIT, MOST_PATTERNS
from koordsched.plugins.dynamicresources.cel.nesting import check_depth
from koordsched.plugins.dynamicresources.cel.parser import parse
from koordsched.plugins.dynamicresources.cel.program import _EACH, _Programs
from koordsched.plugins.dynamicresources.cel.regexes import pattern
from koordsched.plugins.dynamicresources.cel.source import Issues
from tests.steps import counted

from .selecting import LISTS, device

ON = device({"s": "a" * 64}, features=LISTS)
TOO_MUCH = "operation cancelled: actual cost limit exceeded"
TOO_DEEP = "compilation failed: ERROR: <input>:-1:0: expression recursion limit exceeded: 250"
TOO_DEEP_TREE = "compilation failed: ERROR: <input>:-1:0: max recursion depth exceeded"


def tower(levels, larger, smallest, use):
    """`use` of a value that is made of the one before `levels` times; $ stands for it."""
    text = use.replace("$", f"x{levels}")
    for level in range(levels, 0, -1):
        text = f"cel.bind(x{level}, {larger.replace('$', f'x{level - 1}')}, {text})"
    return f"cel.bind(x0, {smallest}, {text})"


def outcome(text):
    try:
        return compile(text, LISTS).evaluate(ON)
    except (CompileError, EvaluationError) as error:
        return str(error)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000 + "]" * 5000,
        "(" * 5000 + "true" + ")" * 5000,
        "{1:" * 3000 + "1" + "}" * 3000,
        "[" * 10_000,
        "1" + "+1" * 4000 + " > 0",
        "device" + ".a" * 4000,
        "device" + "[0]" * 3000,
        "true ? true : " * 700 + "true",
        "f(" * 3000,
        "[1].all(x," * 900,
    ],
)
def test_too_deep(text):
    assert outcome(text) == TOO_DEEP


def test_room_on_the_stack_is_given_back():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(5000)
    try:
        assert outcome("[" * 300) == TOO_DEEP
        assert sys.getrecursionlimit() == 5000
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize("first", ["1", "undeclared"])
def test_deep_along_the_left_operands(first):
    text = "(" * 200 + first + "".join("+1" * 20 + ")" for _ in range(200)) + " > 0"
    assert outcome(text) == TOO_DEEP_TREE


@pytest.mark.parametrize(("calls", "expected"), [(250, True), (251, TOO_DEEP_TREE)])
def test_no_more_than_250_calls_are_within_each_other(calls, expected):
    assert outcome("(1" + "+1" * 125 + ")" + "+1" * (calls - 126) + " > 0") == expected


@pytest.mark.parametrize(
    ("text", "levels"),
    [("true", 0), ("!true", 1), ("1 + 2 > 0", 2), ("optional.of(1).optMap(x, x).hasValue()", 6)],
)
def test_levels_of_a_tree(text, levels):
    """The value of optMap is asked for first whether it is there, and then, deeper in the tree, what it is."""
    issues = Issues(text)
    assert check_depth(parse(text, issues), issues) == levels
    assert not issues.found


@pytest.mark.parametrize(
    "text",
    [
        "[" * 240 + "]" * 240 + " == []",
        "!" * 9998 + "true",
        "-" * 9998 + "1 == -1",
        "1" + "+1" * 200 + " > 0",
        "true" + " && true" * 1200,
        "true ? true : " * 240 + "true",
        "(" * 240 + "true" + ")" * 240,
        "[" + "1," * 5000 + "1] != []",
        "'" + "a" * 10_000 + "' != ''",
        "optional.of(1)" + ".optMap(x, x)" * 12 + ".hasValue()",
    ],
)
def test_deep_or_long_and_allowed(text):
    assert isinstance(outcome(text), bool)


@pytest.mark.parametrize(
    "text",
    [
        tower(60, "$ + $", "'aaaaaaaaaa'", "$ == ''"),
        tower(60, "$ + $", "[1]", "$ == []"),
        tower(19, "$ + $", "[1]", "$.all(x, $ == $)"),
        tower(40, "[$, $]", "[1]", "$ == $"),
        tower(40, "{'a': $, 'b': $}", "{'a': dyn(1)}", "$ == $"),
        tower(40, "[$, $]", "[1]", "'%s'.format([$]) == ''"),
        tower(40, "[$, $]", "dyn([1])", "$.flatten(60) == []"),
        tower(40, "[$, $]", "[1]", "$.indexOf([]) == 1"),
        tower(16, "$ + $", "'a'", "$.replace('', $).replace('', $) == ''"),
        tower(14, "$ + $", "['']", f"$.join('{'b' * 3000}') == ''"),
        tower(18, "$ + $", "['']", "$.all(x, $.join() == '')"),
        tower(14, "$ + $", "'ab'", "$.contains('a' + $ + 'c')"),
        tower(14, "$ + $", "'ab'", "lists.range(200).exists(i, $.findAll('').size() == 0)"),
        "cel.bind(l, lists.range(100000), l.exists_one(x, l.exists_one(y, false)))",
        "cel.bind(l, lists.range(100000), l.filter(x, l.filter(y, false) == [x]) == [])",
        f"lists.range(100000).all(x, {'&&'.join(['true'] * 1500)})",
        f"lists.range(100000).all(x, {'true ? true : ' * 200}true)",
        "lists.range(9223372036854775807) == []",
        "lists.range(900000).sort() == []",
        "lists.range(100000).exists(i, 'x'.matches('[a-z]{900}' + string(i)))",
    ],
)
def test_too_much_work_is_refused(text):
    assert outcome(text) == TOO_MUCH


MUCH_WORK = "dyn(lists.range(249000)).flatten() == []"


def test_work_of_one_evaluation_is_not_counted_for_the_next():
    for _ in range(2):
        assert outcome(MUCH_WORK) is False


def test_what_was_evaluated_before_an_expression_is_compiled_does_not_matter():
    """Its constants are computed then, instead of in each round of the loop."""
    assert outcome(MUCH_WORK) is False
    assert outcome(f"lists.range(60).all(x, [{'0,' * 5000}0].indexOf(1) == -1)") is True


def test_repeated_macros_do_not_multiply_the_tree():
    text = "optional.of(1)" + ".optMap(x, x)" * 100 + ".hasValue()"
    assert outcome(text) in (TOO_MUCH, TOO_DEEP_TREE, True)


@pytest.mark.parametrize("smallest", ["{1: 1}", "{}", "[]", "optional.none()"])
@pytest.mark.parametrize("larger", ["{'a': $, 'b': $}", "[$, $]", "optional.of([$])", "{$: $}"])
@pytest.mark.parametrize("use", ["true", "$ == $", "[$, $].size() == 2", "$ == 1", "$.nothing()", "$.all(x, x)"])
def test_types_that_are_huge_when_written_cost_what_they_take(smallest, larger, use):
    """Each level is twice as large as the one before."""

    def problem(text):
        try:
            compile(text, LISTS)
        except CompileError as error:
            return str(error)
        return ""

    with counted() as few:
        problem(tower(10, larger, smallest, use))
    with counted() as many:
        found = problem(tower(20, larger, smallest, use))
    assert many.count < 5 * few.count
    assert len(found) < 20_000


LARGE = "error parsing regexp: expression too large"


def test_patterns_that_are_large_when_compiled_are_none():
    assert outcome(r"'x'.matches('.{1000}')") is False
    assert "invalid matches argument" in outcome(r"'x'.matches(r'\pL{400}')")
    assert LARGE in outcome(r"'x'.find(r'\pL{400}') == ''")
    assert LARGE in outcome(r"'x'.matches(r'\pL{400}' + device.driver)")


@pytest.mark.parametrize("function", ["matches({}) != true", "find({}) == ''", "findAll({}) == []"])
def test_an_expression_has_a_limited_number_of_patterns(function):
    def text(count):
        return " && ".join(f"'x'.{function}".format(f"'a{i % count}'") for i in range(2 * count))

    assert outcome(text(MOST_PATTERNS)) is True
    before = pattern.cache_info().misses
    assert f"more than {MOST_PATTERNS} regular expressions" in outcome(text(MOST_PATTERNS + 1))
    assert pattern.cache_info().misses == before


def test_patterns_take_linear_time():
    assert outcome("device.attributes['drv'].s.matches('(a*)*(a|aa)+$x')") is False
    assert outcome(tower(14, "$ + $", "'ab'", "$.matches('((a|b)*a(a|b){12}c)')")) is False


@pytest.mark.parametrize(
    "text",
    [
        "'\ud800' == device.driver",
        "bytes('\ud800').size() == 2",
        "'%x'.format(['\ud800']) == ''",
        "'\ud800'.replace('', '\udc00') == ''",
        "'a\x00b' == device.driver",
        "'\ud800'.matches('b')",
        "['\ud800'].join('\udfff').indexOf('a') == 1",
    ],
)
def test_texts_that_are_not_utf_8(text):
    assert outcome(text) is False


def test_large_numbers():
    assert outcome("9" * 9000 + " == 1").endswith("^")
    assert outcome(f"int('{'0' * 5000}1') == 1") is True
    assert outcome(f"double('{'0' * 4095}1') == 1.0") is True
    assert outcome(f"double('{'0' * 4096}1') == 1.0").endswith("from 'string' to 'double'")
    assert outcome("'%.999999999f'.format([1.0]) == ''").startswith("error during formatting: precision")
    for digits in ("9" * 4000, "0x" + "9" * 4000, "9" * 2000 + "." + "9" * 2000):
        assert outcome(f"double('{digits}!') == 1.0").endswith("from 'string' to 'double'")
    assert outcome("quantity('1e999999999').isInteger() || quantity('1e-999999999').isInteger()") is False
    assert outcome("duration('" + "1h" * 4000 + "') == duration('1s')").startswith("compilation failed")


def test_what_is_kept_is_bounded():
    from koordsched.plugins.dynamicresources.cel import program

    for number in range(200):
        compile(f"'{'a' * 5000}{number}' == ''")
    kept = program._PROGRAMS
    assert kept._characters <= program.MOST_CHARACTERS
    assert len(kept._programs) < 60
    assert COST_LIMIT == 1_000_000


def test_the_programs_that_were_used_last_are_kept():
    programs = _Programs(most_characters=2 * (len("1 == 1") + _EACH))
    first, second = programs.get("1 == 1", LISTS), programs.get("2 == 2", LISTS)
    assert programs.get("1 == 1", LISTS) is first
    programs.get("3 == 3", LISTS)
    assert programs.get("1 == 1", LISTS) is first
    assert programs.get("2 == 2", LISTS) is not second


def test_a_program_that_is_too_large_is_kept_alone():
    programs = _Programs(most_characters=1)
    first, second = programs.get("1 == 1", LISTS), programs.get("2 == 2", LISTS)
    assert programs.get("2 == 2", LISTS) is second
    assert programs.get("1 == 1", LISTS) is not first
