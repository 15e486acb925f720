"""CPUs and NUMA nodes are given alike wherever it is asked: live, simulated, explained, replayed, from a snapshot."""

import asyncio
import json
from random import Random

import msgspec
import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cli.simulation import Simulation
from koordsched.engine.explain import explain
from koordsched.plugins import IN_TREE
from koordsched.plugins.nodenumaresource import kinds
from koordsched.scheduling.offline import OfflineScheduler
from koordsched.scheduling.snapshot import snapshot
from tests.depth import quick_first
from tests.journal.recording import Recorded, consider, repeat
from tests.plugins.harness import StoppedClock
from tests.plugins.nodenumaresource.machines import detail, holder, node, topology
from tests.plugins.nodenumaresource.randomstates import HINT, random_state
from tests.plugins.nodenumaresource.running import api_server, put, remove, where
from tests.plugins.nodenumaresource.world import NAME, complete, configuration, lsr, named, on, resolved
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run

WRITTEN = (kinds.RESOURCE_STATUS, kinds.RESOURCE_SPEC)


def machines():
    """Nodes of different sizes, so that one of them is always better; some pods run there."""
    made = []
    for name, memory, labels, sockets, per_socket, cores in (
        ("a", "61Gi", {}, 2, 1, 4),
        ("b", "97Gi", {"numa_topology_policy": "SingleNUMANode"}, 2, 2, 3),
        ("c", "130Gi", {"cpu_bind_policy": "FullPCPUsOnly"}, 1, 1, 7),
        ("d", "71Gi", {"numa_topology_policy": "Restricted", "numa_allocate_strategy": "MostAllocated"}, 2, 1, 5),
        ("e", "83Gi", {"numa_topology_policy": "BestEffort"}, 2, 1, 6),
    ):
        cpus = detail(sockets, per_socket, cores, apart=name in "ad")
        numa = sockets * per_socket
        made.append(named(node(str(len(cpus)), memory, **labels), name))
        made.append(named(topology(cpus, [(str(len(cpus) // numa), f"{int(memory[:-2]) // numa}Gi")] * numa), name))
        made.append(on(holder(f"held-{name}", "0-1,5", cpu="3", memory="1Gi"), name))
        made[-1]["spec"]["priority"] = 2_000_000
    ratio = named(node(cpu="36", memory="113Gi", ratio=1.5), "f")
    return [*made, ratio, named(topology(detail(2, 1, 6), [("12", "56Gi")] * 2), "f")]


def workload(seed):
    """Pods of many kinds, the most important first."""
    state = random_state(seed, nodes=1, pending=40)
    rng = Random(seed)
    pods = []
    for thing in state.pending:
        if HINT in thing["metadata"]["annotations"]:
            continue
        thing["spec"] |= {"schedulerName": "default-scheduler", "priority": thing["spec"].get("priority", 0)}
        thing["metadata"]["annotations"].pop(kinds.RESOURCE_STATUS, None)
        resources = thing["spec"]["containers"][0]["resources"]
        limited = [name for name in resources["requests"] if name not in ("cpu", "memory")]  # or the pod is invalid
        resources["limits"] = {name: resources["requests"][name] for name in limited}
        if rng.random() < 0.3:
            thing["metadata"]["labels"]["koordinator.sh/priority-class"] = "koord-prod"
        pods.append(complete(thing))
    return sorted(pods, key=lambda thing: -thing["spec"]["priority"])


def offline(*objects):
    """An offline scheduler with these objects."""
    things = map(complete, objects)
    return OfflineScheduler(resolved(configuration()), IN_TREE, things, clock=StoppedClock(), rng=Random(1))


def given(scheduler):
    """namespace/name -> (node, what the pod was given), of all pods on nodes."""
    fact = scheduler.profiles["default-scheduler"].plugins[NAME].columns.allocation
    return {
        pod.key: (pod.node, fact.text(fact.of(pod)) if fact.of(pod) is not None else None)
        for pod in scheduler.cluster.assigned.values()
    }


def books(scheduler):
    """What is counted on each node."""
    columns = scheduler.profiles["default-scheduler"].plugins[NAME].columns
    found = {}
    for name, row in sorted(scheduler.cluster.table.row_of.items()):
        layout = columns.layout(row)
        used = columns.amounts_of(columns.used, slice(row, row + 1))[0].tolist()
        found[name] = (
            columns.mode.data.item(row),
            columns.held(row),
            layout and columns.free(row, layout),
            {
                (resource, at): n
                for resource, of in zip(columns.resources, used, strict=True)
                for at, n in enumerate(of)
                if n
            },
            columns.single.data[row].tolist(),
            columns.shared.data[row].tolist(),
        )
    return found


def allocation(text):
    """An annotation by value; one of nothing is none."""
    return None if text in (None, "{}") else json.loads(text)


def lived(seed):
    """Pods come one by one: (their nodes, what was written on them, why they wait, the books)."""

    async def main():
        embedded = api_server(*map(complete, machines()))
        life = Recorded(embedded, configuration())
        pods = workload(seed)
        async with life.running() as scheduler:
            for thing in pods:
                embedded.insert(thing)
                await asyncio.sleep(1)
            await asyncio.sleep(3)
            stored = {
                f"default/{thing['metadata']['name']}": embedded.get("Pod", thing["metadata"]["name"]) for thing in pods
            }
            nodes = {key: thing["spec"].get("nodeName", "") for key, thing in stored.items()}
            written = {key: thing["metadata"].get("annotations", {}) for key, thing in stored.items()}
            waiting = {
                key: thing["status"]["conditions"][0].get("message") for key, thing in stored.items() if not nodes[key]
            }
            return pods, nodes, written, waiting, books(scheduler)

    return run(main())


@pytest.mark.parametrize("seed", [16, 17, 18, 23])  # no two nodes are equally good for a pod
def test_simulated_and_explained_as_live(seed):
    pods, nodes, written, waiting, counted = lived(seed)
    simulated = offline(*machines(), *pods)
    outcomes = {outcome.pod: outcome for outcome in Simulation(simulated).run()}
    assert {key: outcome.node for key, outcome in outcomes.items()} == nodes
    assert {key: outcome.message for key, outcome in outcomes.items() if not outcome.node} == waiting
    decided = given(simulated)
    pinned = 0
    for key, node_name in nodes.items():
        if node_name:
            live = allocation(written[key].get(kinds.RESOURCE_STATUS))
            assert decided[key][0] == node_name
            assert allocation(decided[key][1]) == live, key
            pinned += bool(live and live.get("cpuset"))
    assert books(simulated) == counted
    explained = offline(*machines(), *pods)
    for thing in pods:
        key = f"default/{thing['metadata']['name']}"
        explanation = explained.explain(key)
        if nodes[key]:
            assert explanation.any_of == [nodes[key]]
            explained.place(key, nodes[key])
    assert books(explained) == counted
    assert given(explained) == decided
    assert pinned > 4
    assert len(waiting) > 4


class Busy:
    """Pods come and go, and some reports change."""

    def __init__(self, seed):
        self.rng = Random(seed)
        self.embedded = api_server(*map(complete, machines()))
        self.waiting = workload(seed) + [
            {**complete(lsr(f"late{at}", cpu=str(1 + at % 5), memory="1Gi", priority=9000 + at)), "status": {}}
            for at in range(30)
        ]
        self.there = []

    async def live(self, steps):
        for _ in range(steps):
            if self.waiting and self.rng.random() < 0.7:
                thing = self.waiting.pop(self.rng.randrange(len(self.waiting)))
                self.there.append(thing["metadata"]["name"])
                put(self.embedded, thing)
            elif self.there:
                name = self.there.pop(self.rng.randrange(len(self.there)))
                stored = self.embedded.get("Pod", name)
                if stored is not None:
                    remove(self.embedded, stored)
            await asyncio.sleep(self.rng.random() * 3)


@pytest.mark.parametrize("seed", quick_first([1, 2], 1))
def test_a_journal_is_replayed_equal(seed):
    async def main():
        busy = Busy(seed)
        life = Recorded(busy.embedded, configuration(), seconds_per_segment=15)
        Kubelet(busy.embedded)
        async with life.running():
            await busy.live(60)
            await asyncio.sleep(30)
            placed = sum(
                where(busy.embedded, name) is not None for name in busy.there if busy.embedded.get("Pod", name)
            )
        return life, placed

    life, placed = run(main())
    assert placed > 5
    repetition, replay = repeat(life.journal.records())
    assert repetition.divergence is None
    assert books(replay.replayed.scheduler) == books(life.scheduler)
    assert len(life.journal.segments) > 4
    for segment in range(1, len(life.journal.segments)):
        repetition, replay = repeat(life.journal.records(segment))
        assert repetition.divergence is None, segment
        assert books(replay.replayed.scheduler) == books(life.scheduler), segment
    assert consider(life.journal.records()).changed == []


@pytest.mark.parametrize("seed", quick_first([3, 4], 1))
def test_a_snapshot_is_explained_as_the_live_scheduler_would(seed):
    async def main():
        busy = Busy(seed)
        life = Recorded(busy.embedded, configuration())
        Kubelet(busy.embedded)
        refused = scored = 0
        async with life.running() as scheduler:
            for at in range(8):
                await busy.live(8)
                dump = snapshot(scheduler.cluster, scheduler.pending_pods())
                read = offline(*(json.loads(msgspec.json.encode(thing)) for thing in dump))
                assert books(read) == books(scheduler)
                for thing in workload(100 + at)[:12]:
                    thing["metadata"] |= {"name": f"asked-{at}-{thing['metadata']['name']}", "uid": "asked"}
                    own = scheduler.cluster.pods.build(convert(thing, core.Pod))
                    live = explain(scheduler.profiles["default-scheduler"], scheduler.cluster, own)
                    read.add(thing)
                    assert read.explain(own.key) == live
                    refused += sum(each.plugin == NAME for each in live.nodes)
                    scored += sum(NAME in each.scores for each in live.nodes)
        return refused, scored

    refused, scored = run(main())
    assert refused > 30
    assert scored > 30
