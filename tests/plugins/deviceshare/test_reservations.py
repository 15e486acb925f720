"""Reservations that hold devices: what is left of them, who gets what of them, and what they count."""

import asyncio
import json
from random import Random

import pytest

from koordsched.cluster.changelog import Facet
from koordsched.framework.interface import CycleState
from koordsched.plugins.deviceshare.adapters import DevicePluginAdapters
from koordsched.plugins.shared.devices import allocation, kinds
from koordsched.plugins.shared.devices.allocation import Given
from tests.depth import quick_first
from tests.plugins.deviceshare.machines import bound, device, g8, gpu, m2, nic, node, pod, used
from tests.plugins.deviceshare.naive.books import VENDOR
from tests.plugins.deviceshare.naive.request import CORE, JOINT, MEMORY, NPU_CORE, RATIO, RDMA
from tests.plugins.deviceshare.world import DEVICES, NUMA, World
from tests.plugins.reservation.available import SCHEDULING, available, owner

OURS = {"ignoredResourceGroups": ["koordinator.sh", "nvidia.com"]}
GIB = 1 << 30
SINGLE = "SingleNUMANode"


def world(*objects, args=None, reserve=()):
    """With the order of filters that upstream's manifests have; `reserve`: an order at Reserve."""
    points = {
        "filter": {"enabled": [{"name": "Reservation"}]},
        "reserve": {"enabled": [{"name": name} for name in reserve]},
    }
    return World(*objects, args=args, more={"Reservation": OURS}, **points)


def gpus(*minors, share=100, memory=80):
    """The annotation for so much of each of these GPUs."""
    amounts = {CORE: str(share), RATIO: str(share), MEMORY: f"{memory * share // 100}Gi"}
    return [{"minor": minor, "resources": amounts} for minor in minors]


def reserved(name="r", policy="Aligned", **devices):
    """A Reservation that holds these devices: what it requests is their sum."""
    amounts = {"cpu": "8", "memory": "8Gi"}
    for listed in devices.values():
        for resource in {resource for each in listed for resource in each["resources"]} - {MEMORY}:
            amounts[resource] = str(sum(int(each["resources"].get(resource, 0)) for each in listed))
    return available(name, policy=policy, devices=devices, amounts=amounts)


# --- what is left ------------------------------------------------------------------------------------


def some(rng):
    """Devices, of which some come twice and some have virtual functions."""
    found = []
    for _ in range(rng.randrange(4)):
        kind = rng.choice(["gpu", "gpu", "rdma"])
        names = ("a", "b") if kind == "gpu" else ("c",)
        amounts = tuple((name, rng.randrange(1, 5)) for name in names if rng.random() < 0.8)
        functions = tuple((f"bus{at}", -1) for at in range(3) if kind == "rdma" and rng.random() < 0.4)
        found.append(Given(kind, rng.randrange(3), amounts, "", functions))
    return tuple(found)


def sums(*allocations):
    """({(type, minor, resource): amount}, {virtual functions})."""
    amounts, functions = {}, set()
    for each in (each for given in allocations for each in given or ()):
        for name, amount in each.amounts:
            key = (each.type, each.minor, name)
            amounts[key] = amounts.get(key, 0) + amount
        functions |= {(each.type, each.minor, bus_id) for bus_id, _ in each.functions}
    return amounts, functions


@pytest.mark.parametrize("seed", quick_first(range(300), 50))
def test_what_is_left_and_what_owners_have_is_all_of_it(seed):
    rng = Random(f"less-{seed}")
    whole, owners = some(rng), [some(rng) for _ in range(rng.randrange(3))]
    left = allocation.less(whole, owners)
    all_of_it, functions = sums(whole)
    used, used_functions = sums(*owners)
    expected = {key: max(amount, used.get(key, 0)) for key, amount in {**used, **all_of_it}.items()}
    assert sums(left, *owners) == (expected, functions | used_functions)
    assert not sums(left)[1] & used_functions
    assert left is None or all(each.amounts or each.functions for each in left)
    assert not owners or allocation.less(whole, [whole]) is None


# --- what counts -------------------------------------------------------------------------------------


