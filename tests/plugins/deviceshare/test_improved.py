"""The improved allocation beside an exhaustive search, and beside the default one."""

import json
from collections import Counter
from itertools import combinations
from random import Random

import pytest

from koordsched.plugins.deviceshare.reasons import Refusal
from tests.depth import quick_first
from tests.parity.fresh import fresh_seeds
from tests.plugins.deviceshare.machines import device, fpga, g8, gpu, h8, m2, nic, node, pod, used, used_nic
from tests.plugins.deviceshare.naive.books import TABLE
from tests.plugins.deviceshare.naive.request import CORE, MEMORY, RATIO
from tests.plugins.deviceshare.world import World

IMPROVED = {"improvedAllocation": True}
SAME = "SamePCIe"
GIB = 1 << 30


def improved(*objects, **options):
    return World(*objects, args=IMPROVED, numa=False, **options)


# --- joint allocation ----------------------------------------------------------------------------------------


def random_machine(rng):
    """GPUs, NICs and FPGAs on PCIe switches by chance; pods hold some of them."""
    count, switches = rng.choice([2, 4, 8]), rng.choice([2, 3, 4])

    def place(numa_nodes=2):
        switch = rng.randrange(switches)
        return str(switch), switch * numa_nodes // switches

    gpus = [gpu(minor, "8Gi", place(), health=rng.random() < 0.95) for minor in range(count)]
    nics = [nic(n, place(), functions=rng.choice([0, 2])) for n in range(rng.randint(1, 6))]
    boards = [{**fpga(n), "topology": {"nodeID": 0, "pcieID": place()[0]}} for n in range(rng.randint(0, 3))]
    annotations = {}
    if rng.random() < 0.5:
        table = {}
        for size in (1, 2, 4):
            some = [rng.sample(range(count), size) for _ in range(rng.randint(1, 4))] if size <= count else []
            table[str(size)] = [{"minors": sorted(each), "allocationScore": rng.choice([1, 2])} for each in some]
        annotations[TABLE] = json.dumps(table)
    things = [node(), device(*gpus, *nics, *boards, annotations=annotations)]
    things += [used(n, share=rng.choice([30, 100]), memory="8Gi") for n in range(count) if rng.random() < 0.25]
    things += [used_nic(n, rng.choice([50, 100])) for n in range(len(nics)) if rng.random() < 0.25]
    return things


def random_pod(rng):
    """One that wants GPUs and NICs, perhaps FPGAs, on the same switches."""
    amounts = rng.choice([{"gpu": 100 * rng.randint(1, 4)}] * 3 + [{"core": 60, "ratio": 60}])
    amounts |= rng.choice([{"rdma": 1}, {"rdma": 60}, {"rdma": 100}, {"rdma": 200}, {"rdma": 300}])
    if rng.random() < 0.2:
        amounts["fpga"] = rng.choice([50, 100, 200])
    hints, partition = {}, None
    if rng.random() < 0.2:
        hints["rdma"] = {"vfSelector": {}}
    if rng.random() < 0.3:
        hints["gpu"] = {"requiredTopologyScope": rng.choice(["NUMANode", "PCIe", "Node"])}
    if rng.random() < 0.3:
        partition = {}
    kinds = ["gpu", "rdma", "fpga"]
    if rng.random() < 0.2:
        rng.shuffle(kinds)
    return pod(hints=hints, partition=partition, joint={"deviceTypes": kinds, "requiredScope": SAME}, **amounts)


def exists(world, wanted):
    """Whether there are GPUs that go together, with enough of the others on exactly their switches."""
    plugin, row = world.plugin, world.row()
    request = plugin.compiled.of(world.pod(wanted).shape)
    devices, inventory = request.devices, plugin.columns.inventory(row)
    supply = plugin._allocating.supply(request, row)
    fitting = {}
    for kind, asked in devices.types.items():
        of_type, selector = supply.types[kind], devices.hint(kind).function_selector
        fitting[kind] = [
            minor
            for minor, free in of_type.free.items()
            if minor in of_type.total
            and all(need <= left for need, left in zip(asked.amounts, free, strict=True) if need)
            and (selector is None or inventory.places[kind][minor].functions)
        ]
    for chosen in combinations(fitting["gpu"], devices.types["gpu"].number):
        if not go_together(devices.gpus, inventory, supply.types["gpu"], chosen):
            continue
        switches = {inventory.places["gpu"][minor].pcie for minor in chosen}
        if devices.types[devices.joint[0]].number < len(switches):
            continue  # of the primary type there are as many as wanted, of others one per switch at least
        if all(
            enough([inventory.places[kind][minor].pcie for minor in fitting[kind]], switches, asked.number)
            for kind, asked in devices.types.items()
            if kind != "gpu"
        ):
            return True
    return False


