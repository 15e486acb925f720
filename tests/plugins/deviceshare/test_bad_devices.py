"""Devices and labels of nodes as they should not be: harm to their own node alone, a word where users look."""

import asyncio
import copy
import json
import logging
from functools import cache
from random import Random

import orjson
import pytest

from tests.depth import quick_first
from tests.plugins.deviceshare.hostile import (
    ASKING,
    GOOD,
    LARGE,
    MACHINE,
    NUMBERS,
    QUANTITIES,
    TEXTS,
    Watched,
    cluster,
)
from tests.plugins.deviceshare.machines import device, gpu, nic, node, pod
from tests.plugins.deviceshare.naive.books import MODEL, NODE, POLICY, TABLE, VENDOR
from tests.plugins.deviceshare.naive.model import ISOLATION
from tests.plugins.deviceshare.naive.request import CORE, MEMORY, RATIO, RDMA
from tests.plugins.deviceshare.world import configuration, profile
from tests.plugins.nodenumaresource import running
from tests.virtualtime import run

pytestmark = pytest.mark.filterwarnings("error")

WELL_PLANNED = f"{NODE}secondary-device-well-planned"
ANYTHING = [*NUMBERS, "x" * LARGE, None, [], {}, [None], [[]], [{}], {"": ""}, {"a": None}, False]
PARTITIONS = [
    [
        {"minors": value}
        for value in (None, [], {}, [0, 0], [-1], [128], [2**70], ["0"], [0.5], [None], list(range(128)))
    ],
    *([{"minors": [0], "allocationScore": value}] for value in NUMBERS),
    *([{"minors": [0], "ringBusBandwidth": value}] for value in QUANTITIES),
    *([{"minors": [0, 1], "gpuLinkType": value}] for value in (None, 7, "x" * 1000)),
    [{"minors": [at % 128 for at in range(1000)]}] * 100,
    [{"minors": [3, 2]}, {"minors": [0, 9]}],
    None,
    {},
    "x",
    7,
    [None],
    [[]],
]


def with_entry(**changes):
    """The good Device but for one entry."""
    made = copy.deepcopy(MACHINE)
    made["spec"]["devices"][1].update(changes)
    return made


def with_metadata(**changes):
    """The good Device but for its metadata."""
    return {**MACHINE, "metadata": {**MACHINE["metadata"], **changes}}


