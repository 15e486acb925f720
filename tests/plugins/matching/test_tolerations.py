"""Tolerations are looked up: what a taint costs does not grow with their number."""

from random import Random

import pytest

from koordsched.api.core import Taint, Toleration
from koordsched.plugins.shared.matching.tolerations import Tolerations
from tests.reference.taints import tolerates, untolerated

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def taint(rng):
    return {"key": rng.choice("ab"), "value": rng.choice(("", "x", "y")), "effect": rng.choice(EFFECTS)}


def toleration(rng):
    return {
        "key": rng.choice(("", "a", "b")),
        "operator": rng.choice(("", "Equal", "Exists", "Gt", "Lt")),
        "value": rng.choice(("", "x", "y")),
        "effect": rng.choice(("", *EFFECTS)),
    }


@pytest.mark.parametrize("seed", range(20))
def test_taints_are_tolerated_as_by_the_reference(seed):
    rng = Random(seed)
    for _ in range(200):
        wire = [toleration(rng) for _ in range(rng.choice((0, 1, 1, 2, 5)))]
        taints = [taint(rng) for _ in range(rng.randint(0, 4))]
        tolerations = Tolerations(Toleration(**each) for each in wire)
        asked = [Taint(**each) for each in taints]
        assert [tolerations.tolerate(each) for each in asked] == [
            any(tolerates(own, each) for own in wire) for each in taints
        ]
        keeping = untolerated({"spec": {"tolerations": wire}}, taints, ("NoSchedule", "NoExecute"))
        assert list(tolerations.turned_away_by(asked)) == [Taint(**each) for each in keeping]
        assert tolerations.turned_away(asked) == bool(keeping)
        unwelcome = untolerated({"spec": {"tolerations": wire}}, taints, ("PreferNoSchedule",))
        assert tolerations.count_unwelcome(asked) == len(unwelcome)


class Counted:
    """A taint or a toleration that counts how often it is looked at."""

    looks = 0

    def __init__(self, number, *, operator=""):
        self.value, self.effect, self.operator = f"v{number}", "NoSchedule", operator

    @property
    def key(self):
        Counted.looks += 1
        return "k"


def test_ten_thousand_tolerations_are_not_asked_one_by_one_about_ten_thousand_taints():
    Counted.looks = 0
    tolerations = Tolerations([Counted(i) for i in range(10_000)])
    assert not tolerations.turned_away([Counted(i) for i in range(10_000)])
    assert Counted.looks <= 40_000
