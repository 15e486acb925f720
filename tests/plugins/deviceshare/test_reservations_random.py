"""Reservations of devices, CPUs and NUMA nodes, with owners and other pods that come and go at random: nothing is given
out twice, owners of a restricted Reservation keep to it, and whatever is tried leaves no trace."""

import json
from collections import Counter
from copy import deepcopy
from random import Random

import pytest

from koordsched.plugins.shared import cpuset
from koordsched.plugins.shared.devices.resources import NAMES
from tests.depth import quick_first
from tests.parity.fresh import fresh_seeds
from tests.plugins.deviceshare.machines import device, g8, gpu, h8, nic, node, pod, topology
from tests.plugins.deviceshare.naive.request import ALLOCATED, CORE, HINT, JOINT, RATIO, RDMA
from tests.plugins.deviceshare.test_with_cpus import lsr
from tests.plugins.deviceshare.world import NUMA, World
from tests.plugins.reservation.available import SCHEDULING, available, owner

COMPARED = (CORE, RATIO, RDMA)
"""Resources that pods here ask for. Memory is worked out from the share and may be rounded."""
OURS = {"ignoredResourceGroups": ["koordinator.sh", "nvidia.com"]}


def machine(rng):
    match rng.randrange(5):
        case 0:
            return [node(), topology("n", 2), device(*map(gpu, range(4)), nic(0, functions=2), nic(1, functions=2))]
        case 1:
            return [*h8(nics=True), topology("n", 2)]
        case 2:
            return [*g8(), topology("n", 2)]
        case _:
            return g8(numa_policy=rng.choice(["SingleNUMANode", "Restricted", "BestEffort"]))


def asked(rng):
    """What a pod or a Reservation asks for."""
    return rng.choice([{"gpu": 50}, {"gpu": 100}, {"gpu": 200}, {"rdma": 1}, {"gpu": 100, "rdma": 1}, {"gpu": 400}, {}])


