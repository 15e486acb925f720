"""Whatever happens in whatever order: the books are what the objects say, and no CPU is given to two pods."""

import json
from copy import deepcopy
from random import Random

import pytest

from tests.depth import quick_first
from tests.plugins.nodenumaresource import cpusets
from tests.plugins.nodenumaresource.machines import detail, holder, node, pod, topology
from tests.plugins.nodenumaresource.world import NAME, World, lsr, named, on

NODES = ("m1", "m2", "m3")
PREFIX = "scheduling.koordinator.sh/"


class Life:
    """Nodes, reports and pods come, change and go; pods are placed, confirmed, refused, resized and moved."""

    def __init__(self, seed):
        self.rng = Random(f"books-{seed}")
        self.world = World()
        self.objects = {}
        """(kind, name) -> the object as the API server has it."""
        self.assumed = {}
        """Name -> (what was placed, node, annotations), not confirmed yet."""
        self.numbers = 0
        self.placed = 0

    def put(self, thing):
        self.objects[thing["kind"], thing["metadata"]["name"]] = thing
        self.world.put(thing)

    def remove(self, key):
        self.world.remove(self.objects.pop(key))

    def names(self, kind):
        return [name for of, name in self.objects if of == kind]

    def step(self):
        rng = self.rng
        match rng.randrange(10):
            case 0 | 1:
                labels = {}
                if rng.random() < 0.5:
                    policies = ["SingleNUMANode", "Restricted", "BestEffort", "x", ""]
                    labels["numa_topology_policy"] = rng.choice(policies)
                if rng.random() < 0.3:
                    labels["cpu_bind_policy"] = rng.choice(["FullPCPUsOnly", "SpreadByPCPUs"])
                self.put(named(node("64", ratio=rng.choice([None, None, 1.5]), **labels), rng.choice(NODES)))
            case 2 | 3:
                self.put(named(self.report(), rng.choice(NODES)))
            case 4:
                kinds = [key for key in self.objects if key[0] != "Pod"]
                if kinds and rng.random() < 0.4:
                    self.remove(rng.choice(kinds))
            case 5 | 6:
                self.place()
            case 7:
                self.end(rng.choice(list(self.assumed))) if self.assumed else None
            case 8:
                self.numbers += 1
                cpus = f"{rng.randrange(8)},{8 + rng.randrange(60)}"
                numa = rng.choice([None, {rng.randrange(3): ("2", "1Gi")}])
                self.put(on(holder(f"foreign{self.numbers}", cpus, numa, "1"), rng.choice([*NODES, "elsewhere"])))
            case _:
                self.change_pod()

    def report(self):
        rng = self.rng
        if rng.random() < 0.1:
            return topology(None)
        sockets, cores = rng.choice([1, 2]), rng.choice([2, 4, 8])
        cpus = detail(sockets, 1, cores, apart=rng.random() < 0.3)
        zones = [(str(2 * cores), "64Gi")] * sockets if rng.random() < 0.9 else ()
        return topology(cpus, zones)

    def place(self):
        rng, world = self.rng, self.world
        self.numbers += 1
        cpu = str(rng.randint(1, 5))
        made = (
            lsr(f"p{self.numbers}", cpu=cpu, memory="1Gi")
            if rng.random() < 0.7
            else pod(f"p{self.numbers}", cpu, "1Gi")
        )
        if rng.random() < 0.3:
            made["metadata"]["annotations"][f"{PREFIX}numa-topology-spec"] = '{"numaTopologyPolicy": "SingleNUMANode"}'
        fits = [name for name, said in world.verdicts(made).items() if said == ("Success",)]
        if not fits:
            return
        name = rng.choice(fits)
        taken, before = cpusets.ids(world.held(name)), world.readings()
        said, written = world.place(made, name, keep=True)
        if said != ("Success",):
            assert world.readings() == before
            return
        given = cpusets.ids(written.get("resource-status", {}).get("cpuset"))
        assert not given & taken
        assert len(given) in (0, int(cpu))
        self.assumed[made["metadata"]["name"]] = made, name, written
        self.placed += 1

    def end(self, name):
        """The binding of an assumed pod succeeds, or not."""
        made, where, written = self.assumed.pop(name)
        if self.rng.random() < 0.7:
            bound = on(deepcopy(made), where)
            bound["metadata"]["annotations"] |= {PREFIX + key: json.dumps(value) for key, value in written.items()}
            self.put(bound)
            return
        pod = self.world.cluster.assigned[f"uid-{name}"]
        if self.world.columns.allocation.of(pod) is not None:
            self.world.cluster.allocate(pod, self.world.columns.allocation, None)
        self.world.cluster.forget(pod)

    def change_pod(self):
        rng, names = self.rng, self.names("Pod")
        if not names:
            return
        name = rng.choice(names)
        if rng.random() < 0.5:
            self.remove(("Pod", name))
            return
        changed = deepcopy(self.objects["Pod", name])
        if rng.random() < 0.5:
            changed["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(rng.randint(1, 6))
        else:
            text = rng.choice(['{"cpuset": "1-2"}', "{}", "{", '{"cpuset": "70"}'])
            changed["metadata"]["annotations"][f"{PREFIX}resource-status"] = text
        self.put(changed)

    def expected(self):
        """The readings of a world that sees the objects at once, assumed pods as if they were bound."""
        things = list(self.objects.values())
        for made, where, written in self.assumed.values():
            bound = on(deepcopy(made), where)
            bound["metadata"]["annotations"] |= {PREFIX + key: json.dumps(value) for key, value in written.items()}
            things.append(bound)
        self.rng.shuffle(things)
        return World(*things).readings()


@pytest.mark.parametrize("seed", quick_first(range(40), 5))
def test_the_books_are_what_the_objects_say(seed):
    life = Life(seed)
    for step in range(160):
        life.step()
        if step % 8 == 7:
            assert life.world.readings() == life.expected(), step
    while life.assumed:
        life.end(next(iter(life.assumed)))
    assert life.world.readings() == life.expected()
    for key in life.rng.sample(list(life.objects), len(life.objects)):
        life.remove(key)
    assert life.world.readings() == {}
    columns = life.world.profile.plugins[NAME].columns
    for column in (columns.holders, columns.used, columns.single, columns.shared):
        assert not column.data.any()
    assert life.placed > 3
