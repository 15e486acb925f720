"""A plugin that refuses or delays pods as a test tells it."""

import pytest

from koordsched.framework import profile as profile_module
from koordsched.framework.interface import Permit, Reserve
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.plugins import IN_TREE


class Picky(Reserve, Permit):
    """Refuses at Reserve, or makes pods wait at Permit, as told. `spared`: names of pods that it does not refuse."""

    name = "Picky"

    def __init__(self, args, handle):
        self.unreserved = []
        self.reserve_status = SUCCESS
        self.spared = frozenset()
        self.wait = 0.0

    def events_to_register(self):
        return []

    def reserve(self, cycle, pod, row):
        return self.reserve_status if pod.name not in self.spared else SUCCESS

    def unreserve(self, cycle, pod, row):
        self.unreserved.append(pod.key)

    def permit(self, cycle, pod, row):
        return (Status(Code.WAIT), self.wait) if self.wait else (SUCCESS, 0.0)


@pytest.fixture
def picky(monkeypatch):
    """Adds the plugin Picky to every profile."""
    made = []

    def factory(args, handle):
        made.append(Picky(args, handle))
        return made[-1]

    original = profile_module.Profile.__init__

    def init(self, spec, registry, handle):
        points = {
            point: (*names, "Picky") if point in ("reserve", "permit") else names
            for point, names in spec.points.items()
        }
        spec = profile_module.ProfileSpec(spec.name, points, spec.weights, spec.args)
        original(self, spec, {**IN_TREE, "Picky": factory}, handle)

    monkeypatch.setattr(profile_module.Profile, "__init__", init)
    return made
