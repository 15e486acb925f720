"""Reservations that hold CPUs and NUMA nodes: what is left of them, who gets what of them, and what they count."""

from random import Random

import pytest

from koordsched.framework.reservations import Reserved
from koordsched.plugins.nodenumaresource import allocation
from koordsched.plugins.nodenumaresource.allocation import Allocation, NUMAAmounts
from koordsched.plugins.nodenumaresource.reserved import ReservedCPUs
from koordsched.plugins.shared import cpuset
from tests.depth import quick_first
from tests.plugins.deviceshare import world as worlds
from tests.plugins.nodenumaresource.machines import detail, holder, node, topology
from tests.plugins.nodenumaresource.machines import pod as plain
from tests.plugins.nodenumaresource.world import NAME, complete, lsr
from tests.plugins.reservation.available import SCHEDULING, available, owner

GIB = 1 << 30
T1 = detail(2, 1, 4)
"""Two NUMA nodes with the CPUs 0-7 and 8-15."""
ZONES = [("8", "64Gi")] * 2
SINGLE = "SingleNUMANode"
NOT_ENOUGH = "not enough cpus available to satisfy request"


class World(worlds.World):
    """With the order of filters that upstream's manifests have."""

    def __init__(self, *objects, args=None):
        super().__init__(
            *objects,
            numa_args=args,
            name="default-scheduler",
            devices=False,
            more={"Reservation": {}},
            filter={"enabled": [{"name": "Reservation"}]},
        )

    @property
    def columns(self):
        return self.profile.plugins[NAME].columns

    def put(self, thing):
        super().put(complete(thing))

    def verdict(self, thing):
        """() or (plugin, *reasons)."""
        found = self.verdicts(complete(thing))["m1"]
        return found and (found[0], *found[2:])

    def given(self, pod):
        """(list of CPUs, {NUMA node: {resource: amount}})."""
        given = self.columns.allocation.of(pod) or allocation.NOTHING
        return cpuset.text(given.cpus), {each.node: dict(each.amounts) for each in given.numa}

    def cpus(self, thing, **options):
        """The CPUs that the pod gets, or why it gets none."""
        found = self.place(complete(thing), "m1", **options)
        return found[0] if len(found) == 2 else found[2:]

    def numa(self, thing, **options):
        """What it gets of NUMA nodes."""
        return self.place(complete(thing), "m1", **options)[1]

    def readings(self):
        """All that is in use, CPU by CPU and by NUMA node."""
        columns = self.columns
        return [
            column.data[self.row("m1")].tolist()
            for column in (columns.holders, columns.used, columns.single, columns.shared)
        ]


def machine(numa_policy=None, cpus=T1, zones=ZONES, **more):
    labels = {"numa_topology_policy": numa_policy} if numa_policy else {}
    return [node("16", "128Gi", **labels, **more), topology(cpus, zones)]


def reserved(cpus=None, name="r", policy="Aligned", *, numa=None, spec=None, cpu=None):
    """A Reservation that holds CPUs, or {NUMA node: (cpu, memory)}; it requests what it holds."""
    status = {"cpuset": cpus} if cpus else {}
    if numa:
        status["numaNodeResources"] = [
            {"node": at, "resources": {"cpu": amounts[0], "memory": amounts[1]}} for at, amounts in numa.items()
        ]
    cpu = cpu or str(cpuset.parse(cpus or "").bit_count() or sum(int(of_node[0]) for of_node in numa.values()))
    return available(name, "m1", policy, status=status, spec=spec, cpu=cpu, memory="8Gi")


def owning(name, cpus=None, reservation="r", **more):
    """A bound owner with these CPUs."""
    thing = holder(name, cpus, cpu=str(cpuset.parse(cpus).bit_count()) if cpus else None, **more)
    return owner(complete(thing), reservation)


# --- on its way to a node ------------------------------------------------------------------------------