def test_a_reservation_and_its_owners_count_once():
    found = world(*m2(), reserved(gpu=gpus(0, share=50, memory=8)))
    assert found.books()["n"]["used"] == {("gpu", 0): [50, 4 * GIB, 50, 0, 0, 0]}
    found.put(owner(bound(pod("w0", gpu=25), "w0", gpu=[(0, {"core": 25, "ratio": 25})]), "r"))
    assert found.books()["n"]["used"] == {("gpu", 0): [50, 4 * GIB, 50, 0, 0, 0]}
    found.put(owner(bound(pod("w1", gpu=50), "w1", gpu=[(1, {"core": 50, "ratio": 50})]), "r"))
    assert found.books()["n"]["used"] == {
        ("gpu", 0): [50, 4 * GIB, 50, 0, 0, 0],
        ("gpu", 1): [50, 0, 50, 0, 0, 0],
    }
    found.remove(owner(pod("w0")))
    found.remove(owner(pod("w1")))
    assert found.books()["n"]["used"] == {("gpu", 0): [50, 4 * GIB, 50, 0, 0, 0]}


def test_it_does_not_matter_which_is_seen_first():
    w0 = owner(bound(pod("w0", gpu=25), "w0", gpu=[(0, {"core": 25, "ratio": 25})]), "r")
    things = [*m2(), reserved(gpu=gpus(0, share=50, memory=8)), w0]
    expected = world(*things).books()
    for seed in range(12):
        Random(seed).shuffle(things)
        assert world(*things).books() == expected


# --- deviceshare spec 7, cases 30 and 31 ---------------------------------------------------------------


def partly(name="r", policy="Aligned"):
    return reserved(name, policy, gpu=gpus(0, share=50, memory=8))


def test_deviceshare_case_30_from_a_reservation():
    full = [used(1), bound(pod("x", gpu=50), "x", gpu=[(0, {"core": 50, "ratio": 50, "memory": 4 * GIB})])]
    found = world(*m2(), partly(), *full)
    assert found.verdicts(pod("y", gpu=50))["n"] == (DEVICES, "Unschedulable", "Insufficient gpu devices")
    wanted = owner(pod("p", core=50, memory="4Gi"), required=True)
    assert found.verdicts(wanted)["n"] == ()
    assert found.place(wanted) == {"gpu": [0]}
    assert amounts(found, "p") == [{CORE: 50, MEMORY: 4 * GIB, RATIO: 50}]
    more = owner(pod("q", core=60, memory="5Gi"), required=True)
    refused = (DEVICES, "Unschedulable", "Reservation(s) Insufficient gpu devices")
    assert world(*m2(), partly(), *full).verdicts(more)["n"] == refused


def test_deviceshare_case_31_no_more_than_is_left_of_a_restricted_one():
    w0 = owner(bound(pod("w0", gpu=25), "w0", gpu=[(0, {"core": 25, "ratio": 25, "memory": 2 * GIB})]), "r")
    found = world(*m2(), partly(policy="Restricted"), w0, used(1))
    wanted = owner(pod("p", core=50, memory="4Gi"), required=True)
    refused = (DEVICES, "Unschedulable", "Reservation(s) Insufficient gpu devices")
    assert found.verdicts(wanted)["n"] == refused
    assert found.verdicts(owner(pod("q", core=50, memory="4Gi")))["n"] == ()
    assert found.place(owner(pod("q", core=50, memory="4Gi"))) == {"gpu": [0]}
    assert found.place(owner(pod("w1", core=25, memory="2Gi"), required=True)) == {"gpu": [0]}


def amounts(found, name):
    given = found.plugin.columns.allocation.of(found.cluster.assigned[f"uid-{name}"]) or ()
    return [dict(each.amounts) for each in given]


# --- which devices -----------------------------------------------------------------------------------


def apart():
    """Two GPUs and two NICs of which nothing is known where they are."""
    return [node(), device(gpu(0), gpu(1), gpu(2), nic(0), nic(1))]