def enough(places, switches, number):
    on = Counter(place for place in places if place in switches)
    return len(on) == len(switches) and sum(on.values()) >= number and (number >= 1)


def go_together(gpus, inventory, supply, chosen):
    if not gpus.shared:
        groups = (inventory.partitions or {}).get(len(chosen), ())
        partitions = [set(each.minors) for group in groups for each in group]
        if set(chosen) in partitions and not any(supply.used >> minor & 1 for minor in chosen):
            return True  # whatever the scope
        if gpus.honours:
            return False
    if gpus.scope >= 2:
        places = [inventory.places["gpu"][minor] for minor in chosen]
        return len({(place.numa, place.pcie if gpus.scope > 2 else "") for place in places}) == 1
    return True


def compare(seed):
    """(found, refused, found although the default refuses)."""
    rng = Random(f"joint-{seed}")
    things = random_machine(rng)
    world, default = improved(*things), World(*things, numa=False)
    outcomes = Counter()
    for _ in range(6):
        wanted = random_pod(rng)
        expected = exists(world, wanted)
        found = world.plugin._allocating.allocate(world.pod(wanted).shape, world.row())
        assert isinstance(found, Refusal) is not expected, (seed, wanted)
        trial = world.plugin._allocating.trial(world.pod(wanted).shape, world.row())
        assert isinstance(trial, Refusal) is not expected
        before = isinstance(default.plugin._allocating.allocate(default.pod(wanted).shape, default.row()), Refusal)
        outcomes[expected, before] += 1
        if expected:
            holds(world, wanted, found)
        else:
            assert before
    return outcomes


def holds(world, wanted, found):
    """All types are on the same switches, and are as many as wanted."""
    request = world.plugin.compiled.of(world.pod(wanted).shape)
    places = world.plugin.columns.inventory(world.row()).places
    switches = {kind: set() for kind in request.types}
    for each in found:
        switches[each.type].add(places[each.type][each.minor].pcie)
    assert len(set(map(frozenset, switches.values()))) == 1
    counts = Counter(each.type for each in found)
    assert all(counts[kind] >= asked.number for kind, asked in request.devices.types.items())


@pytest.mark.parametrize("first", quick_first(range(0, 400, 50), 2))
def test_joint_allocations_are_found_where_there_are_any(first):
    outcomes = sum((compare(seed) for seed in range(first, first + 50)), Counter())
    assert outcomes[True, False] > 5
    assert outcomes[True, True] > 5
    assert outcomes[False, True] > 5


@pytest.mark.parametrize("seed", fresh_seeds("joint allocations", 30))
def test_joint_allocations_on_fresh_seeds(seed):
    compare(seed)


