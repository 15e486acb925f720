"""Verdicts in cases that random states seldom have: Filter, and Reserve where Filter passes, must say the same."""

import json

import numpy as np
import pytest

from koordsched.plugins.deviceshare.allocating import share_of
from tests.plugins.deviceshare.machines import bound, device, gpu, m2, nic, node, pod, topology
from tests.plugins.deviceshare.naive.books import NODE, TABLE
from tests.plugins.deviceshare.naive.request import CORE, RATIO
from tests.plugins.deviceshare.world import ALLOCATED, DEVICES, NUMA, World

HINT = "internal.scheduling.koordinator.sh/scheduling-hint"
TOO_FEW = (DEVICES, "Unschedulable", "Insufficient gpu devices")
NONE_KNOWN = (DEVICES, "UnschedulableAndUnresolvable", "Insufficient rdma devices")


def designated(**listed):
    """A pod that has to get these GPUs."""
    annotations = {HINT: json.dumps({"extensions": {"DeviceShare": {}}}), ALLOCATED: json.dumps(listed)}
    return pod(core=10, ratio=10, annotations=annotations)


def aligned(policy="Restricted"):
    return {f"{NODE}numa-topology-policy": policy}


@pytest.mark.parametrize("where", [-2, -(2**31), 63, 64, 2**31 - 1])
def test_devices_in_numa_nodes_that_cannot_be(where):
    """They are in none that a pod may be aligned to."""
    world = World(node(labels=aligned()), topology("n", 2), device(gpu(0, place=("0", where)), gpu(1, place=("1", 0))))
    assert world.verdicts(pod(gpu=100)) == {"n": ()}
    assert world.place(pod(gpu=100)) == {"gpu": [1]}
    (said,) = world.verdicts(pod("second", gpu=100)).values()
    assert said[0] in (NUMA, DEVICES)
    world.put(node())
    assert world.place(pod("third", gpu=100)) == {"gpu": [0]}


@pytest.mark.parametrize("where", [6, 7])
def test_devices_in_the_last_of_eight_numa_nodes(where):
    world = World(node(labels=aligned()), topology("n", 8), device(gpu(0, place=("0", where))))
    assert world.verdicts(pod(gpu=100)) == {"n": ()}
    assert world.place(pod(gpu=100)) == {"gpu": [0]}


@pytest.mark.parametrize(("count", "passes"), [(2, True), (3, False), (8, False), (12, False)])
def test_so_little_memory_that_nothing_is_asked_of_each_gpu(count, passes):
    """Divided by the number of GPUs it is 0: as many are needed none the less."""
    world = World(*m2())
    wanted = pod(shared=count, memory=1)
    assert world.verdicts(wanted) == {"n": () if passes else TOO_FEW}
    assert world.place(wanted) == ({"gpu": [0, 1]} if passes else TOO_FEW)
    assert world.books()["n"]["used"] == {}


def test_a_refusal_names_the_node_it_is_about():
    sick = [thing for name in "ab" for thing in (node(name), device(gpu(0, health=False), gpu(1), name=name))]
    world, thing = World(*sick), designated(gpu=[{"minor": 0, "resources": {RATIO: "10"}}])
    text = "fillGPUTotalMem failed: no healthy gpu device with minor 0 of allocation, node: "
    assert world.verdicts(thing) == {name: (DEVICES, "Error", text + name) for name in "ab"}
    # So does the one that keeps several pods from a node, be it for the sake of those before them.
    rows = np.array([world.table.row_of[name] for name in "ab"], dtype=np.intp)
    shape, other = world.pod(thing).shape, world.pod(pod("other", core=10, ratio=10)).shape
    for before, those in (([], shape), ([(shape, 1)], other)):
        numbers, codes = world.plugin.served(before, those, rows, 3)
        assert numbers.tolist() == [0, 0]
        found = [world.profile.handle.reasons[code].texts for code in codes.tolist()]
        assert found == [(text + name,) for name in "ab"]