def on_its_way(world):
    """The reserve pod of a Reservation that has four CPUs of the node, and is not bound yet."""
    reservation = {**available("r", "", cpu="4", memory="8Gi"), "status": {"phase": "Pending"}}
    reservation["spec"]["template"]["spec"]["schedulerName"] = "default-scheduler"
    world.put(reservation)
    (pod,) = world.offline.pending.values()
    world.cluster.assume(pod, world.row("m1"))
    world.cluster.allocate(pod, world.columns.allocation, Allocation(0b1111, ()))
    return pod


def test_what_a_reservation_was_given_stays_given_when_its_node_is_replaced_before_it_is_bound():
    world = World(*machine())
    empty = world.readings()
    pod = on_its_way(world)
    given = world.readings()
    assert given != empty
    there = machine()[0]
    for _ in range(2):
        world.remove(there)
        world.put(there)
        assert world.readings() == given
        assert world.given(pod) == ("0-3", {})
    world.cluster.forget(pod)
    world.cluster.allocate(pod, world.columns.allocation, None)
    assert world.readings() == empty
    world.cluster.assume(pod, world.row("m1"))
    assert world.readings() == empty, "Reserve decides anew"


def test_a_reservation_whose_node_went_before_it_was_bound_has_no_cpus_on_the_next_one():
    world = World(*machine())
    empty = world.readings()
    pod = on_its_way(world)
    there = machine()[0]
    world.remove(there)
    world.cluster.allocate(pod, world.columns.allocation, None)
    world.cluster.forget(pod)
    world.put(there)
    world.cluster.assume(pod, world.row("m1"))
    assert world.readings() == empty, "Reserve decides anew"


# --- what is left ------------------------------------------------------------------------------------


def some(rng):
    numa = tuple(
        NUMAAmounts(node, tuple((name, rng.randrange(1, 9)) for name in ("cpu", "memory") if rng.random() < 0.8))
        for node in range(3)
        if rng.random() < 0.6
    )
    return Allocation(rng.getrandbits(6), numa)


def sums(*allocations):
    """({(NUMA node, resource): amount}, CPUs)."""
    amounts, cpus = {}, 0
    for given in allocations:
        for numa in given.numa if given is not None else ():
            for name, amount in numa.amounts:
                amounts[numa.node, name] = amounts.get((numa.node, name), 0) + amount
        cpus |= given.cpus if given is not None else 0
    return amounts, cpus


@pytest.mark.parametrize("seed", quick_first(range(300), 50))
def test_what_is_left_and_what_owners_have_is_all_of_it(seed):
    rng = Random(f"less-{seed}")
    whole, owners = some(rng), [some(rng) for _ in range(rng.randrange(3))]
    left = allocation.less(whole, owners)
    (all_of_it, cpus), (used, used_cpus) = sums(whole), sums(*owners)
    expected = {key: max(amount, used.get(key, 0)) for key, amount in {**used, **all_of_it}.items()}
    assert sums(left, *owners) == (expected, cpus | used_cpus)
    assert not sums(left)[1] & used_cpus
    assert left != allocation.NOTHING
    assert left is None or all(numa.amounts for numa in left.numa)
    assert allocation.less(whole, [whole]) is None


# --- what counts -------------------------------------------------------------------------------------


def test_a_reservation_and_its_owners_count_once():
    found = World(*machine(), reserved("0-5", numa={0: ("6", "8Gi")}))
    empty = found.readings()
    found.put(owning("w0", "2-3", numa={0: ("2", "1Gi")}))
    holders, used, *_ = found.readings()
    assert holders[:8] == [1] * 6 + [0] * 2
    assert (used, used[0]) == (empty[1], 6000)
    found.put(owning("w1", "4-7", numa={0: ("4", "1Gi")}))
    holders, used, *_ = found.readings()
    assert holders[:8] == [1] * 8
    assert used[0] == 6000
    for name in ("w0", "w1"):
        found.remove(complete(owning(name, "0")))
    assert found.readings() == empty


