"""Equal descriptions of pods are interchangeable, and others are not."""

import pytest

from koordsched.plugins.shared.podcounts.query import PodQuery, WeightedQueries

DEFAULT, WEB, DB = frozenset(("default",)), (("app", "In", ("web",)),), (("app", "In", ("db",)),)


def one(namespaces=DEFAULT, requirements=WEB):
    return PodQuery(namespaces, requirements)


def several(weight=1, requirements=WEB):
    return WeightedQueries(((weight, one()), (2, one(requirements=requirements))))


@pytest.mark.parametrize("build", [one, several])
def test_what_is_said_twice_is_equal(build):
    assert build() == build()
    assert hash(build()) == hash(build())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (one(), one(requirements=DB)),
        (one(), one(namespaces=None)),
        (one(), several()),
        (one(), (DEFAULT, WEB)),
        (several(), several(weight=2)),
        (several(), several(requirements=DB)),
        (several(), several().members),
    ],
)
def test_others_are_not_equal(first, second):
    assert first != second
    assert second != first