def test_gpus_that_are_farther_apart_where_nics_are():
    """Two NICs are wanted, and each switch has one: so are two GPUs that are on two switches, though two are on one."""
    machine = [node(), device(*(gpu(n, "8Gi", (str(n // 2), 0)) for n in range(4)), nic(0, ("0", 0)), nic(1, ("1", 0)))]
    wanted = pod(gpu=200, rdma=200, joint={"deviceTypes": ["gpu", "rdma"], "requiredScope": SAME})
    assert World(*machine, numa=False).verdicts(wanted)["n"][2:] == ("node(s) Device Joint-Allocate rules violation",)
    world = improved(*machine)
    assert world.verdicts(wanted) == {"n": ()}
    assert world.place(wanted) == {"gpu": [0, 2], "rdma": [0, 1]}


def test_where_the_first_choice_has_no_nic_a_gpu_near_others_in_use_is_taken():
    """Also if those without a NIC, which are left out and count as in use, are in another NUMA node."""
    machine = [*g8(nics=(2, 3, 4)), used(0, share=50), used(4, share=50)]
    wanted = pod(core=30, ratio=30, rdma=1, joint={"deviceTypes": ["gpu", "rdma"], "requiredScope": SAME})
    assert improved(*machine).place(wanted) == {"gpu": [5], "rdma": [3]}


def test_a_partition_with_nics():
    machine = [*h8(policy="Honor", nics=True), used_nic(1), used_nic(3)]
    wanted = pod(gpu=200, rdma=1, joint={"deviceTypes": ["gpu", "rdma"], "requiredScope": SAME})
    assert World(*machine, numa=False).verdicts(wanted)["n"][1:2] == ("Unschedulable",)
    world = improved(*machine)
    assert world.verdicts(wanted) == {"n": ()}
    assert world.place(wanted) == {"gpu": [4, 5], "rdma": [5, 6]}


# --- exclusive switches, memory -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", fresh_seeds("exclusive switches", 20))
def test_switches_of_their_own(seed):
    """What such a pod is given is on switches of which no device of the type is in use, and it is refused only then."""
    rng = Random(seed)
    things = random_machine(rng)
    world = improved(*things)
    for at in range(8):
        count = rng.randint(1, 3)
        wanted = pod(f"p{at}", hints={"gpu": {"exclusivePolicy": "PCIeLevel"}}, gpu=100 * count)
        plugin, row = world.plugin, world.row()
        places = plugin.columns.inventory(row).places["gpu"]
        in_use = {minor for kind, minor in world.books()["n"]["used"] if kind == "gpu"}
        taken = {places[minor].pcie for minor in in_use if minor in places}
        free = [minor for minor, place in places.items() if place.amounts and place.pcie not in taken]
        said = world.verdicts(wanted)["n"]
        found = world.place(wanted)
        assert (said == ()) is (len(free) >= count)
        if said == ():
            assert set(found["gpu"]) <= set(free)
        else:
            assert found[:2] == said[:2]


def pods_of_memory(rng, at):
    form = rng.choice(["memory", "ratio", "gpu", "both"])
    memory, share = rng.randint(1, 9 * GIB), rng.randint(1, 100)
    amounts = {
        "memory": {"memory": memory},
        "ratio": {"ratio": share},
        "gpu": {"gpu": rng.choice([share, 100, 200])},
        "both": {"core": share, "memory": memory},
    }
    return pod(f"p{at}", **amounts[form])


@pytest.mark.parametrize("seed", fresh_seeds("memory of GPUs", 20))
def test_memory_is_never_given_twice(seed):
    """By bytes and by per cent, in any order; the default gives out more than there is."""
    rng = Random(seed)
    world = improved(*m2())
    placed = 0
    for at in range(60):
        wanted = pods_of_memory(rng, at)
        passes = world.verdicts(wanted)["n"] == ()
        found = world.place(wanted)
        assert isinstance(found, dict) is passes
        placed += passes
        for amounts in world.books()["n"]["used"].values():
            core, memory, ratio, *_ = amounts
            assert core <= 100
            assert memory <= 8 * GIB
            assert ratio <= 100
        if rng.random() < 0.3:
            there = list(world.cluster.assigned.values())
            if there:
                gone = rng.choice(there)
                world.cluster.forget(gone)
    assert placed > 10


def test_the_default_gives_out_more_memory_than_there_is():
    """As upstream does: what a pod is given by bytes is counted by truncated per cent."""
    for args, passes in (({}, True), (IMPROVED, False)):
        world = World(node(), device(gpu(0, "8Gi")), args=args, numa=False)
        for name, memory in (("a", 3 * GIB), ("b", 5 * GIB - 1)):
            assert world.place(pod(name, memory=memory)) == {"gpu": [0]}
        assert (world.verdicts(pod("late", ratio=1))["n"] == ()) is passes


# --- beside the default ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", fresh_seeds("improved and default", 30))
def test_what_the_default_accepts_is_refused_for_a_reason(seed):
    """Memory that is in use already, or switches that are not free."""
    rng = Random(seed)
    things = random_machine(rng)
    world, default = improved(*things), World(*things, numa=False)
    for at in range(12):
        wanted = random_pod(rng) if rng.random() < 0.5 else pods_of_memory(rng, at)
        said, before = world.verdicts(wanted)["n"], default.verdicts(wanted)["n"]
        if before == () and said != ():
            asked = wanted["spec"]["containers"][0]["resources"]["requests"]
            memory = {CORE, MEMORY, RATIO, "koordinator.sh/gpu"} & asked.keys()
            assert memory
            used_memory = [amounts for (kind, _), amounts in world.books()["n"]["used"].items() if kind == "gpu"]
            assert any(ratio * 8 * GIB // 100 != memory for _, memory, ratio, *_ in used_memory)
        world.offline.pending.clear()
        default.offline.pending.clear()


def test_isolation_refuses_a_node_and_not_the_attempt():
    wanted = pod(core=50, ratio=50, labels={"koordinator.sh/gpu-isolation-provider": "HAMi-core"})
    assert World(*g8(), numa=False).verdicts(wanted)["n"][1] == "Error"
    assert improved(*g8()).verdicts(wanted)["n"][1] == "Unschedulable"
