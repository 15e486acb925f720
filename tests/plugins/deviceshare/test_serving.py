"""How many pods a node can serve one after the other: as many as Reserve finds devices for."""

from copy import deepcopy
from random import Random

import numpy as np
import pytest

from koordsched.framework.status import PASS
from koordsched.plugins.deviceshare.serving import Serving
from tests.parity.fresh import fresh_seeds
from tests.plugins.deviceshare.machines import GIB, g8, h8, m2, node, pod, used, used_nic
from tests.plugins.deviceshare.world import World

JOINT = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
VF = {"rdma": {"vfSelector": {}}}
WISHES = (
    {"gpu": 100},
    {"gpu": 200},
    {"gpu": 60},
    {"gpu": 25},
    {"core": 30, "memory": 20 * GIB},
    {"gpu": 200, "partition": {}},
    {"gpu": 100, "rdma": 1, "joint": JOINT, "hints": VF},
    {"rdma": 50},
    {"shared": 2, "core": 100, "ratio": 100},
    {},
)


def honoring(name):
    return h8(name, policy="Honor", nics=True)


def bare(name):
    return [node(name)]


def random_things(rng):
    things = []
    for number in range(6):
        name = f"n{number}"
        machine = rng.choice([g8, honoring, h8, m2, bare])
        things += machine(name)
        if machine in (g8, h8):
            share = rng.choice([100, 50, 30])
            busy = rng.sample(range(8), rng.choice([0, 1, 3, 6]))
            things += [used(minor, node=name, share=share) for minor in busy]
        if machine is g8 and rng.random() < 0.5:
            things.append(used_nic(rng.choice([1, 2, 3, 4]), rng.choice([1, 100]), node=name))
    return things


def placed_one_by_one(world, pods, name):
    """How many get their devices on a node when each is reserved after the other."""
    for number, thing in enumerate(pods):
        if not isinstance(world.place(thing, name), dict):
            return number
    return len(pods)


def named(thing, name):
    thing = deepcopy(thing)
    thing["metadata"] |= {"name": name, "uid": name}
    return thing


@pytest.mark.parametrize("seed", fresh_seeds("served by devices", 25))
def test_as_many_as_reserve_finds_devices_for(seed):
    rng = Random(seed)
    things, args = random_things(rng), {"improvedAllocation": rng.random() < 0.5}
    world = World(*things, args=args)
    rows = np.array(sorted(world.table.row_of.values()), dtype=np.intp)
    for _ in range(4):
        first, second = pod("first", **rng.choice(WISHES)), pod("second", **rng.choice(WISHES))
        ahead, most = rng.choice([0, 0, 1, 2]), rng.choice([1, 3, 20])
        books = world.books()
        shapes = [world.pod(thing).shape for thing in (first, second)]
        numbers, codes = world.plugin.served([(shapes[0], ahead)], shapes[1], rows, most)
        assert world.books() == books
        assert np.array_equal(codes == PASS, numbers == most)
        for row, number in zip(rows.tolist(), numbers.tolist(), strict=True):
            name = world.table.names[row]
            other = World(*things, args=args)
            before = [named(first, f"first-{at}") for at in range(ahead)]
            if placed_one_by_one(other, before, name) < ahead:
                assert number == (0 if world.plugin.compiled.of(shapes[1]).types else most)
                continue
            pods = [named(second, f"second-{at}") for at in range(most)]
            assert placed_one_by_one(other, pods, name) == number, (name, first, second)


def test_nodes_in_the_same_state_are_tried_once(monkeypatch):
    world = World(*(thing for number in range(40) for thing in g8(f"n{number}")), used(3, node="n7"))
    tried = []
    original = Serving._count
    monkeypatch.setattr(Serving, "_count", lambda self, *args: tried.append(args) or original(self, *args))
    rows = np.arange(40, dtype=np.intp)
    shape = world.pod(pod(gpu=200)).shape
    for most, expected, times in ((3, {3}, 2), (9, {3, 4}, 4), (20, {3, 4}, 4), (2, {2}, 4)):
        numbers, codes = world.plugin.served([], shape, rows, most)
        assert set(numbers.tolist()) == expected
        assert np.array_equal(codes == PASS, numbers == most)
        assert len(tried) == times


@pytest.mark.parametrize(("rows", "wanted"), [(2, pod()), (0, pod(gpu=200)), (0, pod())])
def test_without_a_device_or_a_node_nothing_is_tried(rows, wanted, monkeypatch):
    world = World(*g8("n0"), *g8("n1"))
    monkeypatch.setattr(Serving, "_count", lambda *args: pytest.fail("tried"))
    numbers, codes = world.plugin.served([], world.pod(wanted).shape, np.arange(rows, dtype=np.intp), 3)
    assert (numbers.tolist(), codes.tolist()) == ([3] * rows, [PASS] * rows)