class Life:
    """One node; Reservations are scheduled as pods, and pods use them. `optional`: some owners do not need one."""

    def __init__(self, seed, args=None, *, optional=False):
        self.rng = Random(f"reservations-{seed}")
        self.machine, self.args, self.optional = machine(self.rng), args, optional
        self.world = self.make()
        self.objects = {}
        self.count = 0
        self.counted = Counter()

    def make(self):
        points = {"filter": {"enabled": [{"name": "Reservation"}]}}
        return World(*self.machine, args=self.args, more={"Reservation": OURS}, **points)

    # --- what happens ----------------------------------------------------------------------------------

    def step(self):
        match self.rng.randrange(8):
            case 0 | 1:
                self.reserve()
            case 2 | 3 | 4:
                self.put(owned=True)
            case 5:
                self.put(owned=False)
            case _:
                self.end()

    def named(self, name):
        self.count += 1
        return f"{name}{self.count}"

    def pod_of(self, name):
        rng, wanted = self.rng, pod(name, **asked(self.rng))
        requests = wanted["spec"]["containers"][0]["resources"]["requests"]
        if RDMA in requests and rng.random() < 0.6:
            wanted["metadata"]["annotations"][HINT] = '{"rdma":{"vfSelector":{}}}'
        if RDMA in requests and len(requests) > 3:
            wanted["metadata"]["annotations"][JOINT] = '{"deviceTypes":["gpu","rdma"]}'
        return lsr(wanted, rng.choice([2, 4, 8])) if rng.random() < 0.5 else wanted

    def reserve(self):
        name = self.named("r")
        like = self.pod_of(name)
        made = available(name, policy=self.rng.choice(["Aligned", "Restricted"]))
        made["status"] = {}
        template = {"metadata": {"labels": like["metadata"]["labels"]}, "spec": like["spec"]}
        made["spec"]["template"] = template
        made["metadata"]["annotations"] = like["metadata"]["annotations"]
        self.world.put(made)
        written = self.place(f"default/uid-{name}")
        if written is None:
            self.world.remove(made)
            return
        made = deepcopy(made)
        made["metadata"]["annotations"] |= written
        made["metadata"]["resourceVersion"] = "2"
        requests = like["spec"]["containers"][0]["resources"]["requests"]
        made["status"] = {"phase": "Available", "nodeName": "n", "allocatable": requests}
        self.confirm("Reservation", name, made)

    def put(self, *, owned):
        name = self.named("p")
        made = self.pod_of(name)
        if owned:
            made = owner(made, required=not self.optional or self.rng.random() < 0.4)
        self.world.put(made)
        written = self.place(f"default/{name}")
        if written is None:
            self.world.remove(made)
            return
        made = deepcopy(made)
        made["metadata"]["annotations"] |= written
        made["spec"]["nodeName"] = "n"
        made["status"] = {"phase": "Running"}
        self.confirm("Pod", name, made)
        if f"{SCHEDULING}reservation-allocated" in written:
            self.keeps_to_its_reservation(made)
        assert owned or f"{SCHEDULING}reservation-allocated" not in written

    def confirm(self, kind, name, made):
        self.objects[kind, name] = made
        before = self.readings()
        self.world.put(made)
        assert self.readings() == before, "what was placed counts as what is seen"
        self.counted[kind] += 1

    def end(self):
        if self.objects:
            self.world.remove(self.objects.pop(self.rng.choice(list(self.objects))))

    def place(self, key):
        """The annotations that are written, None if the pod is refused. The pod stays assumed."""
        world, before = self.world, self.readings()
        attempt = world.offline.attempt(key)
        attempt.filter(all_nodes=True)
        assert self.readings() == before
        if not attempt.verdicts.feasible:
            return None
        attempt.score()
        cycle, wanted, row = attempt.cycle, attempt.pod, world.row()
        world.cluster.assume(wanted, row)
        for plugin in world.profile.reserve_plugins:
            status = plugin.reserve(cycle, wanted, row)
            if not status.ok:
                world.profile.run_unreserve(cycle, wanted, row)
                world.cluster.forget(wanted)
                assert self.readings() == before
                raise AssertionError(f"it passed Filter: {status}")
        if self.rng.random() < 0.2:
            world.profile.run_unreserve(cycle, wanted, row)
            world.cluster.forget(wanted)
            assert self.readings() == before
            return None
        return {
            fact.annotation: fact.text(value)
            for fact in world.cluster.pod_facts
            if (value := fact.of(wanted)) is not None
        }

    # --- what holds --------------------------------------------------------------------------------------

    def readings(self):
        cpus = self.world.profile.plugins[NUMA].columns
        row = self.world.row()
        return self.world.books(), cpus.holders.data[row].tolist(), cpus.used.data[row].tolist()

    def nothing_is_given_twice(self):
        books, holders, _ = self.readings()
        assert max(holders) <= 1
        for (kind, minor), amounts in books["n"]["used"].items():
            offered = books["n"]["offered"][kind, minor]
            for name, amount, there in zip(NAMES[kind], amounts, offered, strict=True):
                assert name not in COMPARED or amount <= there, (kind, minor, name)
        functions = Counter(
            function["busID"]
            for thing in self.objects.values()
            if thing["kind"] == "Pod"
            for each in json.loads(thing["metadata"]["annotations"].get(ALLOCATED, "{}")).get("rdma", ())
            for function in each.get("extension", {}).get("vfs", ())
        )
        assert not functions or max(functions.values()) == 1

    def the_books_are_what_the_objects_say(self):
        """A scheduler that starts anew counts the same."""
        fresh = Life.__new__(Life)
        fresh.world = self.make()
        for thing in self.rng.sample(list(self.objects.values()), len(self.objects)):
            fresh.world.put(thing)
        for of_fresh, ours in zip(fresh.in_use(), self.in_use(), strict=True):
            assert of_fresh == ours

    def in_use(self):
        books, holders, used = self.readings()
        return books["n"]["used"], books["n"]["functions"], holders, used

    def keeps_to_its_reservation(self, made):
        annotations = made["metadata"]["annotations"]
        used = json.loads(annotations[f"{SCHEDULING}reservation-allocated"])
        held = self.objects["Reservation", used["name"]]
        self.counted[held["spec"]["allocatePolicy"]] += 1
        if held["spec"]["allocatePolicy"] != "Restricted":
            return
        whole, part = (json.loads(thing["metadata"]["annotations"].get(ALLOCATED, "{}")) for thing in (held, made))
        for kind, listed in part.items():
            if kind in whole:
                assert {each["minor"] for each in listed} <= {each["minor"] for each in whole[kind]}
        whole, part = (cpus_of(thing) for thing in (held, made))
        assert not whole or not part & ~whole
        self.counted["restricted devices"] += bool(annotations.get(ALLOCATED))
        self.counted["restricted CPUs"] += bool(part)


def cpus_of(thing):
    text = thing["metadata"]["annotations"].get(f"{SCHEDULING}resource-status", "{}")
    return cpuset.parse(json.loads(text).get("cpuset", ""))


def lived(seed, args=None, steps=60, **options):
    """A life, in which all that must hold holds at each step."""
    life = Life(seed, args, **options)
    for step in range(steps):
        life.step()
        life.nothing_is_given_twice()
        if step % 10 == 9:
            life.the_books_are_what_the_objects_say()
    while life.objects:
        life.end()
    books, holders, used = life.readings()
    assert (books["n"]["used"], books["n"]["functions"]) == ({}, {})
    assert not any(holders)
    assert not any(used)
    return life.counted


@pytest.mark.parametrize("seed", quick_first(range(60), 6))
def test_nothing_is_given_out_twice(seed):
    lived(seed)


@pytest.mark.parametrize("seed", fresh_seeds("reservations with devices", 6))
def test_nothing_is_given_out_twice_on_fresh_seeds(seed):
    lived(seed, {"improvedAllocation": True})


@pytest.mark.parametrize("seed", quick_first(range(40), 4))
def test_owners_that_need_no_reservation(seed):
    lived(seed, optional=True)


def test_all_of_it_happens():
    counted = sum((lived(seed) for seed in range(8)), Counter())
    for what in ("Reservation", "Pod", "Aligned", "Restricted", "restricted devices", "restricted CPUs"):
        assert counted[what] > 2, counted