def test_reserved_devices_come_first():
    found = world(*apart(), reserved(gpu=gpus(2), rdma=[{"minor": 1, "resources": {RDMA: "100"}}]))
    assert found.place(pod("x", gpu=100, rdma=100), keep=False) == {"gpu": [0], "rdma": [0]}
    assert found.place(owner(pod(gpu=100, rdma=100))) == {"gpu": [2], "rdma": [1]}
    assert found.books()["n"]["used"].keys() == {("gpu", 2), ("rdma", 1)}


def test_a_pod_may_have_more_than_an_aligned_reservation_holds():
    found = world(*apart(), reserved(gpu=gpus(2)))
    assert found.place(owner(pod(gpu=200), required=True)) == {"gpu": [2, 0]}


def test_a_restricted_reservation_gives_what_it_holds_alone():
    found = world(*apart(), reserved(policy="Restricted", gpu=gpus(2)))
    refused = (DEVICES, "Unschedulable", "Reservation(s) Insufficient gpu devices")
    assert found.verdicts(owner(pod(gpu=200), required=True))["n"] == refused
    # Of other types it gives what the node has.
    assert found.place(owner(pod(gpu=100, rdma=100), required=True)) == {"gpu": [2], "rdma": [0]}


def test_of_an_exhausted_type_nothing_is_given():
    """Upstream forgets about the GPUs once none are left, as long as there are NICs (deviceshare spec 6)."""
    held = reserved(policy="Restricted", gpu=gpus(0), rdma=[{"minor": 1, "resources": {RDMA: "100"}}])
    w0 = owner(bound(pod("w0", gpu=100), "w0", gpu=[(0, {"core": 100, "ratio": 100, "memory": 80 * GIB})]), "r")
    found = world(*g8(), held, w0)
    assert found.verdicts(owner(pod(gpu=100), required=True))["n"][-1] == "Reservation(s) Insufficient GPU Devices"


def test_what_the_reservation_does_not_hold_of_a_gpu_is_the_nodes():
    share = [{"minor": 0, "resources": {RATIO: "50", MEMORY: "40Gi"}}]
    found = world(*m2(), device(gpu(0)), reserved(policy="Restricted", gpu=share))
    assert found.place(owner(pod(core=30, ratio=50), required=True)) == {"gpu": [0]}


def test_a_pod_that_no_reservation_suffices_for_gets_free_devices():
    """Upstream gives it those of the reservations, too."""
    small, other = reserved("r1", "Restricted", gpu=gpus(1, share=50)), reserved("r2", "Restricted", gpu=gpus(0))
    for listed in (other["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"], other["status"]):
        listed.get("allocatable", listed)["cpu"] = "500m"
    found = world(*apart(), small, other)
    assert found.place(owner(pod("p", gpu=100))) == {"gpu": [2]}
    refused = (DEVICES, "Unschedulable", "Insufficient gpu devices")
    assert found.verdicts(owner(pod("q", gpu=100)))["n"] == refused


@pytest.mark.parametrize("ignored", [False, True])
def test_pods_that_ignore_reservations_get_what_they_hold(ignored):
    labels = {f"{SCHEDULING}reservation-ignored": "true"} if ignored else {}
    found = world(*m2(), reserved(gpu=gpus(0, 1, memory=8)))
    wanted = pod(gpu=200, labels=labels)
    if not ignored:
        assert found.verdicts(wanted)["n"] == (DEVICES, "Unschedulable", "Insufficient gpu devices")
        return
    assert found.verdicts(wanted)["n"] == ()
    assert found.place(wanted) == {"gpu": [0, 1]}


def test_virtual_functions_are_handed_on():
    """Upstream leaves those that a reservation holds where they are."""
    bus = "0000:10:00"
    held = [
        {"minor": 0, "resources": {RDMA: "100"}, "extension": {"vfs": [{"minor": -1, "busID": f"{bus}.2"}]}},
    ]
    found = world(node(), device(nic(0, bus=bus, functions=1)), reserved(rdma=held))
    hints = {"rdma": {"vfSelector": {}}}
    assert found.books()["n"]["functions"] == {("rdma", 0): {f"{bus}.2"}}
    assert found.place(owner(pod(rdma=100, hints=hints), required=True)) == {"rdma": [0]}
    assert found.books()["n"]["functions"] == {("rdma", 0): {f"{bus}.2"}}


# --- where devices are ---------------------------------------------------------------------------------


