"""Whatever happens in whatever order: the columns are what the objects say, and no device is given out twice."""

from copy import deepcopy
from random import Random

import pytest

from koordsched.plugins.shared.devices.resources import NAMES
from tests.depth import quick_first
from tests.plugins.deviceshare.machines import bound, device, fpga, g8, gpu, h8, nic, node, pod
from tests.plugins.deviceshare.naive.books import MODEL, POLICY, TABLE
from tests.plugins.deviceshare.naive.request import ALLOCATED, CORE, HINT, JOINT, RATIO, RDMA
from tests.plugins.deviceshare.world import World

NODES = ("n1", "n2", "n3")
TEXTS = ("{}", "{", '{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"30"}}]}', '{"gpu":[{"minor":130}]}')
COMPARED = (CORE, RATIO, RDMA)
"""Resources that pods here ask for."""
ANY_FUNCTION = '{"rdma":{"vfSelector":{}}}'


class Life:
    """Nodes, Devices and pods come, change and go; pods are placed, confirmed, refused and given other devices."""

    def __init__(self, seed):
        self.rng = Random(f"device-books-{seed}")
        self.world = World()
        self.objects = {}
        """(kind, name) -> the object as the API server has it."""
        self.assumed = {}
        """Name -> (what was placed, node, its annotation), not confirmed yet."""
        self.departed = set()
        """Nodes whose Device is gone: something is known of it still."""
        self.numbers = self.placed = self.functions = 0

    def put(self, thing):
        self.objects[thing["kind"], thing["metadata"]["name"]] = thing
        if thing["kind"] == "Device":
            self.departed.discard(thing["metadata"]["name"])
        self.world.put(thing)

    def remove(self, key):
        self.world.remove(self.objects.pop(key))
        kind, name = key
        if kind == "Device" and ("Node", name) in self.objects:
            self.departed.add(name)
        if kind == "Node":
            self.departed.discard(name)

    def step(self):
        rng = self.rng
        match rng.randrange(11):
            case 0:
                labels = rng.choice([{}, {MODEL: "H800"}, {MODEL: "H800", POLICY: "Honor"}])
                self.put(node(rng.choice(NODES), labels))
            case 1 | 2 | 3:
                self.put(self.report(rng.choice(NODES)))
            case 4:
                kinds = [key for key in self.objects if key[0] != "Pod"]
                if kinds and rng.random() < 0.4:
                    self.remove(rng.choice(kinds))
            case 5 | 6 | 7:
                self.place()
            case 8:
                self.end(rng.choice(list(self.assumed))) if self.assumed else None
            case 9:
                self.numbers += 1
                given = {"gpu": [(rng.randrange(10), {"ratio": 50, "core": 20})]}
                if rng.random() < 0.3:
                    given["rdma"] = [(rng.randrange(3), {"rdma": 1})]
                wanted = pod(f"foreign{self.numbers}", gpu=50)
                self.put(bound(wanted, f"foreign{self.numbers}", rng.choice([*NODES, "elsewhere"]), **given))
            case _:
                self.change_pod()

    def report(self, name):
        rng = self.rng
        if rng.random() < 0.2:
            return rng.choice([g8, h8])(name)[-1]
        sick = rng.choice([0, 0, 0.4])
        gpus = [gpu(minor, health=rng.random() >= sick) for minor in range(rng.choice([0, 1, 4, 9]))]
        nics = [nic(minor, functions=rng.choice([0, 2])) for minor in range(rng.choice([0, 2]))]
        made = device(*gpus, *nics, *(fpga(minor) for minor in range(rng.choice([0, 1]))), name=name)
        if rng.random() < 0.2:
            made["metadata"]["annotations"][TABLE] = '{"1":[{"minors":[0]}],"2":[{"minors":[0,1]},{"minors":[2,3]}]}'
        return made

    def place(self):
        rng, world = self.rng, self.world
        self.numbers += 1
        amounts = rng.choice([{"gpu": 50}, {"nvidia": 1}, {"nvidia": 2}, {"rdma": 1}, {"gpu": 100, "rdma": 1}])
        made = pod(f"p{self.numbers}", **amounts)
        if "rdma" in amounts and rng.random() < 0.7:
            made["metadata"]["annotations"][HINT] = ANY_FUNCTION
        if len(amounts) > 1:
            made["metadata"]["annotations"][JOINT] = '{"deviceTypes":["gpu","rdma"]}'
        fits = [name for name, said in world.verdicts(made).items() if said == ()]
        world.offline.pending.pop(f"default/{made['metadata']['name']}", None)
        if not fits:
            return
        name = rng.choice(fits)
        before = world.books()
        given = world.place(made, name)
        if isinstance(given, tuple):
            assert world.books() == before
            return
        self.check(before[name], self.allocated(made))
        annotation = world.plugin.columns.allocation.text(self.allocated(made)) if given else None
        self.assumed[made["metadata"]["name"]] = made, name, annotation
        self.placed += bool(given)

    def allocated(self, made):
        pod = self.world.cluster.assigned[made["metadata"]["uid"]]
        return self.world.plugin.columns.allocation.of(pod) or ()

    def check(self, before, given):
        """There was as much of what was asked for; memory that was worked out from a share may exceed what is left."""
        for each in given:
            device = each.type, each.minor
            there = dict(zip(NAMES[each.type], before["offered"][device], strict=True))
            used = dict(zip(NAMES[each.type], before["used"].get(device, [0] * len(there)), strict=True))
            for name, amount in each.amounts:
                assert name not in COMPARED or amount + used[name] <= there[name]
            assert not {bus_id for bus_id, _ in each.functions} & set(before["functions"].get(device, ()))
            self.functions += len(each.functions)

    def confirmed(self, name):
        made, where, annotation = self.assumed[name]
        made = deepcopy(made)
        if annotation is not None:
            made["metadata"]["annotations"][ALLOCATED] = annotation
        return {**made, "spec": {**made["spec"], "nodeName": where}, "status": {"phase": "Running"}}

    def end(self, name):
        """The binding of an assumed pod succeeds, or not."""
        confirmed = self.confirmed(name)
        _, _, annotation = self.assumed.pop(name)
        if self.rng.random() < 0.7:
            self.put(confirmed)
            return
        pod = self.world.cluster.assigned[f"uid-{name}"]
        if annotation is not None:
            self.world.cluster.allocate(pod, self.world.plugin.columns.allocation, None)
        self.world.cluster.forget(pod)

    def change_pod(self):
        rng, names = self.rng, [name for kind, name in self.objects if kind == "Pod"]
        if not names:
            return
        name = rng.choice(names)
        if rng.random() < 0.6:
            self.remove(("Pod", name))
            return
        changed = deepcopy(self.objects["Pod", name])
        changed["metadata"]["annotations"][ALLOCATED] = rng.choice(TEXTS)
        self.put(changed)

    def expected(self):
        """The books of a world that sees the objects at once, assumed pods as if they were bound; without nodes of
        whose Device something is known still."""
        things = [*self.objects.values(), *map(self.confirmed, self.assumed)]
        self.rng.shuffle(things)
        return self.known(World(*things))

    def known(self, world):
        return {name: books for name, books in world.books().items() if name not in self.departed}


@pytest.mark.parametrize("seed", quick_first(range(40), 5))
def test_the_columns_are_what_the_objects_say(seed):
    life = Life(seed)
    for step in range(160):
        life.step()
        if step % 8 == 7:
            assert life.known(life.world) == life.expected(), step
    while life.assumed:
        life.end(next(iter(life.assumed)))
    assert life.known(life.world) == life.expected()
    for key in life.rng.sample(list(life.objects), len(life.objects)):
        life.remove(key)
    assert life.world.books() == {}
    columns = life.world.plugin.columns
    for column in (columns.holders, columns.functions, *columns.used.values()):
        assert not column.data.any()
    assert not columns._taken or not any(columns._taken.values())
    assert not life.world.plugin.nodes._by_name
    assert life.placed > 3


def test_virtual_functions_are_given():
    """So that what is said of them above says something."""
    lives = [Life(seed) for seed in range(3)]
    for life in lives:
        for _ in range(160):
            life.step()
    assert sum(life.functions for life in lives) > 3
