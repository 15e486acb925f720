"""What keeps groups of gangs from being tried, and who is to be told when that changes."""

import pytest

from koordsched.plugins.coscheduling.gang import Gang, GangGroup
from koordsched.plugins.coscheduling.shortcomings import Shortcomings


@pytest.fixture
def group():
    """Of a gang that is not defined, with a pending member."""
    made = GangGroup(("default/a",))
    gang = made.gangs["default/a"] = Gang("default/a", made, 0.0, lambda gang: None)
    gang.pending["m"] = "the member"
    return made


def test_pods_are_told_once_when_their_group_lacks_something_else(group):
    shortcomings = Shortcomings()
    shortcomings.follow(group)
    assert shortcomings.why_not(group) == "memberGangs [default/a] doesn't exists"
    shortcomings.assess(group.gangs["default/a"])
    assert shortcomings.why_not(group) == "memberGangs [default/a] has not init"
    assert list(shortcomings.reworded()) == ["the member"]
    assert list(shortcomings.reworded()) == []


def test_pods_of_a_group_that_is_gone_are_told_nothing(group):
    shortcomings = Shortcomings()
    shortcomings.follow(group)
    shortcomings.assess(group.gangs["default/a"])
    shortcomings.forget(group)
    assert list(shortcomings.reworded()) == []
