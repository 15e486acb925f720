"""Starts in any order of lists; Devices that come late, go and come back while pods run."""

import asyncio
import json
from itertools import permutations
from random import Random

import pytest

from tests.depth import quick_first
from tests.embedded import scheduler_on
from tests.plugins.deviceshare.columns import row_state
from tests.plugins.deviceshare.machines import bound, device, g8, gpu, h8, m2, nic, node, pod, used, used_nic
from tests.plugins.deviceshare.naive.books import held_by
from tests.plugins.deviceshare.naive.request import ALLOCATED, RDMA
from tests.plugins.deviceshare.randomstates import random_state
from tests.plugins.deviceshare.world import World, configuration, profile
from tests.plugins.loadaware.running import api_server, remove, where
from tests.plugins.nodenumaresource.running import put, replace
from tests.virtualtime import run

VF = "0000:1f:00.2"
HOLDER = bound(pod(rdma=1), "holder", rdma=[(1, {"rdma": 1})])
HOLDER["metadata"]["annotations"][ALLOCATED] = json.dumps(
    {"rdma": [{"minor": 1, "resources": {RDMA: "1"}, "extension": {"vfs": [{"minor": -1, "busID": VF}]}}]}
)
GONE = device(gpu(0), name="gone")
LISTS = {
    "nodes": [g8(numa_policy="Restricted")[0], h8("h")[0], m2("m")[0], node("bare")],
    "Devices": [g8()[-1], h8("h")[-1], m2("m")[-1], GONE],
    "reports": [g8(numa_policy="Restricted")[1]],
    "pods": [
        used(0, 3),
        used(5, share=25),
        {**used(1, node="h"), "metadata": {**used(1, node="h")["metadata"], "name": "other", "uid": "other"}},
        used(1, node="h", share=50),
        used_nic(2),
        HOLDER,
        used(0, node="bare"),
        used(0, node="gone"),
    ],
}


def in_order(order):
    return World(*(thing for name in order for thing in LISTS[name]))


@pytest.mark.parametrize("order", list(permutations(LISTS)), ids="-".join)
def test_lists_may_come_in_any_order(order):
    assert in_order(order).books() == in_order(LISTS).books()


def test_the_columns_are_what_the_objects_say():
    world = in_order(("pods", "Devices", "reports", "nodes"))
    books = world.books()
    gib = 1 << 30
    assert books["n"]["used"] == {
        ("gpu", 0): [100, 80 * gib, 100, 0, 0, 0],
        ("gpu", 3): [100, 80 * gib, 100, 0, 0, 0],
        ("gpu", 5): [25, 20 * gib, 25, 0, 0, 0],
        ("rdma", 1): [1],
        ("rdma", 2): [100],
    }
    assert books["n"]["functions"] == {("rdma", 1): {VF}}
    assert books["n"]["holders"] == 4
    assert books["h"]["used"]["gpu", 1] == [150, 120 * gib, 150, 0, 0, 0], "given out twice is counted twice"
    assert books["bare"]["offered"] == {}
    assert books["bare"]["used"]["gpu", 0][:1] == [100], "though nothing is known of its devices"
    world.put(node("gone"))
    assert world.books()["gone"]["used"]["gpu", 0][:1] == [100]
    assert world.books()["gone"]["offered"]["gpu", 0][:1] == [100]


