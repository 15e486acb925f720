"""Whatever happens, in whatever order: columns and verdicts are as if the scheduler had only seen what is there in the
end, and many rows at once are decided as one after the other."""

import json
from random import Random

import numpy as np
import pytest

from koordsched.engine.transaction import Transaction
from koordsched.framework.interface import CycleState
from koordsched.framework.overlay import Overlay
from koordsched.framework.status import PASS
from koordsched.plugins.deviceshare.reasons import Refusal
from koordsched.plugins.nodenumaresource.kinds import RESOURCE_STATUS
from tests.depth import quick_first
from tests.parity.fresh import fresh_seeds
from tests.plugins.deviceshare.randomstates import CONFIGMAP, Draw
from tests.plugins.deviceshare.world import ALLOCATED, NUMA, PROFILE, World, configuration, key, profile
from tests.plugins.nodenumaresource.cluster import row_state

NODES = ("n0", "n1", "n2", "n3")
ASKED = 5


class Walk:
    """Steps applied to a world, and what is there in the end.

    `there`: (kind, name) -> object; `assumed`: name -> cycle of pods that were placed and are not confirmed; `deleted`:
    Devices that are gone though their nodes are there, which stay known as unhealthy.
    """

    def __init__(self, seed, *, improved=False, numa=True):
        self.rng = Random(f"walk-{seed}")
        self.draw = Draw(self.rng, 0, 0, odd=False)
        args = {**self.draw.state.args, **({"improvedAllocation": True} if improved else {})}
        self.document = configuration(profile(args, numa=numa))
        self.world = World(document=self.document)
        self.allocations = {ALLOCATED: self.world.plugin.columns.allocation}
        if numa:
            self.allocations[RESOURCE_STATUS] = self.world.profile.plugins[NUMA].columns.allocation
        self.there, self.assumed, self.deleted, self.seen = {}, {}, {}, {}
        self.serial = self.placed = self.refused = self.passed = 0
        for thing in self.draw.state.objects:
            self.put(thing)
        for name in NODES:
            self.machine_comes(name)
        self.asked = [self.pending(f"asked-{at}") for at in range(ASKED)]
        for thing in self.asked:
            self.world.put(thing)

    # --- objects ---------------------------------------------------------------------------------------

    def put(self, thing):
        self.there[thing["kind"], thing["metadata"]["name"]] = thing
        if thing["kind"] == "Device":
            self.deleted.pop(thing["metadata"]["name"], None)
        self.world.put(thing)

    def remove(self, kind, name):
        thing = self.there.pop((kind, name), None)
        if thing is None:
            return
        if kind == "Node":
            self.deleted.pop(name, None)
        elif kind == "Device" and ("Node", name) in self.there:
            self.deleted[name] = thing
        self.world.remove(thing)

    def drawn(self, name):
        """A machine with what is on it."""
        before = len(self.draw.state.objects)
        self.draw.node(name)
        return self.draw.state.objects[before:]

    def machine_comes(self, name=None):
        """By a known name; its reports come in any order, and pods before their node."""
        things = self.drawn(name or self.rng.choice(NODES))
        for thing in things:
            if thing["kind"] == "Pod":
                self.serial += 1
                thing["metadata"] |= {"name": f"h{self.serial}", "uid": f"h{self.serial}"}
        if self.rng.random() < 0.5:
            self.rng.shuffle(things)
        for thing in things:
            self.put(thing)

    def machine_goes(self):
        """The node with its Device, one without the other, or with the pods on it."""
        name = self.rng.choice(NODES)
        kinds = [kind for kind in ("Node", "Device", "NodeResourceTopology") if self.rng.random() < 0.6]
        for kind in kinds:
            self.remove(kind, name)
        if self.rng.random() < 0.5:
            for thing in [thing for thing in self.there.values() if thing.get("spec", {}).get("nodeName") == name]:
                self.pod_goes(thing["metadata"]["name"])

    def node_changes(self):
        """Other labels."""
        node = self.there.get(("Node", self.rng.choice(NODES)))
        if node is not None:
            other = next(thing for thing in self.drawn("other") if thing["kind"] == "Node")
            labels = {**other["metadata"]["labels"], "kubernetes.io/hostname": node["metadata"]["name"]}
            self.put({**node, "metadata": {**node["metadata"], "labels": labels}})

    def device_changes(self):
        """Devices fail, heal, go or come; or there are others altogether."""
        rng, name = self.rng, self.rng.choice(NODES)
        device = self.there.get(("Device", name))
        if device is None or rng.random() < 0.3:
            others = [thing for thing in self.drawn("other") if thing["kind"] == "Device"]
            for other in others:
                self.put({**other, "metadata": {**other["metadata"], "name": name}})
            return
        entries = [dict(entry) for entry in device["spec"]["devices"]]
        for entry in entries:
            if rng.random() < 0.3:
                entry["health"] = not entry["health"]
        if entries and rng.random() < 0.3:
            entries.pop(rng.randrange(len(entries)))
        metadata = device["metadata"]
        if rng.random() < 0.3:
            metadata = {**metadata, "annotations": {}, "labels": {}}
        self.put({**device, "metadata": metadata, "spec": {"devices": entries}})

    def templates_change(self):
        """They appear, change, or go."""
        if self.rng.random() < 0.5:
            self.remove("ConfigMap", CONFIGMAP["metadata"]["name"])
        else:
            data = CONFIGMAP["data"]["data.yaml"]
            text = self.rng.choice([data, data.replace("vir02_too", "vir03"), data.replace('"4"', '"3"')])
            self.put({**CONFIGMAP, "data": {"data.yaml": text}})

    # --- pods ------------------------------------------------------------------------------------------

    def pending(self, name):
        self.serial += 1
        thing = self.draw.pod(name, self.rng.randrange(10))
        thing["metadata"]["uid"] = f"{name}-{self.serial}"
        thing["spec"]["schedulerName"] = PROFILE
        return thing

    def pods(self, bound):
        return sorted(
            name
            for (kind, name), thing in self.there.items()
            if kind == "Pod" and bool(thing["spec"].get("nodeName")) is bound and name not in self.assumed
        )

    def pod_comes(self):
        self.serial += 1
        self.put(self.pending(f"w{self.serial}"))

    def pod_changes(self):
        """Its annotation says something else."""
        names = self.pods(bound=True)
        if not names:
            return
        pod = self.there["Pod", self.rng.choice(names)]
        other = self.there["Pod", self.rng.choice(names)]
        annotations = {**pod["metadata"]["annotations"]}
        annotations.pop(ALLOCATED, None)
        if self.rng.random() < 0.7:
            annotations[ALLOCATED] = other["metadata"]["annotations"].get(ALLOCATED, "{}")
        self.put({**pod, "metadata": {**pod["metadata"], "annotations": annotations}})

    def pod_goes(self, name=None):
        names = self.pods(bound=True)
        if name is None and names:
            name = self.rng.choice(names)
        if name is not None:
            self.assumed.pop(name, None)
            self.remove("Pod", name)

    def place(self):
        """A pod that waits is placed where it passes, and that is kept or not."""
        names, world = self.pods(bound=False), self.world
        if not names:
            return
        thing = self.there["Pod", self.rng.choice(names)]
        passing = [name for name, said in world.verdicts(thing).items() if not said]
        if not passing:
            return
        row = world.row(self.rng.choice(passing))
        cycle = CycleState(world.offline.pending[key(thing)])
        world.profile.filtering.filter(cycle)
        before = world.books()
        with Transaction(world.cluster, world.offline.nominator) as transaction:
            if transaction.place(cycle, world.profile, row).ok and self.rng.random() < 0.8:
                transaction.commit()
                self.assumed[thing["metadata"]["name"]] = cycle
                self.placed += world.plugin.columns.allocation.of(cycle.pod) is not None
                return
        assert world.books() == before

    def binding_ends(self):
        """It is confirmed as it was decided, or with another annotation, or on another node; or it has failed."""
        if not self.assumed:
            return
        rng, world = self.rng, self.world
        name = rng.choice(sorted(self.assumed))
        cycle = self.assumed.pop(name)
        what = rng.random()
        if what < 0.3:
            world.profile.run_unreserve(cycle, cycle.pod, cycle.pod.row)
            world.profile.run_unreserve(cycle, cycle.pod, cycle.pod.row)
            assert world.cluster.forget(cycle.pod)
            return
        thing = self.confirmed(name, cycle)
        if what > 0.7:
            thing["metadata"]["annotations"][ALLOCATED] = json.dumps({"gpu": [self.draw.held("gpu", rng.randrange(9))]})
        if what > 0.85:
            thing["spec"]["nodeName"] = rng.choice(NODES)
        self.put(thing)

    def confirmed(self, name, cycle):
        """The object of an assumed pod as it is about to be, with what it was given of devices and of NUMA nodes."""
        thing = self.there["Pod", name]
        annotations = {**thing["metadata"]["annotations"]}
        for annotation, allocation in self.allocations.items():
            annotations.pop(annotation, None)
            if allocation.of(cycle.pod) is not None:
                annotations[annotation] = allocation.text(allocation.of(cycle.pod))
        metadata = {**thing["metadata"], "annotations": annotations}
        return {**thing, "metadata": metadata, "spec": {**thing["spec"], "nodeName": cycle.pod.node}}

    def what_if(self):
        """Pods are tried away from their row, and back."""
        world = self.world
        before = world.books()
        there = sorted((pod for pod in world.cluster.assigned.values() if pod.row >= 0), key=lambda pod: pod.uid)
        with world.cluster.what_if() as hypothesis:
            for pod in self.rng.sample(there, min(3, len(there))):
                hypothesis.remove(pod, pod.row)
                if self.rng.random() < 0.5:
                    hypothesis.add(pod, pod.row)
        assert world.books() == before
        if there:
            away = self.rng.choice(there)
            overlay = Overlay()
            overlay.without(away.row, away)
            with overlay.applied(world.cluster, None):
                pass
            assert world.books() == before

    # --- what is to hold -------------------------------------------------------------------------------

    def step(self):
        """Something happens."""
        steps = {
            self.machine_comes: 1, self.machine_goes: 1, self.node_changes: 2, self.device_changes: 4,
            self.templates_change: 1, self.pod_comes: 5, self.pod_changes: 1, self.pod_goes: 4, self.place: 8,
            self.binding_ends: 4, self.what_if: 2,
        }  # fmt: skip
        (happening,) = self.rng.choices(list(steps), list(steps.values()))
        happening()
        return happening.__name__

    def rebuilt(self):
        """A world that heard of what is there, in any order."""
        things = [
            self.confirmed(name, self.assumed[name]) if kind == "Pod" and name in self.assumed else thing
            for (kind, name), thing in self.there.items()
        ]
        world = World(*self.rng.sample(things, len(things)), document=self.document)
        for device in self.deleted.values():
            world.put(device)
            world.remove(device)
        return world

    def check(self, happened):
        """As a rebuild; rows that changed say so, so that verdicts kept of them are not stale."""
        world, rebuilt = self.world, self.rebuilt()
        books = world.books()
        assert books == rebuilt.books(), happened
        assert numa_books(world) == numa_books(rebuilt), happened
        for name, now in books.items():
            row = world.row(name)
            before, serial = self.seen.get((name, row), (None, -1))
            stamp = world.table.log.stamp(row, world.plugin.columns.facets)
            assert now == before or stamp > serial, happened
            self.seen[name, row] = now, stamp
        for thing in [*self.asked, self.pending("fresh")]:
            self.one_by_one(thing)
            said = world.verdicts(thing)
            assert said == rebuilt.verdicts(thing), happened
            self.passed += sum(not each for each in said.values())
            self.refused += sum(bool(each) and each[0] == "DeviceShare" for each in said.values())
        world.offline.pending.pop("default/fresh", None)

    def one_by_one(self, thing):
        """Many rows as single ones and as trials; scores likewise."""
        world, plugin, table = self.world, self.world.plugin, self.world.table
        shape = world.pod(thing).shape
        if plugin.skips(shape):
            return
        rows = np.array(sorted(table.row_of.values()), dtype=np.intp)
        for every in (rows, rows[::-1].copy(), table.all_rows):
            asked = every if isinstance(every, np.ndarray) else np.arange(every.start, every.stop)
            codes = plugin._feasibility.codes(shape, table, every)
            scores = plugin.score_rows(shape, table, every)
            for at, row in enumerate(asked.tolist()):
                if row not in rows:
                    continue
                code = 0 if codes is None else int(codes[at])
                one = plugin._feasibility.codes(shape, table, slice(row, row + 1))
                assert code == (0 if one is None else int(one[0]))
                assert code == self.tried(shape, row)
                assert int(scores[at]) == int(plugin.score_rows(shape, table, slice(row, row + 1))[0])

    def tried(self, shape, row):
        plugin = self.world.plugin
        feasibility, request = plugin._feasibility, plugin.compiled.of(shape)
        refusal = feasibility._ruled_out(request.devices, plugin.columns.inventory(row))
        if refusal is None and feasibility.is_known(row):
            found = plugin._allocating.trial(shape, row)
            refusal = found if isinstance(found, Refusal) else None
        return PASS if refusal is None else feasibility.refusal_code(refusal)


def numa_books(world):
    """All that the columns of NodeNUMAResource say, by node; nothing where it is not enabled."""
    plugin = world.profile.plugins.get(NUMA)
    return {name: row_state(plugin.columns, row) for name, row in world.table.row_of.items()} if plugin else {}


def walk(seed, steps, **options):
    walked, happened = Walk(seed, **options), []
    for _ in range(steps):
        happened.append(walked.step())
        walked.check(happened[-8:])
    return walked


@pytest.mark.parametrize("improved", quick_first([False, True], 1))
@pytest.mark.parametrize("first", quick_first(range(0, 24, 3), 1))
def test_after_every_step_as_a_rebuild(first, improved):
    walks = [walk(seed, 40, improved=improved, numa=bool(seed % 2)) for seed in range(first, first + 3)]
    assert sum(each.placed for each in walks) > 1
    assert sum(each.refused for each in walks) > 100
    assert sum(each.passed for each in walks) > 100


@pytest.mark.parametrize("seed", fresh_seeds("devices over time", 4))
def test_after_every_step_as_a_rebuild_on_fresh_seeds(seed):
    walk(seed, 30, improved=bool(seed % 2), numa=bool(seed // 2 % 2))