def test_on_a_scope_tree_reserved_gpus_do_not_come_first():
    """As upstream; with improvedAllocation they do."""
    held = reserved(gpu=gpus(6))
    assert world(*g8(), used(0), held).place(owner(pod(gpu=100))) == {"gpu": [1]}
    improved = {"improvedAllocation": True}
    found = world(*g8(), used(0), held, args=improved)
    assert found.place(owner(pod(gpu=100)), keep=False) == {"gpu": [6]}
    for required in (False, True):
        assert found.place(owner(pod(gpu=200), required=required), keep=False) == {"gpu": [2, 3]}


def test_a_restricted_reservation_on_a_scope_tree():
    """GPUs of one switch, where others are in use already."""
    held = reserved(policy="Restricted", gpu=gpus(2, 3, 4, 5))
    found = world(*g8(), used(6), held)
    assert found.place(owner(pod("p", gpu=200), required=True)) == {"gpu": [4, 5]}
    assert found.place(owner(pod("q", gpu=100), required=True)) == {"gpu": [2]}


def test_joint_devices_of_a_restricted_reservation():
    joint = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
    held = reserved(policy="Restricted", gpu=gpus(4, 5), rdma=[{"minor": 3, "resources": {RDMA: "100"}}])
    found = world(*g8(), held)
    wanted = owner(pod(gpu=200, rdma=100, joint=joint), required=True)
    assert found.verdicts(wanted)["n"] == ()
    assert found.place(wanted) == {"gpu": [4, 5], "rdma": [3]}
    assert JOINT in wanted["metadata"]["annotations"]


@pytest.mark.parametrize("policy", ["", "Aligned", "Restricted"])
def test_numa_nodes_are_those_of_the_reservation(policy):
    """Its GPUs are all that is left, in the second NUMA node; CPUs are left in both."""
    held = reserved(policy=policy, gpu=gpus(6, 7))
    found = world(*g8(numa_policy=SINGLE), used(0, 1, 2, 3, 4, 5), held)
    assert found.verdicts(pod("x", gpu=200))["n"][0] == NUMA
    wanted = owner(pod(gpu=200), required=True)
    assert found.verdicts(wanted)["n"] == ()
    assert found.place(wanted) == {"gpu": [6, 7]}
    status = found.cluster.pod_facts
    numa = next(fact for fact in status if fact.annotation == f"{SCHEDULING}resource-status")
    assert [each.node for each in numa.of(found.cluster.assigned["uid-p"]).numa] == [1]


def test_the_numa_node_of_a_restricted_reservation_is_taken_though_another_has_room():
    held = reserved(policy="Restricted", gpu=gpus(6, 7))
    found = world(*g8(numa_policy=SINGLE), held)
    wanted = owner(pod(gpu=200), required=True)
    assert found.verdicts(wanted)["n"] == ()
    assert found.place(wanted) == {"gpu": [6, 7]}
    before = found.books()
    more = owner(pod("q", gpu=300), required=True)
    assert found.verdicts(more)["n"] != ()
    assert found.books() == before


# --- several on a node -----------------------------------------------------------------------------------


def test_a_pod_uses_one_alone():
    """Each has half of what it asks for."""
    held = [reserved(name, "Restricted", gpu=gpus(at)) for at, name in enumerate(("r1", "r2"))]
    found = world(*m2(), *held)
    assert found.verdicts(owner(pod(gpu=200), required=True))["n"] == (
        DEVICES,
        "Unschedulable",
        "Reservation(s) Insufficient gpu devices",
        "Reservation(s) Insufficient gpu devices",
    )
    assert found.verdicts(owner(pod(gpu=100), required=True))["n"] == ()


def test_the_one_that_devices_fill_best_is_used():
    """Of CPU and memory they have as much left."""
    held = [reserved("r1", "Restricted", gpu=gpus(0, 1)), reserved("r2", "Restricted", gpu=gpus(2))]
    for each in held:
        each["status"]["allocatable"] = {"cpu": "8", "memory": "8Gi"}
    found = world(*apart(), *held, args=scoring("MostAllocated"))
    assert found.place(owner(pod(gpu=100), required=True)) == {"gpu": [2]}
    found = world(*apart(), *held, args=scoring("LeastAllocated"))
    assert found.place(owner(pod(gpu=100), required=True))["gpu"] in ([0], [1])