def hostile_devices():
    """(id, Device)."""
    for key in ("minor", "type", "id", "health", "resources", "labels", "topology", "vfGroups", "conditions"):
        for at, value in enumerate(ANYTHING):
            yield f"{key}-{at}", with_entry(**{key: value})
        made = with_entry()
        made["spec"]["devices"][1].pop(key, None)
        yield f"{key}-missing", made
    for name in (CORE, MEMORY, RATIO, RDMA, "huawei.com/npu-core", "kubernetes.io/gpu-memory", "é\0"):
        for at, amount in enumerate(QUANTITIES):
            amounts = {CORE: "100", RATIO: "100", MEMORY: "80Gi", name: amount}
            yield f"{name.rpartition('/')[2]}-{at}", with_entry(resources=amounts)
    for key in ("nodeID", "pcieID", "socketID", "busID"):
        for at, value in enumerate([*ANYTHING, 7, 8, 63, 64, 10**9]):
            place = {"socketID": -1, "nodeID": 0, "pcieID": "0", "busID": "0000:00:00.0", key: value}
            yield f"{key}-{at}", with_entry(topology=place)
    for at, value in enumerate(ANYTHING):
        yield f"vfs-{at}", with_entry(type="rdma", minor=2, vfGroups=[{"labels": {}, "vfs": value}])
        yield f"busID-of-vf-{at}", with_entry(type="rdma", minor=2, vfGroups=[{"vfs": [{"busID": value}]}])
        yield (
            f"minor-of-vf-{at}",
            with_entry(type="rdma", minor=2, vfGroups=[{"vfs": [{"minor": value, "busID": "b"}]}]),
        )
        yield f"spec-{at}", {**MACHINE, "spec": value}
        yield f"devices-{at}", {**MACHINE, "spec": {"devices": value}}
        yield f"annotations-{at}", with_metadata(annotations=value)
        yield f"labels-{at}", with_metadata(labels=value)
        yield f"labels-of-vfs-{at}", with_entry(vfGroups=[{"labels": value, "vfs": []}])
    for label in (POLICY, WELL_PLANNED, f"{NODE}gpu-vendor", f"{NODE}gpu-model"):
        for at, value in enumerate(["", "x", "HONOR", "é\0", "x" * LARGE, None, 7, "Honor", "true"]):
            yield f"{label.rpartition('/')[2]}-{at}", with_metadata(labels={label: value})
    for at, text in enumerate([*TEXTS, *(json.dumps({"1": table}) for table in PARTITIONS), '{"1":[],"x":[]}']):
        for policy in ("Honor", "Prefer"):
            yield f"table-{policy}-{at}", with_metadata(annotations={TABLE: text}, labels={POLICY: policy})
    for size in (-1, 0, 3, 129, 2**70):
        yield f"table-of-{size}", with_metadata(annotations={TABLE: json.dumps({str(size): [{"minors": [0, 1]}]})})
    yield "devices-200", device(*(gpu(minor) for minor in range(200)), name="m1")
    yield "devices-128", device(*(gpu(minor) for minor in range(128)), *(nic(at) for at in range(128)), name="m1")
    yield "devices-same", device(*(gpu(1, health=at % 2 == 0) for at in range(200)), name="m1")
    yield "devices-huge", device(*(gpu(minor, "10Ei") for minor in range(128)), name="m1")
    yield "types-200", device(*({**gpu(0), "type": f"type-{at}"} for at in range(200)), name="m1")
    functions = [{"minor": at, "busID": f"b{at}"} for at in range(10_000)]
    yield (
        "functions-10000",
        device(*MACHINE["spec"]["devices"], {**nic(3), "vfGroups": [{"vfs": functions}]}, name="m1"),
    )
    yield "functions-same", device({**nic(0), "vfGroups": [{"vfs": [{"minor": 0, "busID": "b"}] * 50}]}, name="m1")
    yield "numa-nodes-16", device(*(gpu(minor, place=(str(minor), minor)) for minor in range(16)), name="m1")


DEVICES = list(hostile_devices())
SHUFFLED = Random(7).sample(DEVICES, len(DEVICES))


@cache
def expected():
    """What is said of the good node, and of the bad one when it is good."""
    return cluster().answers()["m2"], cluster(MACHINE).answers(ASKING[:1])


def same_with(thing):
    """A hostile Device harms its node alone, and no longer than until the next one."""
    world = cluster()
    complaint = world.takes(thing)
    assert complaint is None or complaint.startswith("Device m1: ")
    assert complaint is None or len(complaint) < 4096
    found = world.answers()
    assert found["m2"] == expected()[0]
    assert all(said[0][1:2] != ("Error",) for said in found["m1"][1:]), "a filter says what is wrong with the node"
    assert len(world.said) <= 1
    assert all(said[:3] == ("devices", "m1", "InvalidDevice") and len(said[3]) <= 1024 for said in world.said)
    world.put(MACHINE)
    assert world.answers(ASKING[:1]) == expected()[1], "what is right again counts again"


@pytest.mark.parametrize("at", quick_first(range(len(DEVICES)), 65), ids=lambda at: SHUFFLED[at][0])
def test_hostile_devices(at):
    same_with(SHUFFLED[at][1])


