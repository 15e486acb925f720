"""What evaluations cost, in cel-go's units, and that too much is refused."""

import pytest

from koordsched.plugins.dynamicresources.cel import EvaluationError, Interrupted, compile

from .selecting import device, selects

ON = device({"name": "fish", "n": 1, "v": ("version", "1.0.0")}, {"mem": "1Mi"})

COSTS = {
    "true": 0,
    "device.driver == ''": 2,
    "device.driver == 'drv'": 3,
    "device.attributes['drv'].n > 0": 5,
    "device.attributes['drv']['n'] == 1": 5,
    "'drv' in device.attributes": 3,
    "device.attributes['drv'].v.isGreaterThan(semver('0.0.1'))": 6,
    "device.capacity['drv'].mem.isGreaterThan(quantity('1Ki'))": 6,
    "has(device.attributes['drv'].n)": 3,
    "cel.bind(d, device.attributes['drv'], d.n == 1)": 3 + 2 + 1,
    "device.attributes['drv'].name.matches('[^a]?fis')": 4 + 2,
    "'123456789'.matches('b')": 1,
    "'1234567890'.matches('b')": 2,
    "'1'.matches('abcde')": 2,
    "'1234567890'.find('abcde') == ''": 4,
    "'1234567890'.findAll('abcde') == []": 4,
    "device.attributes['drv'].name.contains('is')": 4 + 1,
    "device.attributes['drv'].name in ['a', 'fish']": 4,
    "1 in [1, device.driver.size(), 3]": 10 + 3 + 3,
    "'a' in {'a': 1, device.driver: 2}": 30 + 2 + 1,
    "has({'a': 1}.a)": 1,
    "cidr('10.0.0.0/8').containsIP(ip('10.1.1.1'))": 3,
    "device.attributes['drv'].n == 1 ? device.attributes['drv'].n == 1 : false": 5 + 5,
    "(device.attributes['drv'].n == 1 ? device.driver : '') == 'drv'": 5 + 1 + 1,
    # Each element: is it decided (2), the result so far (1), the condition.
    "[1, 2].all(x, x > 0)": 2 * (3 + 2) + 1,
    "[1, 2].exists(x, x > 1)": 2 * (4 + 2) + 1,
    "[1, 2].exists(x, x > 0)": 4 + 2 + 3 + 1,
    "[1, 2].exists_one(x, x > 1)": 2 * 2 + 2 + 2,
    "[1, 2].map(x, x) == []": 2 * (1 + 10 + 1 + 1) + 1 + 0,
    "[1, 2].filter(x, x > 1) == [2]": 2 * 2 + 13 + 1 + 1,
    "lists.range(100).size() == 100": 100 + 11 + 1 + 1,
    "[3, 2, 1].sort() == []": 2 * 9 + 11,
    "sets.equivalent([1, 2], [2, 1])": 1 + 2 * 4,
    "'aaaaaaaaaaa'.split('') == []": 3,
    "('aaaaaaaaaaa' + 'b').size() == 12": 2 + 1 + 1,
}


@pytest.mark.parametrize("text", COSTS)
def test_cost(text):
    assert compile(text).cost(ON) == COSTS[text]


def nested(levels, inner, elements="[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"):
    for level in range(levels):
        inner = f"{elements}.all(x{level}, {inner})"
    return inner


def test_six_loops_within_each_other_cost_too_much():
    with pytest.raises(EvaluationError) as caught:
        selects(nested(6, "x0 > 0"))
    assert str(caught.value) == "operation cancelled: actual cost limit exceeded"


def test_that_cannot_be_absorbed():
    for text in (f"{nested(6, 'true')} || true", f"[1].exists(x, {nested(6, 'true')} || x == 1)"):
        with pytest.raises(EvaluationError, match="cost limit exceeded"):
            selects(text)


def test_five_loops_are_fine():
    assert selects(nested(5, "true"))


def test_an_evaluation_within_a_lower_limit():
    program = compile("device.driver == 'drv'")
    assert program.evaluate_within(ON, 3) == (True, 3)
    with pytest.raises(EvaluationError, match="cost limit exceeded"):
        program.evaluate_within(ON, 2)


def test_the_limit_holds_without_loops():
    assert not selects("lists.range(999989) == []"), "a million is not too much"
    text = "lists.range(999000).size() > 0 && lists.range(999000).size() > 0"
    with pytest.raises(EvaluationError, match="cost limit exceeded"):
        selects(text)


def test_an_evaluation_ends_when_its_time_is_over():
    calls = []

    def expired():
        calls.append(1)
        return len(calls) == 3

    program = compile(nested(4, "true"))
    with pytest.raises(Interrupted, match="operation interrupted"):
        program.evaluate(ON, expired)
    assert len(calls) == 3
    assert program.evaluate(ON, lambda: False)
    with pytest.raises(Interrupted):
        compile(f"{nested(4, 'true')} || true").evaluate(ON, lambda: True)
