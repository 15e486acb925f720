"""L3: devices and pools whose errors end the attempt, passed over by lenient demands (dra spec 6)."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from koordsched.plugins.dynamicresources.structured import AllocationError
from tests.depth import quick_first
from tests.plugins.dynamicresources.structured import randomworlds
from tests.plugins.dynamicresources.structured.naive import Failed, Naive
from tests.plugins.dynamicresources.structured.test_against_naive import change, naive, ours
from tests.plugins.dynamicresources.structured.world import (
    World,
    alternative,
    claim,
    counters,
    device,
    either,
    request,
)

K = "device.attributes['drv'].k == 1"


def both_ways(world: World, *claims: object, error: str = "") -> list[str] | None:
    """What a lenient demand gets where another one fails with `error`."""
    with pytest.raises(AllocationError) as raised:
        world.got(*claims)  # type: ignore[arg-type]
    assert error in str(raised.value)
    world.lenient = True
    found = world.got(*claims)  # type: ignore[arg-type]
    world.lenient = False
    with pytest.raises(AllocationError):
        world.got(*claims)  # type: ignore[arg-type]
    return found


def why(world: World, *claims: object, node: int = 0) -> list[str]:
    """The explanation of a lenient demand."""
    world.lenient = True
    demand = world.demand(*claims)  # type: ignore[arg-type]
    return [each.text for each in world.allocator.explain(demand, node)]


def test_dra_case_12_all_devices_beside_an_incomplete_or_invalid_pool_of_another_driver() -> None:
    for devices, of, state in ((["d0"], 2, "being updated"), (["d0", "d0"], 1, "invalid")):
        world = World()
        world.slice("a", *devices, driver="other", pool="a", of=of)
        world.slice("b", "d0", pool="b")
        world.add_class("mine", "device.driver == 'drv'")
        text = f"asks for all devices, but resource pool other/a is currently {state}"
        assert both_ways(world, request(number=0, of="mine"), error=text) == ["drv/b/d0"]


def test_all_devices_are_not_some_of_them() -> None:
    world = World()
    world.slice("a", "d0", pool="a", of=2)
    world.slice("b", "d0", pool="b")
    assert both_ways(world, request(number=0), error="drv/a is currently being updated") is None
    assert why(world, request(number=0)) == [
        "claim default/c, request r: needs all, 0 available, 1 of a driver that has a pool which is not in order"
    ]


def test_an_alternative_for_all_devices_that_cannot_be_told_leaves_the_next_one() -> None:
    world = World()
    world.slice("a", "d0", pool="a", of=2)
    world.slice("b", "d0", pool="b")
    asked = claim(either("r", alternative("x", 0), alternative("y")))
    assert both_ways(world, asked, error="request x: asks for all devices") == ["r/y=drv/b/d0"]


def test_dra_case_18_more_devices_of_the_node_than_a_claim_may_have() -> None:
    text = "claim default/c: number of requested devices 33 exceeds the claim limit of 32"
    world = World()
    world.slice("s1", *(f"d{index}" for index in range(33)))
    world.slice("s2", "e0", nodeName="n2", pool="q")
    assert both_ways(world, request(number=0), error=text) is None
    assert why(world, request(number=0)) == [
        "claim default/c, request r: needs all, 0 available, 33 too many for one claim"
    ]
    assert world.got(request(number=0), node="n2") == ["drv/q/e0"]


def test_what_a_claim_asks_for_on_every_node_stays_an_error() -> None:
    world = World()
    world.lenient = True
    world.slice("s1", *(f"d{index}" for index in range(40)))
    for asked in (claim(request(number=33)), claim(request("a", 16), request("b", 17))):
        with pytest.raises(AllocationError, match="number of requested devices 33 exceeds the claim limit of 32"):
            world.got(asked)
    with pytest.raises(AllocationError, match="CEL compile error: compilation failed"):
        world.got(request(selector="error"))


def test_dra_case_35_a_selector_that_fails_on_a_device() -> None:
    world = World()
    world.slice("s1", device("d0", {"m": "x"}), device("d1", {"k": 1}), device("d2", {"k": 2}))
    text = "claim default/c: selector #0: CEL runtime error: no such key: k"
    assert both_ways(world, request(selector=K), error=text) == ["d1"]
    assert both_ways(world, request(number=0, selector=K), error=text) == ["d1"]
    assert why(world, request(number=2, selector=K)) == [
        f"claim default/c, request r: needs 2, 1 available, 1 not selected, 1 with a selector that fails ({text})"
    ]


def test_dra_case_55_counters_of_another_nodes_pool() -> None:
    world = World()
    world.slice("c", nodeName="n2", pool="n2", of=2, sharedCounters=counters(40))
    world.slice("x", "x", pool="n1")
    assert both_ways(world, request(number=0), error="drv/n2 is currently being updated") == ["drv/n1/x"]


def test_dra_case_63_devices_that_do_not_go_together() -> None:
    world = World()
    world.slice("s1", device("d0", {"numa": 0}), device("d1", {"numa": 1}))
    constraints = [{"requests": [], "matchAttribute": "drv/numa"}]
    text = "cannot add device drv/p/d1 because a claim constraint would not be satisfied"
    assert both_ways(world, claim(request(number=0), constraints=constraints), error=text) is None
    asked = claim(either("r", alternative("x", 0), alternative("y")), constraints=constraints)
    assert both_ways(world, asked, error=text) == ["r/y=d0"]


def test_nodes_that_differ_by_the_driver_of_a_broken_pool_are_answered_apart() -> None:
    world = World()
    world.lenient = True
    for node, driver in (("n1", "drv"), ("n2", "other"), ("n3", "other")):
        world.slice(f"a-{node}", "d0", driver=driver, pool=f"a-{node}", of=2, nodeName=node)
        world.slice(f"b-{node}", "d0", pool=f"b-{node}", nodeName=node)
    outcomes = world.allocator.verdicts(world.demand(request(number=0)), np.arange(3)).outcomes.tolist()
    assert outcomes == [1, 0, 0]
    assert [world.got(request(number=0), node=node) for node in world.nodes] == [None, ["drv/b-n2/d0"], ["drv/b-n3/d0"]]


class _Lenient(Naive):
    """The naive search, which passes over what fails."""

    def _selectable(self, want, pool, part, device):  # type: ignore[no-untyped-def]
        try:
            return super()._selectable(want, pool, part, device)
        except Failed as failure:
            if "compile error" in str(failure):
                raise
            return False

    def _all(self, want):  # type: ignore[no-untyped-def]
        partial = {
            pool.driver
            for pool in self.pools
            if pool.state != "usable"
            and any(self._sees(part, each) for part in pool.slices for each in part.spec.devices)
        }
        pools, self.pools = self.pools, [pool for pool in self.pools if pool.state == "usable"]
        found = super()._all(want)
        self.pools = pools
        return [] if any(pool.driver in partial for pool, _, _ in found) else found

    def _sees(self, part, each):  # type: ignore[no-untyped-def]
        return not part.spec.per_device_node_selection or self._reaches(each)

    _searching = False

    def _number(self, want):  # type: ignore[no-untyped-def]
        # All devices of a node count for the limit when they are taken, not before.
        return super()._number(want) if self._searching or want.wire.allocation_mode != "All" else 0

    def _go(self, at, score):  # type: ignore[no-untyped-def]
        self._searching = True
        return super()._go(at, score)

    def _everything(self, want, at, score):  # type: ignore[no-untyped-def]
        before = len(self.picked)
        try:
            return super()._everything(want, at, score)
        except Failed as failure:
            if not str(failure).startswith("constraint"):
                raise
            del self.picked[before:]
            return None


@pytest.mark.parametrize("start", quick_first(range(0, 60, 20), 1))
def test_same_devices_as_the_naive_search(start: int) -> None:
    seen: set[str] = set()
    for seed in range(start, start + 20):
        rng = Random(seed)
        world = randomworlds.world(rng)
        world.lenient = True
        kept = [randomworlds.claims(rng) for _ in range(3)]
        for step in range(4):
            for node in world.nodes:
                for claims in kept:
                    expected, found = naive(world, node, claims, _Lenient), ours(world, node, claims)
                    assert expected in (found, "too hard"), (seed, step, node)
                    seen.add(found if isinstance(found, str) else "found")
            change(rng, world, step)
    assert seen >= {"found", "none"}