def scoring(strategy):
    resources = [{"name": RATIO, "weight": 1}]
    return {"scoringStrategy": {"type": strategy, "resources": resources}}


def test_nodes_are_scored_by_what_a_restricted_reservation_has():
    """Of its two GPUs one is left, of eight seven; memory is not asked for, and counts as much."""
    found = world(*g8(), *g8("m"), reserved(policy="Restricted", gpu=gpus(0, 1)))
    wanted = owner(pod(gpu=100))
    found.put(wanted)
    attempt = found.offline.attempt("default/p")
    attempt.filter(all_nodes=True)
    scores = {each.plugin: each.raw.tolist() for each in attempt.score().by_plugin(found.profile.chains)}
    assert scores[DEVICES] == [75, 93]
    assert len(set(scores["Reservation"])) == 2


# --- preemption ----------------------------------------------------------------------------------------


def test_what_is_left_without_an_owner_while_the_reservation_is_away():
    """As in the dry runs of a pod that could use it: owners are evicted in what-ifs."""
    w0 = owner(bound(pod("w0", gpu=25), "w0", gpu=[(0, {"core": 25, "ratio": 25, "memory": 2 * GIB})]), "r")
    found = world(*m2(), partly(policy="Restricted"), w0, used(1))
    reserve_pod, evicted, row = found.cluster.assigned["uid-r"], found.cluster.assigned["uid-w0"], found.row()
    before, left = found.books(), found.plugin.columns.allocation.of(reserve_pod)
    with found.cluster.what_if() as hypothesis:
        hypothesis.remove(reserve_pod, row)
        hypothesis.remove(evicted, row)
        (whole,) = found.plugin.columns.allocation.of(reserve_pod)
        assert dict(whole.amounts) == {CORE: 50, RATIO: 50, MEMORY: 4 * GIB}
        assert ("gpu", 0) not in found.books()["n"]["used"]
    assert found.plugin.columns.allocation.of(reserve_pod) == left
    assert found.books() == before


# --- reserve pods themselves ---------------------------------------------------------------------------


def waiting(thing):
    """The Reservation before it has a node."""
    return {**thing, "metadata": {**thing["metadata"], "annotations": {}}, "status": {}}


def placed(found, name="r"):
    """The cycle and the reserve pod, after Reserve."""
    attempt = found.offline.attempt(f"default/uid-{name}")
    attempt.filter(all_nodes=True)
    cycle, reserve_pod, row = attempt.cycle, attempt.pod, found.row()
    found.cluster.assume(reserve_pod, row)
    for plugin in found.profile.reserve_plugins:
        assert plugin.reserve(cycle, reserve_pod, row).ok
    return cycle, reserve_pod


def test_pre_bind_changes_nothing_but_the_annotation():
    """It may run while a transaction of a gang is paused, in which the pod may even be away."""
    found = world(*g8())
    member, row, log = found.pod(pod("p", gpu=100)), found.row(), found.cluster.table.log
    cycle = CycleState(member)
    found.profile.filtering.filter(cycle)
    found.cluster.assume(member, row)
    for plugin in found.profile.reserve_plugins:
        assert plugin.reserve(cycle, member, row).ok
    before = found.plugin.columns.allocation.of(member), found.books()
    found.cluster.begin()
    order = found.cluster.evict(member)
    with found.cluster.paused():
        assert asyncio.run(found.plugin.pre_bind(cycle, member, "n")).ok
    found.cluster.restore(member, row, order)
    stamp = log.stamps(Facet.RESOURCES)[row]
    with found.cluster.paused():
        assert asyncio.run(found.plugin.pre_bind(cycle, member, "n")).ok
    assert log.stamps(Facet.RESOURCES)[row] == stamp
    found.cluster.end()
    assert (found.plugin.columns.allocation.of(member), found.books()) == before
    assert before[0]
    text = cycle.patch.changes(None)["annotations"][f"{SCHEDULING}device-allocated"]
    assert json.loads(text)["gpu"][0]["id"] == "GPU-0"


