"""Devices that make no sense: decisions are made none the less, with devices that can be, and nothing is raised."""

import json
from random import Random

import pytest

from koordsched.plugins.deviceshare.reports.report import report_on
from koordsched.plugins.deviceshare.reports.summary import node_summary
from tests.parity.fresh import fresh_seeds
from tests.plugins.deviceshare.machines import device, node, topology
from tests.plugins.deviceshare.naive.books import NODE, TABLE
from tests.plugins.deviceshare.naive.request import CORE, FPGA, MEMORY, NPU_CORE, RATIO, RDMA, SCHEDULING_HINTS
from tests.plugins.deviceshare.randomstates import Draw
from tests.plugins.deviceshare.world import PROFILE, World

MINORS = (-1, None, 0, 0, 1, 2, 3, 63, 64, 127, 128, 200, 2**31 - 1)
NUMA_NODES = (-(2**31), -2, -1, 0, 0, 1, 1, 7, 8, 63, 64, 2**31 - 1)
AMOUNTS = ("-5", "0", "100", "100", "100", "1e30", "much", "1.5", "9223372036854775807", "8Gi", "-9223372036854775808")
OLD = {CORE: "kubernetes.io/gpu-core", RATIO: "kubernetes.io/gpu-memory-ratio"}


def entry(rng):
    made = {"type": rng.choice(["gpu", "gpu", "gpu", "rdma", "fpga", "xpu", ""]), "health": rng.random() < 0.8}
    if rng.random() < 0.95:
        made["minor"] = rng.choice(MINORS)
    if rng.random() < 0.8:
        made["id"] = rng.choice(["", "GPU-0", "x" * 300])
    names = rng.sample([CORE, MEMORY, RATIO, RDMA, FPGA, NPU_CORE, "example.com/x"], rng.randint(0, 5))
    made["resources"] = {OLD.get(name, name) if rng.random() < 0.1 else name: rng.choice(AMOUNTS) for name in names}
    if rng.random() < 0.8:
        made["topology"] = {"socketID": -1, "nodeID": rng.choice(NUMA_NODES), "pcieID": rng.choice(["", "0", "1", "é"])}
    if rng.random() < 0.3:
        vfs = [{"minor": rng.choice([-1, 0]), "busID": rng.choice(["", "a", "b"])} for _ in range(rng.randint(0, 3))]
        made["vfGroups"] = [{"labels": {"type": "fast"}, "vfs": vfs}, {"vfs": None}][: rng.randint(0, 2)]
        made["vfGroups"] = [{**group, "vfs": group["vfs"] or []} for group in made["vfGroups"]]
    return made


def table(rng):
    def partition():
        return {
            "minors": rng.choice([[], [0], [0, 1], [1, 1], [-1], [200], [3, 2, 1, 0]]),
            "allocationScore": rng.choice([0, 1, -(10**12), 10**12]),
            "ringBusBandwidth": rng.choice(["1", "-1", "400Gi"]),
        }

    keys = rng.sample(["0", "1", "2", "4", "-1", "08"], 3)
    sizes = {size: [partition() for _ in range(rng.randint(0, 3))] for size in keys}
    return rng.choice([json.dumps(sizes), json.dumps(sizes), "{", "null", "{}", '{"x": []}', "[" * 5000])


def odd_device(rng):
    annotations = {TABLE: table(rng)} if rng.random() < 0.5 else {}
    labels = {f"{NODE}gpu-partition-policy": "Honor"} if rng.random() < 0.3 else {}
    return device(*(entry(rng) for _ in range(rng.randint(0, 12))), annotations=annotations, labels=labels)


@pytest.mark.parametrize("seed", fresh_seeds("odd devices", 40))
def test_nothing_is_raised_and_no_device_is_given_twice(seed):
    rng = Random(seed)
    draw = Draw(rng, 0, 0, odd=False)
    labels = {f"{NODE}numa-topology-policy": rng.choice(["", "SingleNUMANode", "Restricted", "BestEffort"])}
    args = {"improvedAllocation": rng.random() < 0.5}
    world = World(node(labels=labels), topology("n", 2), odd_device(rng), args=args)
    for at in range(20):
        if rng.random() < 0.2:
            world.put(odd_device(rng))
        wanted = draw.pod(f"p{at}")
        wanted["spec"]["schedulerName"] = PROFILE
        for key in SCHEDULING_HINTS:
            wanted["metadata"]["annotations"].pop(key, None)
        said = world.verdicts(wanted)["n"]
        before = world.books()["n"]
        found = world.place(wanted)
        if not isinstance(found, dict):
            assert world.books()["n"] == before
            continue
        if said == ():
            places = world.plugin.columns.inventory(world.row()).places
            for kind, minors in found.items():
                assert len(set(minors)) == len(minors)
                assert all(places[kind][minor].amounts for minor in minors)
        assert report_on(world.plugin, "n")
        assert node_summary(world.plugin, {"name": "n"})
        world.plugin.explain_nodes(world.pod(wanted).shape, world.table.alive.data[:1].nonzero()[0])