def test_it_does_not_matter_which_is_seen_first():
    things = [*machine(), reserved("0-5", numa={0: ("6", "8Gi")}), owning("w0", "2-3", numa={0: ("2", "1Gi")})]
    expected = World(*things).readings()
    for seed in range(12):
        Random(seed).shuffle(things)
        assert World(*things).readings() == expected


# --- CPUs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["", "Aligned", "Restricted"])
def test_nodenumaresource_case_19_reserved_cpus_come_first(policy):
    found = World(*machine(), reserved("4-10", policy=policy))
    assert found.cpus(lsr("x"), keep=False) == "12-15"
    assert found.cpus(owner(complete(lsr()), required=True)) == "4-7"


def test_nodenumaresource_case_19_too_few_left():
    things = [*machine(), owning("w0", "6-9")]
    wanted = owner(complete(lsr()), required=True)
    found = World(*things, reserved("4-9", policy="Restricted", cpu="16"))
    assert found.verdict(wanted) == (NAME, f"Reservation(s) {NOT_ENOUGH}")
    assert World(*things, reserved("4-9", cpu="16")).cpus(wanted) == "4-5,10-11"


def test_nodenumaresource_case_19_what_owners_leave():
    found = World(*machine(), reserved("6-9"), owning("w0", "6-7"))
    assert found.cpus(owner(complete(lsr(cpu="2")), required=True)) == "8-9"


def test_cpus_of_their_own_come_out_of_a_restricted_reservation_alone():
    """Also where it holds no CPUs, but amounts of NUMA nodes."""
    held = reserved(policy="Restricted", numa={0: ("4", "8Gi")})
    wanted = owner(complete(lsr(cpu="2")), required=True)
    assert World(*machine(), held).verdict(wanted) == (NAME, f"Reservation(s) {NOT_ENOUGH}")


def test_whole_cores_of_a_restricted_reservation():
    """Upstream may give the other CPU of a core that the reservation has one of."""
    wanted = owner(complete(lsr(cpu="2", spec={"requiredCPUBindPolicy": "FullPCPUs"})), required=True)
    found = World(*machine(), reserved("1,3", policy="Restricted"))
    assert found.verdict(wanted) == (NAME, f"Reservation(s) {NOT_ENOUGH}")
    assert World(*machine(), reserved("1-3", policy="Restricted")).cpus(wanted) == "2-3"


def test_a_reservation_does_not_keep_its_owner_off_its_cores():
    """The exclusive policy is the same, but only the core of the other owner is kept to itself."""
    spec = {"preferredCPUBindPolicy": "SpreadByPCPUs", "preferredCPUExclusivePolicy": "PCPULevel"}
    found = World(*machine(), reserved("0-7", spec=spec), owning("w0", "0", level="PCPULevel"))
    assert found.cpus(owner(complete(lsr(cpu="2", spec=spec)), required=True)) == "2,4"


def test_pods_that_ignore_reservations_get_their_cpus():
    found = World(*machine(), reserved("0-13"))
    wanted = complete(lsr(cpu="16"))
    assert found.cpus(wanted, keep=False) == (NOT_ENOUGH,)
    wanted["metadata"]["labels"][f"{SCHEDULING}reservation-ignored"] = "true"
    assert found.cpus(wanted) == "0-15"


def test_cpus_of_other_reservations_are_kept():
    """Upstream hands out those of all reservations that the pod might use."""
    found = World(*machine(), reserved("0-3", "r1"), reserved("4-7", "r2"))
    assert found.cpus(owner(complete(lsr(cpu="6")), required=True)) == "0-3,8-9"


def test_a_pod_without_cpus_of_its_own_takes_none():
    found = World(*machine(), reserved("0-3", policy="Restricted"))
    assert found.cpus(owner(complete(plain(memory="1Gi")), required=True)) == ""


# --- NUMA nodes --------------------------------------------------------------------------------------


def aligned(name="p", cpu="4", memory="4Gi", *, required=True):
    return owner(complete(plain(name, cpu, memory)), required=required)


