"""Annotations and requests of pods as they should not be: harm to their own pod alone, a word where users look."""

import asyncio
import json
import logging
from functools import cache
from itertools import product
from random import Random

import pytest

from tests.depth import quick_first
from tests.plugins.deviceshare.hostile import (
    ASKING,
    GOOD,
    MACHINE,
    NUMBERS,
    OF_PODS,
    QUANTITIES,
    TEXTS,
    annotated,
    cluster,
    on_m1,
)
from tests.plugins.deviceshare.machines import SHORT, m2, node, pod
from tests.plugins.deviceshare.naive.request import (
    ALLOCATED,
    CORE,
    FPGA,
    HINT,
    JOINT,
    MEMORY,
    PARTITION,
    RATIO,
    RDMA,
    SCHEDULING_HINTS,
)
from tests.plugins.deviceshare.world import World, configuration, key, profile
from tests.plugins.nodenumaresource import running
from tests.virtualtime import run

pytestmark = pytest.mark.filterwarnings("error")

ENDED = ("Success", "UnschedulableAndUnresolvable")
FIELDS = {
    HINT: ("selector", "vfSelector", "allocateStrategy", "requiredTopologyScope", "exclusivePolicy"),
    JOINT: ("deviceTypes", "requiredScope"),
    PARTITION: ("allocatePolicy", "ringBusBandwidth"),
}
SELECTORS = [
    {"matchLabels": {"": ""}},
    {"matchLabels": {"a": None}},
    {"matchLabels": {"a": 5}},
    {"matchLabels": {"é\0": "x" * 10_000}},
    {"matchExpressions": [{}]},
    {"matchExpressions": [{"key": "a", "operator": "Sometimes"}]},
    {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]},
    {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
    {"matchExpressions": None},
    {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"] * 100_000}]},
]


def hostile_specs(annotation):
    """Texts of an annotation by which pods ask for devices."""
    yield from TEXTS
    for name in FIELDS[annotation]:
        values = [*NUMBERS, *QUANTITIES, "x" * 10**6, ["gpu", "gpu"], ["rdma", "xpu"], [None], [5]]
        for value in [*values, *SELECTORS] if name in ("selector", "vfSelector") else values:
            spec = {name: value}
            for text in [spec, {"gpu": spec}, {"rdma": spec, "fpga": None}] if annotation == HINT else [spec]:
                yield json.dumps(text)


def early(world, thing):
    """(code, *reasons) of PreFilter, or of what ended the attempt before it."""
    world.put(thing)
    status = world.offline.attempt(key(thing)).filter(all_nodes=True).pre_filtered.status
    world.offline.pending.pop(key(thing))
    return (status.code.text, *status.reasons)


@pytest.mark.parametrize("annotation", OF_PODS)
@pytest.mark.parametrize("part", quick_first(range(4), 1))
def test_hostile_specs_of_a_pod(part, annotation):
    world = cluster(MACHINE)
    before = world.books()
    refused = 0
    for at, text in enumerate(list(hostile_specs(annotation))[part::4]):
        thing = annotated(pod("hostile", nvidia=1, rdma=1), text, annotation)
        said = early(world, thing)
        assert said[0] in (*ENDED, "Skip"), (text[:80], said)
        assert len(said[-1]) < 2048, text[:80]
        refused += said[0] == ENDED[1]
        for name, verdict in world.verdicts(thing).items():
            assert verdict[1:2] != ("Error",)
            if verdict == ():
                world.place(thing, name, keep=False)
        world.scores(thing)
        world.explain(thing)
        world.offline.pending.pop(key(thing))
        if at % 10 == 0:
            held = on_m1("held", text, annotation)
            world.put(held)
            assert world.answers(ASKING[:2])["m2"][:3] == expected()["m2"][:3]
            world.remove(held)
        assert world.books() == before
    assert refused > 10


@cache
def expected():
    """What is said of both nodes."""
    return cluster(MACHINE).answers()


# --- what pods ask for ---------------------------------------------------------------------------------


AMOUNTS = [*(str(value) for value in QUANTITIES), str(2**63), str(2**62), str(2**31), "100000", "0", "1m", "99.5"]
BESIDE = ({}, {MEMORY: "1Gi"}, {RATIO: "9999999999999900"}, {RDMA: "100"})
NAMES = [*SHORT.values(), "kubernetes.io/gpu", "kubernetes.io/rdma"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", quick_first(range(3), 1))
def test_hostile_requests(part, name):
    """No pod gets more than there is, whatever it asks for. Where one part is taken, each resource has another one."""
    world = cluster(MACHINE)
    for text, more in list(product(AMOUNTS, BESIDE))[(part + NAMES.index(name)) % 3 :: 3]:
        thing = pod("hostile")
        resources = thing["spec"]["containers"][0]["resources"]
        resources["requests"] = {"cpu": "1", **more, name: text}
        resources["limits"] = {**more, name: text}
        if world.takes(thing) is not None:
            continue
        for where, verdict in world.verdicts(thing).items():
            if verdict == () and not isinstance(given := world.place(thing, where, keep=False), tuple):
                assert all(len(minors) <= 8 for minors in given.values())
        world.explain(thing)
        world.offline.pending.pop(key(thing))
    assert world.answers() == expected()


# --- what pods say they hold ---------------------------------------------------------------------------


def allocated(kind="gpu", minor=0, resources=None, **more):
    """The text of an allocation of one device."""
    entry = {"minor": minor, "resources": {RATIO: "10"} if resources is None else resources, **more}
    return json.dumps({kind: [entry]})


HUGE = {CORE: "10Ei", RATIO: "10Ei", MEMORY: "10Ei", RDMA: "10Ei", FPGA: "10Ei"}
ALLOCATIONS = [
    *TEXTS,
    *(allocated(minor=value) for value in NUMBERS),
    *(allocated(kind) for kind in ("rdma", "fpga", "xpu", "", "GPU", "é\0", "x" * 10_000)),
    *(allocated(resources=value) for value in (*NUMBERS, {"": "1"}, {"é\0": "1"}, {RATIO: None})),
    *(allocated(resources={RATIO: amount, CORE: amount, MEMORY: amount}) for amount in [*QUANTITIES, *NUMBERS]),
    *(allocated("rdma", resources={RDMA: "1"}, extension=value) for value in NUMBERS),
    *(allocated("rdma", resources={RDMA: "1"}, extension={"vfs": value}) for value in NUMBERS),
    *(allocated("rdma", resources={RDMA: "1"}, extension={"vfs": [value]}) for value in NUMBERS),
    *(allocated("rdma", resources={RDMA: "1"}, extension={"vfs": [{"busID": value}]}) for value in NUMBERS),
    *(allocated("rdma", resources={RDMA: "1"}, extension={"vfs": [{"minor": value}]}) for value in NUMBERS),
    *(allocated(extension={"gpuSharedResourceTemplate": value}) for value in NUMBERS),
    *(allocated(id=value) for value in NUMBERS),
    *(allocated(kind, 127, HUGE) for kind in ("gpu", "rdma", "fpga")),
    allocated(minor=9),
    json.dumps({"gpu": [{"minor": minor % 128, "resources": HUGE} for minor in range(5000)]}),
    json.dumps({"gpu": [{"resources": {f"example.com/{at}": "1"}} for at in range(5000)]}),
    json.dumps({"rdma": [{"extension": {"vfs": [{"busID": f"b{at}"} for at in range(20_000)]}}]}),
    json.dumps({f"type-{at}": [{"minor": 1}] for at in range(20_000)}),
]


@pytest.mark.parametrize("part", quick_first(range(4), 1))
def test_hostile_allocations_of_bound_pods(part):
    world = cluster(MACHINE)
    before = world.books()
    for at, text in list(enumerate(ALLOCATIONS))[part::4]:
        held = on_m1(f"s{at}", text, ALLOCATED)
        world.put(held)
        assert world.answers(ASKING[:5])["m2"] == expected()["m2"][:6], text[:80]
        world.put(MACHINE)
        world.remove(held)
        assert world.books() == before, text[:80]
    assert all(problem.startswith(f"annotation {ALLOCATED}: ") for _, problem in world.complaints)
    assert all(len(problem) < 4096 for _, problem in world.complaints)
    assert len({name for name, _ in world.complaints}) > 20


def test_all_hostile_allocations_at_once():
    world = cluster(MACHINE)
    before = world.books()
    roomy = node("m1")
    roomy["status"]["allocatable"] |= {"pods": "100000"}
    world.put(roomy)
    things = [on_m1(f"s{at}", text, ALLOCATED) for at, text in enumerate(ALLOCATIONS)]
    for thing in things:
        world.put(thing)
    assert world.answers()["m2"] == expected()["m2"]
    assert world.verdicts(pod("p", gpu=1))["m1"] == ("DeviceShare", "Unschedulable", "Insufficient GPU Devices")
    world.offline.pending.clear()
    world.remove(MACHINE)
    world.put(MACHINE)
    for thing in things:
        world.remove(thing)
    world.put(node("m1"))
    assert world.books() == before


@pytest.mark.parametrize("amounts", [HUGE, {CORE: str(2**50), RATIO: str(2**52), MEMORY: str(2**60)}])
def test_many_absurd_amounts_fill_a_gpu_and_never_free_it(amounts):
    """A few thousand pods: their sum is beyond what 64 bits hold."""
    world = World(*m2("m1"))
    things = [on_m1(f"s{at}", allocated(resources=amounts), ALLOCATED) for at in range(2100)]
    for at, thing in enumerate(things):
        world.put(thing)
        if at % 300 == 299:
            assert world.place(pod(gpu=50), "m1", keep=False) == {"gpu": [1]}, at
            world.offline.pending.clear()
    for thing in things:
        world.remove(thing)
    assert world.books() == World(*m2("m1")).books()


def test_pods_that_share_a_device_and_its_functions():
    """They are free when the last of them has gone, in whatever order they go."""
    rng = Random(3)
    world = World(*m2("m1"))
    held = {f"s{at}": rng.sample(range(6), rng.randint(1, 3)) for at in range(100)}

    def holder(name):
        functions = [{"busID": f"b{at}"} for at in held[name]]
        return on_m1(name, allocated("rdma", 1, {RDMA: "1"}, extension={"vfs": functions}), ALLOCATED)

    for name in held:
        world.put(holder(name))
    for name in rng.sample(list(held), len(held)):
        thing = holder(name)
        del held[name]
        world.remove(thing)
        taken = {f"b{at}" for some in held.values() for at in some}
        assert world.plugin.columns.taken(world.row("m1"), "rdma", 1) == taken


@pytest.mark.parametrize("part", quick_first(range(12), 1))
def test_hostile_designations(part):
    """A pod that names its devices itself: it is refused, or it gets what is free and what it asks for."""
    world = cluster(MACHINE)
    world.put({**node("m3", {"node.koordinator.sh/numa-topology-policy": "SingleNUMANode"})})
    world.put({**MACHINE, "metadata": {**MACHINE["metadata"], "name": "m3"}})
    before, refused = world.books(), 0
    for text in ALLOCATIONS[part::12]:
        for wanted in (pod("hostile", gpu=50), pod("hostile", nvidia=2), pod("hostile", rdma=1), pod("hostile")):
            thing = annotated(
                annotated(wanted, text, ALLOCATED), '{"extensions":{"DeviceShare":{}}}', SCHEDULING_HINTS[0]
            )
            said = early(world, thing)
            assert len(said[-1]) < 4096
            assert said[0] in (*ENDED, "Skip"), text[:80]
            if said[0] == ENDED[1]:
                refused += 1
                continue
            world.scores(thing)
            for name, verdict in world.verdicts(thing).items():
                assert len("".join(verdict)) < 4096
                if verdict == ():
                    given = world.place(thing, name, keep=False)
                    if isinstance(given, dict):
                        assert {minor for minors in given.values() for minor in minors} <= set(range(8))
                        used = {minor for kind, minor in before[name]["used"] if kind == "gpu"}
                        assert wanted != pod("hostile", nvidia=2) or not used & set(given["gpu"])
            world.offline.pending.pop(key(thing))
    assert world.books() == before
    assert refused > 10


def random_json(rng, depth=0):
    """Any JSON value."""
    kind = rng.randrange(9 if depth < 5 else 6)
    if kind >= 7:
        keys = ["gpu", "rdma", "minor", "resources", RATIO, CORE, "extension", "vfs", "busID", "id", "é", ""]
        return {rng.choice(keys): random_json(rng, depth + 1) for _ in range(rng.randrange(4))}
    if kind == 6:
        return [random_json(rng, depth + 1) for _ in range(rng.randrange(4))]
    return rng.choice([*NUMBERS[:10], *QUANTITIES, "gpu", "0000:1f:00.2", 0, 1, True, None])


@pytest.mark.slow
def test_random_allocations():
    """Pods come, change and go; at the end nothing of them is left."""
    rng, world = Random("allocations"), cluster(MACHINE)
    before, there = world.books(), set()
    for at in range(400):
        name = f"s{rng.randrange(12)}"
        if rng.random() < 0.3:
            world.remove(on_m1(name, "{}", ALLOCATED))
            there.discard(name)
        else:
            entries = {rng.choice(["gpu", "rdma"]): [random_json(rng, 2) for _ in range(2)]}
            text = json.dumps(rng.choice([random_json(rng), entries]))
            world.put(on_m1(name, rng.choice([text, text, rng.choice(ALLOCATIONS)]), ALLOCATED))
            there.add(name)
        if at % 20 == 0:
            assert world.answers(ASKING[:4])["m2"] == expected()["m2"][:5]
    for name in there:
        world.remove(on_m1(name, "{}", ALLOCATED))
    assert world.books() == before


# --- on the real scheduler --------------------------------------------------------------------------------


def test_users_see_what_is_wrong():
    """On the Device, on the pod that waits, and on the bound pod."""

    async def scenario():
        broken = {**MACHINE, "spec": {"devices": [{"type": "xpu", "minor": 1}]}}
        held = on_m1("held", allocated(minor=400), ALLOCATED)
        document = configuration(profile(name="default-scheduler"))
        async with running.cluster(node("m1"), broken, held, document=document) as (embedded, _):
            unreadable = annotated(pod("unreadable", gpu=100), '{"gpu": 5}', HINT)
            for thing in (pod("p", gpu=100), unreadable):
                thing["spec"]["schedulerName"] = "default-scheduler"
                running.put(embedded, thing)
            await asyncio.sleep(15)
            return (
                running.events_about(embedded, "Device", "m1", "InvalidDevice"),
                running.condition_of(embedded, "p"),
                running.condition_of(embedded, "unreadable"),
                running.events_about(embedded, "Pod", "held", "InvalidAnnotation"),
            )

    devices, waiting, unreadable, held = run(scenario())
    assert devices == ["devices[0]: unknown type 'xpu'"]
    assert waiting[0] == unreadable[0] == "Unschedulable"
    assert "1 Insufficient gpu devices" in waiting[1]
    assert "invalid DeviceAllocateHint annotation, err: Expected `object | null`, got `int`" in unreadable[1]
    assert len(held) == 1
    assert "invalid gpu minor 400: at most 128 devices of a type are supported" in held[0]


def test_hostile_pods_on_the_real_scheduler(caplog):
    """Good pods are placed beside bad ones, bound and waiting; nothing is logged as a failure."""

    async def scenario():
        placed = 0
        document = configuration(profile(name="default-scheduler"))
        async with running.cluster(node("m1"), MACHINE, *GOOD[:2], document=document) as (embedded, _):
            specs = [(key, text) for key in OF_PODS for text in hostile_specs(key)][::9]
            for number, (key, text) in enumerate(specs):
                names = [f"held{number}", f"bad{number}", f"good{number}"]
                held = on_m1(names[0], ALLOCATIONS[number % len(ALLOCATIONS)], ALLOCATED)
                bad, good = annotated(pod(names[1], gpu=10), text, key), pod(names[2], gpu=10)
                for thing in (bad, good):
                    thing["spec"]["schedulerName"] = "default-scheduler"
                    thing["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100m"
                for thing in (held, bad, good):
                    running.put(embedded, thing)
                await asyncio.sleep(2)
                placed += running.where(embedded, names[2]) is not None
                for thing in (held, bad, good):
                    running.remove(embedded, thing)
            return placed, len(specs)

    with caplog.at_level(logging.WARNING):
        placed, created = run(scenario())
    assert placed == created > 60
    assert not [record for record in caplog.records if record.exc_info]
