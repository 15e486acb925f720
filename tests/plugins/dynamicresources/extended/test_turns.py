"""Devices of a class are counted in turns: a class event has so many steps, whatever its selectors are."""

from dataclasses import dataclass, field

import pytest

from koordsched.api.decoding import convert
from koordsched.api.resource import ResourceSlice
from koordsched.plugins.dynamicresources.classselectors import MOST_COST, MOST_EXCEEDED, ClassSelectors
from koordsched.plugins.dynamicresources.extended import DeviceCounts
from koordsched.plugins.dynamicresources.extended.devicecounts import MOST_STEPS
from koordsched.plugins.dynamicresources.structured import Features
from koordsched.plugins.shared.extendedresources import ExtendedResources
from tests.plugins.dynamicresources.extended.objects import GATES, device_class, resource_slice
from tests.plugins.harness import Bench
from tests.plugins.objects import node

GPU = "x.io/gpu"
NODES, EACH = 80, 125
NUMBERS = "[" + ",".join(map(str, range(10))) + "]"
"""Each device has a uuid of its own, so no two are equal to an expression that reads it."""
HARMLESS = "device.attributes['drv'].model == 'h100'"
BY_UUID = "device.attributes['drv'].uuid.startsWith('u-')"
SLOW_BY_UUID = f"{NUMBERS}.all(x, {NUMBERS}.all(y, device.attributes['drv'].uuid != string(x + y)))"
HOSTILE = f"{NUMBERS}.all(a, {NUMBERS}.all(b, {NUMBERS}.all(c, {NUMBERS}.all(d, device.attributes['drv'].uuid != ''))))"
SLICES = [
    convert(
        resource_slice(
            f"s{at}",
            [
                (f"d{i}", {"attributes": {"uuid": {"string": f"u-{at}-{i}"}, "model": {"string": "h100"}}})
                for i in range(EACH)
            ],
            pool=f"n{at}",
            nodeName=f"n{at}",
        ),
        ResourceSlice,
    )
    for at in range(NODES)
]


@dataclass
class Turns:
    """10,000 devices, and the turns that are due."""

    due: list = field(default_factory=list)

    def __post_init__(self):
        bench = Bench(*(node(f"n{at}") for at in range(NODES)))
        bench.handle.features = GATES
        self.bench = bench
        self.selectors = ClassSelectors(Features())
        extended = ExtendedResources.shared(bench.handle)
        self.counts = DeviceCounts(
            bench.cluster.table,
            extended.classes,
            self.selectors.select,
            lambda: SLICES,
            lambda: self.selectors.steps,
            self.due.append,
        )
        extended.scored(GPU)
        extended.count_with(self.counts)

    def classed(self, expression):
        """The steps of the class's event, and of each turn after that, until all is counted or there were 50."""
        thing = device_class("a", GPU)
        thing["spec"]["selectors"] = [{"cel": {"expression": expression}}]
        turns = [self._steps(lambda: self.bench.add(thing))]
        while self.due and len(turns) < 50:
            assert len(self.due) == 1
            turns.append(self._steps(self.due.pop()))
        return turns

    def _steps(self, work):
        before = self.selectors.steps
        work()
        return self.selectors.steps - before

    def total(self):
        devices, _ = self.counts.on_rows(GPU, self.bench.rows)
        return int(devices.sum())


@pytest.mark.parametrize(
    ("expression", "turns", "devices"),
    [(HARMLESS, 5, NODES * EACH), (BY_UUID, range(2, 40), NODES * EACH), (HOSTILE, range(2, 20), 0)],
)
def test_no_turn_takes_more_steps_than_it_may(expression, turns, devices):
    there = Turns()
    taken = there.classed(expression)
    assert max(taken) <= MOST_STEPS + MOST_COST + len(expression) + 100
    assert len(taken) in (turns if isinstance(turns, range) else (turns,))
    assert there.total() == devices
    assert not there.due


def test_selectors_that_are_slow_but_not_hostile_are_counted_turn_by_turn():
    there = Turns()
    taken = there.classed(SLOW_BY_UUID)
    assert len(taken) == 50
    assert max(taken) <= MOST_STEPS + MOST_COST
    counted = there.total()
    assert 50 < counted < NODES * EACH
    assert counted % EACH == 0


def test_a_class_that_changes_meanwhile_is_counted_by_its_new_selectors():
    there = Turns()
    there.classed(SLOW_BY_UUID)
    assert there.due
    there.classed(HARMLESS)
    assert there.total() == NODES * EACH
    assert not there.due


def test_a_selector_that_always_costs_too_much_is_given_up():
    there = Turns()
    there.classed(HOSTILE)
    assert there.selectors.steps < (MOST_EXCEEDED + 1) * (MOST_COST + 100) + 20 * NODES * EACH


def test_a_selector_that_does_not_compile_is_compiled_once(monkeypatch):
    from koordsched.plugins.dynamicresources import cel

    compiled = []
    original = cel.compile
    monkeypatch.setattr(cel, "compile", lambda *given: compiled.append(given) or original(*given))
    there = Turns()
    there.classed("device.attributes['drv'].uuid == 1 +")
    assert len(compiled) == 1
    assert there.total() == 0