@pytest.mark.parametrize("policy", ["", "Aligned", "Restricted"])
def test_amounts_of_numa_nodes_are_handed_on(policy):
    full = holder("x", numa={0: ("8", "1Gi")}, cpu="8", qos=None)
    found = World(*machine(SINGLE), full, reserved(policy=policy, numa={1: ("6", "8Gi")}))
    assert found.verdict(complete(plain("y", "4", "4Gi"))) != ()
    assert found.verdict(aligned()) == ()
    assert found.numa(aligned()) == {1: {"cpu": 4000, "memory": 4 * GIB}}


@pytest.mark.parametrize(("policy", "gets"), [("Aligned", 0), ("Restricted", 1)])
def test_the_numa_node_of_a_restricted_reservation_is_taken_though_another_has_room(policy, gets):
    found = World(*machine(SINGLE), reserved(policy=policy, numa={1: ("6", "8Gi")}))
    assert found.verdict(aligned()) == ()
    assert found.numa(aligned()).keys() == {gets}


def test_no_more_than_is_left_of_a_restricted_reservation():
    held = reserved(policy="Restricted", numa={1: ("6", "8Gi")}, cpu="16")
    found = World(*machine(SINGLE), held, owning("w0", numa={1: ("3", "1Gi")}, qos=None))
    before = found.readings()
    assert found.verdict(aligned())[1:] == (
        "Reservation(s) Unsatisfied NUMA cpu",
        "Reservation(s) Unsatisfied NUMA memory",
    )
    assert found.readings() == before
    assert found.numa(aligned(cpu="3")) == {1: {"cpu": 3000, "memory": 4 * GIB}}


@pytest.mark.parametrize("ratio", [None, 1.5])
def test_confined_to_cpus_that_count_for_more(ratio):
    """Of what CPUs in use are worth, nothing is taken from what the reservation has left."""
    things = [*machine(SINGLE, ratio=ratio), reserved("0-3", policy="Restricted", numa={0: ("4", "8Gi")})]
    found = World(*things, holder("x", "8-9", {1: ("2", "1Gi")}, "2"))
    wanted = owner(complete(lsr(memory="4Gi")), required=True)
    assert found.verdict(wanted) == ()
    assert found.place(wanted, "m1") == ("0-3", {0: {"cpu": 4000, "memory": 4 * GIB}})


def test_confining_leaves_as_much_as_the_reservation_has_left():
    found = World(*machine(SINGLE, ratio=1.5), reserved("0-3", policy="Restricted", numa={0: ("4", "8Gi")}))
    found.put(holder("x", "8-9", {1: ("2", "1Gi")}, "2"))
    plugin, row, before = found.profile.plugins[NAME], found.row("m1"), found.readings()
    pod = found.cluster.assigned["uid-r"]
    held = Reserved(pod, pod.facts, restricted=True)
    with found.cluster.what_if() as hypothesis:
        hypothesis.remove(pod, row)
        with plugin.confined(row, held):
            left = ReservedCPUs(found.columns)._available(row)
            assert left[:, :2].tolist()[:2] == [[4000, 0], [8 * GIB, 0]]
            assert cpuset.text(found.columns.free(row, found.columns.layout(row))) == "0-3"
    assert found.readings() == before


def test_confining_takes_no_cpus_where_none_are_known():
    found = World(*machine(cpus=None), reserved(numa={0: ("4", "8Gi")}))
    pod = found.cluster.assigned["uid-r"]
    with found.profile.plugins[NAME].confined(found.row("m1"), Reserved(pod, pod.facts, restricted=True)):
        assert found.columns.held(found.row("m1")) == 0


def test_best_effort_keeps_to_a_restricted_reservation():
    found = World(*machine("BestEffort"), reserved(policy="Restricted", numa={1: ("6", "8Gi")}))
    assert found.numa(aligned()) == {1: {"cpu": 4000, "memory": 4 * GIB}}
