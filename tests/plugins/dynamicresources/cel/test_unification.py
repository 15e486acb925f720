"""Which types may be used as which others, and what is then known of their parameters, each a single capital."""

import pytest

from koordsched.plugins.dynamicresources.cel.types import map_of, parse_types
from koordsched.plugins.dynamicresources.cel.unification import assignable, most_general
from tests.steps import counted


def types(text):
    return list(parse_types(text))


@pytest.mark.parametrize(
    ("general", "special"),
    [
        ("dyn", "int"),
        ("any", "int"),
        ("A", "int"),
        ("A", "list(int)"),
        ("list(dyn)", "list(int)"),
        ("map(string, list(dyn))", "map(string, list(int))"),
        ("optional(A)", "optional(string)"),
        ("map(dyn, int)", "map(string, int)"),
        ("dyn", "type(int)"),
        ("A", "type(int)"),
    ],
)
def test_the_type_that_says_less_is_the_general_one(general, special):
    (one,), (other,) = types(general), types(special)
    assert most_general(one, other) is one
    assert most_general(other, one) is one


@pytest.mark.parametrize(
    "text", ["int, string", "list(int), list(string)", "Quantity, Semver", "IP, CIDR", "optional(int), IP"]
)
def test_of_types_that_say_different_things_the_second_is_taken(text):
    one, other = types(text)
    assert most_general(one, other) is other


def test_parts_that_types_have_in_many_places_are_compared_once():
    """Each level is twice as large as the one before."""

    def compared(levels):
        one, other = types("dyn, int")
        for _ in range(levels):
            one, other = map_of(one, one), map_of(other, other)
        with counted() as steps:
            assert most_general(one, other) is one
        return steps.count

    assert compared(12) < 5 * compared(6)


def test_of_types_of_types_the_first_is_taken():
    one, other = types("type(int), type(string)")
    assert most_general(one, other) is one


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int, int", True),
        ("int, dyn", True),
        ("int, uint", False),
        ("null, Quantity", True),
        ("null, optional(int)", True),
        ("null, int", False),
        ("Quantity, Semver", False),
        ("IP, CIDR", False),
        ("optional(int), IP", False),
        ("list(int), list(dyn)", True),
        ("list(int), list(string)", False),
        ("type(int), type(string)", True),
    ],
)
def test_either_type_may_be_used_as_the_other_or_neither(text, expected):
    one, other = types(text)
    assert (assignable({}, [one], [other]) is not None) is expected
    assert (assignable({}, [other], [one]) is not None) is expected


@pytest.mark.parametrize(
    ("known", "first", "second"),
    [
        ({}, "list(A)", "A"),
        ({}, "A", "list(A)"),
        ({}, "map(string, optional(A))", "A"),
        ({"B": "list(A)"}, "B", "A"),
        ({"B": "list(A)"}, "list(B)", "A"),
    ],
)
def test_no_parameter_stands_for_a_type_that_it_is_a_part_of(known, first, second):
    bound = {name: types(text)[0] for name, text in known.items()}
    assert assignable(bound, types(first), types(second)) is None


@pytest.mark.parametrize(
    ("known", "first", "second", "then"),
    [
        ({}, "A, A", "int, dyn", {"A": "dyn"}),
        ({}, "A, A", "dyn, int", {"A": "dyn"}),
        ({}, "list(A)", "list(list(B))", {"A": "list(B)"}),
        ({"B": "A"}, "B", "A", {"B": "A"}),
        ({"A": "int"}, "A", "null", None),
        ({"A": "int"}, "string", "A", None),
    ],
)
def test_what_is_known_then(known, first, second, then):
    bound = {name: types(text)[0] for name, text in known.items()}
    found = assignable(bound, types(first), types(second))
    assert found == (None if then is None else {name: types(text)[0] for name, text in then.items()})
