"""A plugin with allocations is decided alike wherever it is asked: live, simulated, explained, replayed, compared."""

import asyncio
from random import Random

from koordsched.cli.simulation import Simulation
from koordsched.journal.records import Checkpoint
from koordsched.scheduling.snapshot import snapshot
from tests.embedded import Embedded
from tests.engine.gpushare import GpuShare
from tests.engine.objects import gpu_node, gpu_pod, offline, used
from tests.extraplugins import catalog_with, registry_with
from tests.journal.recording import Recorded, consider, repeat
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run

PLUGINS = [GpuShare]
REPLAYING = {"plugins": registry_with(PLUGINS), "catalog": catalog_with(PLUGINS)}


def cluster():
    """Two nodes, of which the larger one is always better, as long as it has what a pod wants."""
    return [gpu_node("large", gpus=6, cpu="640", memory="640Gi"), gpu_node("small", gpus=3, cpu="32")]


def workload():
    rng = Random(7)
    sizes = [30, 30, 50, 70, 100, 200]
    return [gpu_pod(f"p{i}", rng.choice(sizes), hint=rng.choice([None, "spread"])) for i in range(24)]


def recorded_life():
    async def main():
        embedded = Embedded()
        for each in cluster():
            embedded.insert(each)
        life = Recorded(embedded, plugins=PLUGINS, seconds_per_segment=5)
        Kubelet(embedded)
        async with life.running():
            for each in workload():
                embedded.insert(each)
                await asyncio.sleep(0.5)
            embedded.insert(gpu_pod("urgent", 400, priority=100))
            await asyncio.sleep(20)
            for i in range(0, 24, 4):
                if embedded.get("Pod", f"p{i}") is not None:
                    embedded.registry.delete(embedded.resource("Pod"), "default", f"p{i}", grace_period_seconds=0)
            await asyncio.sleep(60)
        return life

    return run(main())


def test_a_journal_is_replayed_equal():
    life = recorded_life()
    live = used(life.scheduler)
    repetition, replay = repeat(life.journal.records(), **REPLAYING)
    assert repetition.divergence is None
    assert repetition.tally.preemptions == 1
    assert used(replay.replayed.scheduler) == live
    for segment in range(1, len(life.journal.segments)):
        assert repeat(life.journal.records(segment), **REPLAYING)[0].divergence is None, segment
    comparison = consider(life.journal.records(), **REPLAYING)
    assert comparison.changed == []


def test_live_simulated_and_explained():
    async def main():
        embedded = Embedded()
        for each in cluster():
            embedded.insert(each)
        life = Recorded(embedded, plugins=PLUGINS)
        async with life.running():
            for each in workload():
                embedded.insert(each)
                await asyncio.sleep(1)
            nodes = {f"default/p{i}": embedded.get("Pod", f"p{i}")["spec"].get("nodeName", "") for i in range(24)}
            conditions = {
                f"default/p{i}": embedded.get("Pod", f"p{i}")["status"].get("conditions", [{}])[0].get("message")
                for i in range(24)
            }
        return nodes, conditions, used(life.scheduler)

    nodes, conditions, live = run(main())
    simulated = offline(*cluster(), *workload())
    outcomes = {outcome.pod: outcome for outcome in Simulation(simulated).run()}
    assert {key: outcome.node for key, outcome in outcomes.items()} == nodes
    assert used(simulated) == live
    assert {key: outcome.message for key, outcome in outcomes.items() if not outcome.node} == {
        key: conditions[key] for key, node in nodes.items() if not node
    }
    explained = offline(*cluster(), *workload())
    for key, node in nodes.items():
        explanation = explained.explain(key)
        assert explanation.any_of == ([node] if node else [])
        if node:
            explained.place(key, node)
    assert used(explained) == live


def test_a_snapshot_has_the_allocations():
    life = recorded_life()
    live = life.scheduler
    dump = list(snapshot(live.cluster, live.pending_pods()))
    assert used(offline(*dump)) == used(live)


def test_a_checkpoint_has_the_allocations_of_pods_on_their_way():
    """Bindings take longer than a segment: each begins with pods whose allocation is in no object yet."""

    async def slow(call, proceed):
        if call.path.endswith("/binding"):
            await asyncio.sleep(4)
        return await proceed()

    async def main():
        embedded = Embedded()
        for each in cluster():
            embedded.insert(each)
        life = Recorded(embedded, plugins=PLUGINS, seconds_per_segment=1, fault=slow)
        async with life.running():
            for each in workload():
                embedded.insert(each)
                await asyncio.sleep(0.7)
            await asyncio.sleep(10)
        return life

    life = run(main())
    records = [life.journal.records(segment) for segment in range(len(life.journal.segments))]
    checkpoints = [next((each for each in some if isinstance(each, Checkpoint)), None) for some in records]
    assert sum(each is not None and bool(each.allocations) for each in checkpoints) > 5
    for segment, some in enumerate(records):
        assert repeat(some, **REPLAYING)[0].divergence is None, segment