@pytest.mark.parametrize("seed", quick_first(range(40), 6))
def test_any_order_of_events(seed):
    """Random states, object by object; some objects come twice, some go and come back."""
    rng, state = Random(seed), random_state(seed)
    more = {"args": state.args, "numa_args": {}}
    expected = World(*state.objects, **more).books()
    assert any(each["holders"] for each in expected.values())
    for _ in range(3):
        world = World(*rng.sample(state.objects, len(state.objects)), **more)
        assert world.books() == expected
        for thing in rng.sample(state.objects, len(state.objects) // 2):
            if rng.random() < 0.5:
                world.remove(thing)
            world.put(thing)
        assert world.books() == expected


def test_nothing_is_left_of_a_node_that_is_gone():
    """Its row is used for another node."""
    for order in permutations(("node", "device", "pods")):
        world = in_order(LISTS)
        row = world.row()
        things = {
            "node": [LISTS["nodes"][0]],
            "device": [LISTS["Devices"][0]],
            "pods": [thing for thing in LISTS["pods"] if thing["spec"]["nodeName"] == "n"],
        }
        for name in order:
            for thing in things[name]:
                world.remove(thing)
        world.put(node("another"))
        assert world.row("another") == row
        assert world.books()["another"] == World(node("another")).books()["another"]
        world.put(m2("another")[-1])
        assert world.books()["another"] == World(*m2("another")).books()["another"]


# --- Devices that change while pods run ---------------------------------------------------------------


def test_a_device_that_is_gone_and_comes_back():
    """What pods hold is not forgotten; meanwhile no pod gets anything."""
    world = World(*m2(), used(0, memory="8Gi"))
    world.remove(m2()[-1])
    assert world.verdicts(pod(gpu=50))["n"] == ("DeviceShare", "Unschedulable", "Insufficient gpu devices")
    world.put(m2()[-1])
    assert world.place(pod(gpu=100)) == {"gpu": [1]}
    assert world.verdicts(pod("q", gpu=10))["n"][1:] == ("Unschedulable", "Insufficient gpu devices")


def test_fewer_devices_than_pods_hold():
    world = World(*g8(), used(6), used(7, share=50))
    world.put(device(*(gpu(minor) for minor in range(2))))
    assert world.place(pod(nvidia=2), keep=False) == {"gpu": [0, 1]}
    assert world.verdicts(pod(nvidia=3))["n"][1] == "Unschedulable"
    world.put(device(*(gpu(minor) for minor in (0, 1, 6, 7))))
    assert world.place(pod(nvidia=2), keep=False) == {"gpu": [0, 1]}
    assert world.verdicts(pod(nvidia=3))["n"][1] == "Unschedulable"
    world.remove(used(6))
    assert world.place(pod(nvidia=3), keep=False) == {"gpu": [0, 1, 6]}
    world.put(g8()[-1])
    assert world.books() == World(*g8(), used(7, share=50)).books()


def test_memory_that_becomes_less():
    world = World(*m2(), used(0, share=50, memory="8Gi"))
    world.put(device(gpu(0, "2Gi"), gpu(1, "2Gi")))
    assert world.place(pod(memory=1 << 30), keep=False) == {"gpu": [1]}, "of the other more is used than there is"
    world.put(m2()[-1])
    world.put(used(1, memory="8Gi"))
    assert world.place(pod(memory=4 << 30), keep=False) == {"gpu": [0]}


@pytest.mark.parametrize("seed", range(6))
def test_new_pods_never_get_devices_that_pods_hold(seed):
    """The node has other devices every time; some fail, some Devices are deleted."""
    rng, world = Random(seed), World(node(), device(gpu(0)))
    held, placed = {}, 0
    for at in range(80):
        kind = rng.randrange(8)
        if kind == 0:
            world.remove(device())
        elif kind < 4:
            gpus = [gpu(minor, health=rng.random() < 0.8) for minor in range(rng.randint(0, 8))]
            world.put(device(*gpus, *(nic(minor, functions=2) for minor in range(rng.randint(0, 3)))))
        elif held and rng.random() < 0.5:
            world.remove(held.pop(rng.choice(sorted(held))))
        wanted = pod(f"p{at}", **rng.choice([{"nvidia": 1}, {"nvidia": 2}, {"rdma": 100}]))
        taken = {(kind, each["minor"]) for thing in held.values() for kind, e in held_by(thing).items() for each in e}
        reported = world.plugin.nodes.of_node("n").reading.equipment.devices
        healthy = {
            (kind, place.minor)
            for kind, places in zip(("gpu", "rdma"), reported, strict=False)
            for place in places
            if place.amounts
        }
        if world.verdicts(wanted)["n"] == () and world.plugin.knows(world.row()):
            given = {(kind, minor) for kind, minors in world.place(wanted, keep=False).items() for minor in minors}
            assert given <= healthy - taken
            share = {"gpu": {"core": 100, "ratio": 100}, "rdma": {"rdma": 100}}
            listed = {kind: [(minor, share[kind]) for of, minor in sorted(given) if of == kind] for kind, _ in given}
            held[f"p{at}"] = bound(wanted, f"p{at}", **listed)
            world.put(held[f"p{at}"])
            placed += 1
    assert placed > 8


# --- the real scheduler --------------------------------------------------------------------------------

DOCUMENT = configuration(profile(name="default-scheduler"))


def readings(running):
    """What is given and there, by node."""
    columns = running.scheduler.profiles["default-scheduler"].plugins["DeviceShare"].columns
    return {name: row_state(columns, row) for name, row in running.scheduler.cluster.table.row_of.items()}


def waiting(name, **amounts):
    """A pod for the scheduler."""
    made = pod(name, **amounts)
    del made["metadata"]["uid"]
    made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100m"
    return {**made, "spec": {**made["spec"], "schedulerName": "default-scheduler"}}


def test_restarts_forget_nothing():
    """Five lives; in each pods come and go. No device is given twice, and what is counted is the same after a start."""

    async def scenario():
        embedded = api_server(*g8("a"), *h8("b"))
        before = None
        for life in range(5):
            async with scheduler_on(embedded, DOCUMENT) as running:
                await asyncio.sleep(1)
                assert before is None or readings(running) == before
                for at in range(3):
                    put(embedded, waiting(f"p{life}-{at}", gpu=100))
                put(embedded, waiting(f"s{life}", gpu=40, rdma=30))
                if life:
                    remove(embedded, waiting(f"p{life - 1}-0"))
                await asyncio.sleep(15)
                before = readings(running)
            pods = embedded.registry.list(embedded.resource("Pod"))
            amounts = {}
            for thing in pods:
                for kind, entries in held_by(thing).items():
                    for entry in entries:
                        key = thing["spec"]["nodeName"], kind, entry["minor"]
                        share = entry["resources"].get("koordinator.sh/gpu-memory-ratio", entry["resources"].get(RDMA))
                        amounts[key] = amounts.get(key, 0) + share
            assert max(amounts.values()) <= 100, "given twice"
        return sum(bool(thing["spec"].get("nodeName")) for thing in pods)

    assert run(scenario()) == 5 * 4 - 4


def test_the_device_may_come_long_after_the_pods():
    async def scenario():
        held = {**used(0, memory="8Gi"), "spec": {**used(0)["spec"], "schedulerName": "default-scheduler"}}
        embedded = api_server(node(), held)
        async with scheduler_on(embedded, DOCUMENT):
            put(embedded, waiting("p", gpu=100))
            await asyncio.sleep(20)
            before = where(embedded, "p")
            put(embedded, m2()[-1])
            await asyncio.sleep(20)
            return before, json.loads(embedded.get("Pod", "p")["metadata"]["annotations"][ALLOCATED])["gpu"][0]["minor"]

    assert run(scenario()) == (None, 1)


def test_devices_that_fail_and_heal_while_pods_run():
    async def scenario():
        embedded = api_server(*m2())
        seen = []
        async with scheduler_on(embedded, DOCUMENT):
            for at, health in enumerate([(True, False), (False, False), (True, True), (True, True)]):
                replace(embedded, device(*(gpu(minor, "8Gi", health=well) for minor, well in enumerate(health))))
                await asyncio.sleep(1)
                put(embedded, waiting(f"p{at}", gpu=100))
                await asyncio.sleep(20)
                pods = [embedded.get("Pod", f"p{other}") for other in range(at + 1)]
                seen.append([next((e["minor"] for e in held_by(thing).get("gpu", ())), None) for thing in pods])
        return seen

    assert run(scenario()) == [[0], [0, None], [0, 1, None], [0, 1, None, None]]