def random_device(rng):
    """A Device in which some things are anything."""
    made = copy.deepcopy(MACHINE)
    entries = made["spec"]["devices"]
    for _ in range(rng.randint(1, 4)):
        entry = rng.choice(entries)
        key = rng.choice([*entry, "vfGroups", "labels"])
        if isinstance(entry.get(key), dict) and entry[key] and rng.random() < 0.7:
            within = rng.choice(sorted(entry[key]))
            entry[key] = {**entry[key], within: rng.choice([*NUMBERS, *QUANTITIES])}
        else:
            entry[key] = rng.choice(ANYTHING)
    if rng.random() < 0.5:
        table = {str(rng.choice([1, 2, 3, 4, 8])): rng.choice(PARTITIONS) for _ in range(3)}
        text = json.dumps(table)
        at = rng.randrange(len(text))
        made["metadata"]["annotations"] = {TABLE: text if rng.random() < 0.6 else text[:at] + text[at + 1 :]}
        made["metadata"]["labels"] = {POLICY: rng.choice(["Honor", "Prefer"])}
    return made


@pytest.mark.parametrize("part", quick_first(range(8), 1))
def test_random_devices(part):
    for seed in range(part, 240, 8):
        same_with(random_device(Random(f"device-{seed}")))


# --- what is said about it ------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["node first", "Device first"])
def test_a_bad_device_is_told_once(order):
    bad = device({**gpu(0), "minor": None}, gpu(200), name="m1")
    things = [node("m1"), bad]
    world = Watched(*(things if order == "node first" else reversed(things)))
    problem = "devices[0]: a gpu without minor counts as minor 0; devices[1]: gpu 200 is ignored: minors are 0 to 127"
    assert world.said == [("devices", "m1", "InvalidDevice", problem)]
    world.put(bad)
    assert len(world.said) == 1
    world.put(device(gpu(0), gpu(0), name="m1"))
    assert world.said[1][3] == "devices[1]: gpu 0 occurs twice: the last one counts"
    world.put(MACHINE)
    world.put(device(gpu(0), gpu(0), name="m1"))
    assert len(world.said) == 3


def test_a_device_with_200_minors_serves_with_those_that_count():
    world = Watched(node("m1"), device(*(gpu(minor, "8Gi") for minor in range(200)), name="m1"))
    assert world.place(pod(nvidia=128), "m1") == {"gpu": list(range(128))}
    assert world.verdicts(pod("q", gpu=1))["m1"][1:] == ("Unschedulable", "Insufficient gpu devices")


# --- labels of nodes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", [VENDOR, MODEL, POLICY, ISOLATION])
@pytest.mark.parametrize("text", ["", "x", "é\0", "x" * LARGE, "HONOR", "H800 ", "[]"], ids=range(7))
def test_hostile_labels_of_a_node(label, text):
    world = cluster(MACHINE)
    world.put(node("m1", {label: text}))
    found = world.answers()
    assert found["m2"] == expected()[0]
    assert found["m1"][1][0] == (), "as without the label"
    world.put(node("m1"))
    assert world.answers(ASKING[:1]) == expected()[1]


# --- on the real scheduler --------------------------------------------------------------------------------


def storable(thing):
    """Whether an API server stores it: numbers beyond 64 bits it does not take."""
    try:
        return bool(orjson.dumps(thing))
    except TypeError:
        return False


def test_hostile_devices_on_the_real_scheduler(caplog):
    """Past the validation of the API server: pods go on with the other node, nothing is logged as a failure."""

    async def scenario():
        placed = 0
        document = configuration(profile(name="default-scheduler"))
        async with running.cluster(node("m1"), *GOOD[:2], document=document) as (embedded, _):
            things = [thing for _, thing in SHUFFLED if storable(thing)][::6]
            for number, thing in enumerate(things):
                embedded.insert(thing)
                name = f"p{number}"
                wanted = pod(name, gpu=10)
                wanted["spec"]["schedulerName"] = "default-scheduler"
                wanted["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100m"
                running.put(embedded, wanted)
                await asyncio.sleep(2)
                placed += running.where(embedded, name) is not None
                running.remove(embedded, wanted)
                running.remove(embedded, thing)
            return placed, len(things), {event["reason"] for event in embedded.events()}

    with caplog.at_level(logging.WARNING):
        placed, created, reasons = run(scenario())
    assert placed == created > 60
    assert "InvalidDevice" in reasons
    assert not [record for record in caplog.records if record.exc_info]