def test_what_a_reserve_pod_is_given_is_written_and_read_back():
    found = world(*g8(), waiting(reserved(gpu=gpus(0))))
    cycle, reserve_pod = placed(found)
    plugin = found.plugin
    assert plugin.pre_bind_pre_flight(cycle, reserve_pod, "n").ok
    assert asyncio.run(plugin.pre_bind(cycle, reserve_pod, "n")).ok
    text = cycle.patch.changes(None)["annotations"][f"{SCHEDULING}device-allocated"]
    assert json.loads(text)["gpu"][0]["id"] == "GPU-0"
    counted = found.books()
    assert counted["n"]["used"] == {("gpu", 0): [100, 80 * GIB, 100, 0, 0, 0]}
    assert world(*g8(), reserved(gpu=json.loads(text)["gpu"])).books() == counted


def test_a_reservation_does_not_lock_its_node():
    """Here nothing can be written to nodes; vendors' annotations are those of a pod."""
    labels = {VENDOR: "cambricon"}
    found = world(node(labels=labels), device(gpu(0, "16Gi"), labels=labels), waiting(reserved(gpu=gpus(0))))
    cycle, reserve_pod = placed(found)
    report = found.cluster.objects.of(kinds.DEVICES).get("", "n")
    given = found.plugin.columns.allocation.of(reserve_pod)
    adapters = DevicePluginAdapters(found.profile.handle)
    assert asyncio.run(adapters.adapt(cycle, reserve_pod, given, report)).ok
    assert cycle.patch.changes(None)["annotations"]["CAMBRICON_DSMLU_PROFILE"] == "0_100_64"
    refused = asyncio.run(adapters.adapt(cycle, found.pod(pod()), given, report))
    assert "failed to patch node" in refused.message


def taking(**devices):
    """A Reservation that takes over the devices of a running pod."""
    thing = waiting(reserved(policy="Restricted", **devices))
    thing["spec"]["preAllocation"] = True
    return thing


@pytest.mark.parametrize("machine", [g8, lambda: [node(), device(*map(gpu, range(8)))]], ids=["scopes", "generic"])
def test_pre_allocation_takes_the_devices_of_the_pod(machine):
    old = owner(bound(pod("old", gpu=100), "old", gpu=[(6, {"core": 100, "ratio": 100, "memory": 80 * GIB})]))
    found = world(*machine(), old, taking(gpu=gpus(6)))
    _, reserve_pod = placed(found)
    assert found.given(reserve_pod) == {}, "the pod has all of it"
    assert found.books()["n"]["used"] == {("gpu", 6): [100, 80 * GIB, 100, 0, 0, 0]}
    found.remove(old)
    assert found.given(reserve_pod) == {"gpu": [6]}
    assert found.books()["n"]["used"] == {("gpu", 6): [100, 80 * GIB, 100, 0, 0, 0]}


def test_pre_allocation_takes_all_devices_of_the_pod_or_none():
    halves = [(minor, {"rdma": 50}) for minor in range(2)]
    old, other = (bound(pod(name, rdma=100), name, rdma=halves) for name in ("old", "other"))
    wanted = taking(rdma=[{"minor": 0, "resources": {RDMA: "50"}}])
    found = world(node(), device(nic(0), nic(1)), owner(old), other, wanted)
    attempt = found.offline.attempt("default/uid-r")
    attempt.filter(all_nodes=True)
    found.cluster.assume(attempt.pod, found.row())
    statuses = [plugin.reserve(attempt.cycle, attempt.pod, found.row()) for plugin in found.profile.reserve_plugins]
    assert [status.reasons for status in statuses if not status.ok] == [("Insufficient rdma devices",)]


