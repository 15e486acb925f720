"""What is kept up to date event by event is what is found from the beginning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.plugins.dynamicresources.structured import Allocator, DevicesInUse, SliceIndex
from tests.depth import quick_first
from tests.plugins.dynamicresources.structured import randomworlds
from tests.plugins.dynamicresources.structured.test_against_naive import change
from tests.plugins.dynamicresources.structured.world import Json, PythonExpressions, World, counters, request, taking


def rebuilt(world: World) -> tuple[DevicesInUse, Allocator]:
    """The same cluster from its objects: slices and claims first, nodes last."""
    in_use = DevicesInUse(world.features)
    index = SliceIndex(world.features, in_use)
    for holder, given in reversed(list(world.in_use._held.items())):
        in_use.put(holder, given)
    for wire in world.wire_slices():
        index.put_slice(wire)
    for row, (name, labels) in enumerate(world.nodes.items()):
        index.put_node(row, convert({"metadata": {"name": name, "labels": labels}}, core.Node))
    return in_use, Allocator(index, PythonExpressions(), world.features, lambda: "share")


def in_use_of(in_use: DevicesInUse) -> dict[object, object]:
    """Everything that is known to be in use."""
    return {
        key: (
            dict(pool.exclusive),
            {name: (pool.share_ids(name), pool.consumed(name)) for name in pool.shares},
        )
        for key, pool in in_use.pools.items()
    }


@pytest.mark.parametrize("start", quick_first(range(0, 120, 20), 3))
def test_kept_is_as_rebuilt(start: int) -> None:
    for seed in range(start, start + 20):
        rng = Random(seed)
        world = randomworlds.world(rng)
        asked = [randomworlds.claims(rng) for _ in range(3)]
        rows = np.arange(len(world.nodes))
        for step in range(12):
            change(rng, world, step)
            in_use, allocator = rebuilt(world)
            assert in_use_of(world.in_use) == in_use_of(in_use)
            for claims in asked:
                kept = world.allocator.verdicts(world.demand(*claims), rows)
                fresh = allocator.verdicts(allocator.demand(claims, world.classes.get), rows)
                assert kept.outcomes.tolist() == fresh.outcomes.tolist(), (seed, step)
                assert kept.scores.tolist() == fresh.scores.tolist(), (seed, step)


def fleet(nodes: int) -> World:
    """Machines with eight devices that differ in names and in an attribute that no claim reads."""
    world = World(nodes={f"n{at}": {} for at in range(nodes)})
    for at in range(nodes):
        devices = [{"name": f"gpu-{index}", "attributes": {"uuid": {"string": f"{at}-{index}"}}} for index in range(8)]
        world.slice(f"s{at}", *devices, pool=f"n{at}", nodeName=f"n{at}")
    return world


def test_nodes_that_are_alike_are_searched_once() -> None:
    world = fleet(40)
    rows = np.arange(40)
    demand = world.demand(request(selector="device.driver == 'drv'"))
    assert not world.allocator.verdicts(demand, rows).outcomes.any()
    assert world.expressions.evaluated == 1
    known = world.allocator._of(demand)
    assert len(known.answers.by_state) == 1
    world.use({"request": "r", "driver": "drv", "pool": "n7", "device": "gpu-0"})
    assert not world.allocator.verdicts(demand, rows).outcomes.any()
    assert len(known.answers.by_state) == 2
    uuid = world.demand(request(selector="device.attributes['drv'].uuid != 'x'"))
    assert not world.allocator.verdicts(uuid, rows).outcomes.any()
    assert len(world.allocator._of(uuid).answers.by_state) == 40


def test_a_slice_touches_the_nodes_that_it_names() -> None:
    world = fleet(40)
    world.index.refresh()
    serial, epoch = world.index.serial, world.index.epoch
    world.slice("more", "x0", pool="extra", nodeName="n3")
    world.index.refresh()
    assert set(world.index.changed_since(serial) or ()) == {3}
    assert world.index.epoch == epoch


ALL = {0, 1, 2, 3, 4, 5}


def of_six_nodes(devices: Callable[[int], Sequence[str | Json]]) -> World:
    """A pool with a slice for each of six nodes; `devices`: of the node of a number."""
    world = World(nodes={f"n{at}": {} for at in ALL})
    for at in ALL:
        world.slice(f"s{at}", *devices(at), nodeName=f"n{at}")
    return world


def touched_by_use_of(world: World, device: str) -> set[int]:
    """The rows that change when a device comes in use."""
    world.index.refresh()
    serial = world.index.serial
    world.use(device)
    world.index.refresh()
    return set(world.index.changed_since(serial) or ())


def test_a_device_in_use_touches_the_nodes_of_a_pool_that_have_it() -> None:
    world = of_six_nodes(lambda at: (f"own-{at}", "each"))
    world.slice("fabric", "everywhere", allNodes=True)
    for device, touched in (("own-3", {3}), ("each", ALL), ("everywhere", ALL), ("none", set())):
        assert touched_by_use_of(world, device) == touched
    assert world.got(request(), node="n2") == ["own-2"]
    assert world.got(request(), node="n3") is None
    world.slice("more", "late", nodeName="n3")
    assert touched_by_use_of(world, "late") == {3}


def test_a_device_in_use_touches_all_nodes_that_share_counters_with_it() -> None:
    world = of_six_nodes(lambda at: (taking(f"part-{at}", 30),))
    world.slice("counters", sharedCounters=counters(40))
    assert world.got(request(), node="n2") == ["part-2"]
    assert touched_by_use_of(world, "part-3") == ALL
    assert world.got(request(), node="n2") is None


def test_claims_of_one_template_share_what_is_known() -> None:
    world = fleet(4)
    first = world.demand(request())
    assert world.demand(request()).prepared is first.prepared
    assert world.demand(request(number=2)).prepared is not first.prepared
    world.add_class("dc", "true")
    assert world.demand(request()).prepared is not first.prepared


def test_old_demands_are_forgotten() -> None:
    world = fleet(4)
    world.allocator._budget = 100_000
    rows = np.arange(4)
    first = world.demand(request(selector="device.driver != '0'"))
    for number in range(1, 50):
        demand = world.demand(request(selector=f"device.driver != '{number}'"))
        assert not world.allocator.verdicts(demand, rows).outcomes.any()
    assert len(world.allocator._known) < 20
    assert not world.allocator.verdicts(first, rows).outcomes.any()


def test_large_demands_take_more_of_the_budget() -> None:
    world = fleet(4)
    world.allocator._budget = 4_000_000
    for number in range(50):
        world.demand(request(selector=f"device.driver != '{number}{'x' * 100_000}'"))
    assert len(world.allocator._known) < 8


def test_nodes_come_and_go() -> None:
    world = fleet(3)
    rows = np.arange(3)
    demand = world.demand(request())
    assert not world.allocator.verdicts(demand, rows).outcomes.any()
    world.index.remove_node(1)
    assert world.allocator.verdicts(demand, rows).outcomes.tolist() == [0, 1, 0]
    world.index.put_node(1, convert({"metadata": {"name": "other"}}, core.Node))
    assert world.allocator.verdicts(demand, rows).outcomes.tolist() == [0, 1, 0]
    world.slice("new", "d0", nodeName="other")
    assert world.allocator.verdicts(demand, rows).outcomes.tolist() == [0, 0, 0]


def test_selectors_that_are_gone_are_forgotten() -> None:
    world = World(nodes={"n1": {"rack": "r1"}})
    rows, demand = np.arange(1), world.demand(request())
    for number in range(600):
        expressions = [{"key": "rack", "operator": "In", "values": ["r1", f"other-{number}"]}]
        world.slice("s", "d0", nodeSelector={"nodeSelectorTerms": [{"matchExpressions": expressions}]})
        assert world.allocator.verdicts(demand, rows).outcomes.tolist() == [0]
    entry = world.index.node(0)
    assert entry is not None
    assert len(entry.matched) < 300


def test_names_of_nodes_that_are_gone_are_forgotten() -> None:
    world = fleet(2)
    for number in range(100):
        world.slice("s", "d0", pool="late", nodeName=f"gone-{number}")
        world.index.refresh()
    assert set(world.index._named) == {"n0", "n1", "gone-99"}