def test_a_gpu_of_one_unit_in_use_attracts_others():
    machine = [gpu(minor, place=(str(minor // 2), minor // 2), **{CORE: "1"}) for minor in range(4)]
    held = bound(pod(core=1, ratio=1), "held", gpu=[(2, {"core": 1})])
    assert World(node(), device(*machine), held).place(pod(core=1, ratio=1)) == {"gpu": [3]}


@pytest.mark.parametrize(("memory", "total", "share"), [(1, 3, 33), (3, 3, 100), (29, 100, 28), (5, 0, 0)])
def test_share_of_the_memory_of_a_gpu(memory, total, share):
    """As upstream computes it: 29 of 100 are 28 %."""
    assert share_of(memory, total) == share


def test_devices_that_only_pods_know_on_a_node_that_reports_none():
    """They are known, but not there: fewer pods might help. Where no pod holds one they cannot."""
    holder = bound(pod(rdma=1), "holder", rdma=[(0, {"rdma": 1})])
    world = World(node(), device(), holder, node("m"), device(name="m"))
    assert world.verdicts(pod(rdma=1)) == {
        "n": (DEVICES, "Unschedulable", "Insufficient rdma devices"),
        "m": NONE_KNOWN,
    }


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_what_is_aligned_depends_on_the_node_itself(names):
    """Where secondary devices are planned well they are no concern of the topology manager, elsewhere they are."""

    def machine(name, labels):
        entries = [gpu(0, place=("0", 0)), nic(0, ("1", 1))]
        return [node(name, aligned("SingleNUMANode")), topology(name, 2), device(*entries, name=name, labels=labels)]

    machines = {"a": machine("a", {f"{NODE}secondary-device-well-planned": "true"}), "b": machine("b", {})}
    world = World(*(thing for name in names for thing in machines[name]))
    said = world.verdicts(pod(gpu=100, rdma=1, joint={"deviceTypes": ["gpu", "rdma"]}))
    assert said["a"] == ()
    assert said["b"][0] == NUMA


@pytest.mark.parametrize("order", [1, -1])
def test_refusals_of_alignment_name_the_types_that_are_asked_of_this_node(order):
    planned = {f"{NODE}secondary-device-well-planned": "true"}
    entries = [gpu(0, place=("0", 0)), gpu(1, place=("1", 1)), nic(0, ("0", 0))]
    machines = [
        [node(name, aligned("SingleNUMANode")), topology(name, 2), device(*entries, name=name, labels=labels)]
        for name, labels in (("a", planned), ("b", {}))
    ]
    world = World(*(thing for machine in machines[::order] for thing in machine))
    said = world.verdicts(pod(gpu=200, rdma=1, joint={"deviceTypes": ["gpu", "rdma"]}))
    alone = {name: World(*machine).verdicts(pod(gpu=200, rdma=1, joint={"deviceTypes": ["gpu", "rdma"]}))[name]
             for name, machine in zip("ab", machines, strict=True)}  # fmt: skip
    assert said == alone
    assert "rdma prefer" not in alone["a"][2]
    assert "rdma prefer" in alone["b"][2]


def test_memory_that_pods_hold_counts_for_whole_gpus_if_improved():
    """One byte is less than one per cent: by default such a GPU is given to the next pod as a whole."""
    holder = bound(pod(memory=1), "holder", gpu=[(0, {"memory": 1, "ratio": 0})])
    wanted = pod(gpu=200)
    world = World(*m2(), holder)
    assert world.verdicts(wanted) == {"n": ()}
    assert world.place(wanted, keep=False) == {"gpu": [1, 0]}
    world = World(*m2(), holder, args={"improvedAllocation": True})
    assert world.verdicts(wanted) == {"n": TOO_FEW}
    assert world.place(wanted) == TOO_FEW
    assert world.place(pod("one", gpu=100)) == {"gpu": [1]}


@pytest.mark.parametrize("minors", [[1, 1], [0], [0, 1, 1], []])
def test_a_partition_table_that_counts_wrong_is_none(minors):
    """Upstream gives a GPU to such a pod twice, or fewer than it asks for."""
    annotations = {TABLE: json.dumps({"2": [{"minors": minors, "allocationScore": 1}]})}
    world = World(node(), device(gpu(0, "8Gi"), gpu(1, "8Gi"), annotations=annotations))
    assert sorted(world.place(pod(gpu=200), keep=False)["gpu"]) == [0, 1]
    refused = (DEVICES, "UnschedulableAndUnresolvable", "node(s) missing GPU Partition Table")
    assert world.verdicts(pod(gpu=200, partition={})) == {"n": refused}