def test_pre_allocation_takes_numa_nodes_as_well():
    """What the reserve pod is given of one kind does not make it forget what it gave away of another."""
    amounts = [{"node": 1, "resources": {"cpu": "1", "memory": "1Gi"}}]
    old = bound(pod("old", gpu=100), "old", gpu=[(6, {"core": 100, "ratio": 100, "memory": 80 * GIB})])
    old["metadata"]["annotations"][f"{SCHEDULING}resource-status"] = json.dumps({"numaNodeResources": amounts})
    old, full = owner(old), used(0, 1, 2, 3)
    for order in ((NUMA, DEVICES, "Reservation"), ("Reservation", NUMA, DEVICES)):
        found = world(*g8(numa_policy=SINGLE), full, old, taking(gpu=gpus(6)), reserve=order)
        cycle, reserve_pod = placed(found)
        assert asyncio.run(found.plugin.pre_bind(cycle, reserve_pod, "n")).ok
        numa = found.profile.plugins[NUMA].columns.allocation
        assert found.books()["n"]["used"]["gpu", 6] == [100, 80 * GIB, 100, 0, 0, 0], "what the pod has counts once"
        found.remove(old)
        assert found.given(reserve_pod) == {"gpu": [6]}
        ((node_of, held),) = numa.of(reserve_pod).numa
        assert (node_of, dict(held)) == (1, {"cpu": 8000, "memory": 8 * GIB})
        found.profile.run_unreserve(cycle, reserve_pod, found.row())
        found.cluster.forget(reserve_pod)
        assert found.books()["n"]["used"].keys() == {("gpu", minor) for minor in range(4)}


def test_a_reservation_that_is_refused_counts_nothing_any_more():
    """Also if a running pod had all of it."""
    old = owner(bound(pod("old", gpu=100), "old", gpu=[(6, {"core": 100, "ratio": 100, "memory": 80 * GIB})]))
    found = world(*g8(), old, taking(gpu=gpus(6)), reserve=("Reservation", NUMA, DEVICES))
    before = found.books()
    cycle, reserve_pod = placed(found)
    found.profile.run_unreserve(cycle, reserve_pod, found.row())
    found.cluster.forget(reserve_pod)
    found.remove(old)
    found.cluster.assume(reserve_pod, found.row())
    assert found.books()["n"]["used"] == {}
    found.cluster.forget(reserve_pod)
    found.put(old)
    assert found.books() == before


def raw_scores(found, thing):
    """DeviceShare's raw scores, by node."""
    found.put(thing)
    explained = found.offline.explain(f"{thing['metadata']['namespace']}/{thing['metadata']['name']}")
    assert explained.scored
    return {each.name: each.scores[DEVICES].raw for each in explained.nodes if each.feasible}


@pytest.mark.parametrize(
    ("share", "policy", "expected"),
    [
        ((50, 50), "Aligned", 100 - (50 + 50) // 2),  # of 200: 50 that "b" keeps, 50 of the pod
        ((50,), "Aligned", 100 - 50 // 2),
        ((50, 50), "Restricted", 0),  # of the GPU of the reservation nothing is left but what the pod takes
    ],
)
def test_a_node_is_scored_by_the_reservation_that_the_pod_would_use(share, policy, expected):
    """Others that it might use as well keep what they hold: it uses one alone."""
    found = world(*m2(), *m2("other"), args={"scoringStrategy": LEAST})
    for name, minor, amount in zip("ab", (0, 1), share, strict=False):
        found.put(reserved(name, policy, gpu=gpus(minor, share=amount, memory=8)))
    scores = raw_scores(found, owner(pod(gpu=50), required=False))
    assert scores == {"n": expected, "other": 100 - 50 // 2}


def test_resources_that_no_device_has_do_not_count_in_scores():
    resources = [{"name": name, "weight": 1} for name in (RATIO, NPU_CORE)]
    found = world(*m2(), *m2("other"), args={"scoringStrategy": {**LEAST, "resources": resources}})
    found.put(reserved(gpu=gpus(0, share=50, memory=8)))
    assert raw_scores(found, owner(pod(gpu=50))) == dict.fromkeys(("n", "other"), 100 - 50 // 2)


def test_a_reservation_without_devices_makes_its_node_worth_nothing():
    """As upstream: its owner gets devices of the node all the same."""
    found = world(*m2(), *m2("other"), args={"scoringStrategy": LEAST})
    found.put(available("r", cpu="8", memory="8Gi"))
    assert raw_scores(found, owner(pod(gpu=50)))["n"] == 0


LEAST = {"type": "LeastAllocated", "resources": [{"name": RATIO, "weight": 1}]}
