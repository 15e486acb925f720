"""Decisions about loads are the same wherever they are made: live, replayed, simulated, explained from a snapshot."""

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
from koordsched.scheduling.offline import OfflineScheduler
from koordsched.scheduling.snapshot import snapshot
from tests.depth import quick_first
from tests.journal.recording import Recorded, consider, repeat
from tests.plugins.loadaware.objects import measured, metric, node, pod
from tests.plugins.loadaware.running import api_server, remove, replace, where
from tests.plugins.loadaware.world import configuration, resolved
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run

NODES = ("a", "b", "c")
ARGS = {
    "nodeMetricExpirationSeconds": 90,
    "prodUsageThresholds": {"cpu": 50},
    "estimatedSecondsAfterPodScheduled": 45,
    "aggregated": {"scoreAggregationType": "p95", "scoreAggregatedDuration": "5m0s"},
}


def readings(scheduler):
    """The columns of every node."""
    columns = scheduler.profiles["default-scheduler"].plugins["LoadAwareScheduling"].loads.columns
    rows = scheduler.cluster.table.row_of.items()
    return {name: (columns.gate.data[row].tolist(), columns.slack.data[row].tolist()) for name, row in sorted(rows)}


class Busy:
    """A cluster in which reports and pods come and go."""

    def __init__(self, seed, untimed=False):
        self.rng, self.untimed = Random(seed), untimed
        self.embedded = api_server(*(node(name, cpu="32", memory="64Gi") for name in NODES))
        self.pods = 0

    def report(self, name):
        """What the pods on a node use, and something else."""
        listed = self.embedded.registry.list(self.embedded.resource("Pod"))
        here = [each["metadata"]["name"] for each in listed if each["spec"].get("nodeName") == name]
        report = metric(
            name,
            (str(self.rng.randrange(26)), f"{self.rng.randrange(60)}Gi"),
            at=None
            if self.untimed and self.rng.random() < 0.2
            else self.embedded.clock.wall() - self.rng.randrange(40),
            pods=[measured(each, self.rng.choice(["1", "3"]), "1Gi") for each in here if self.rng.random() < 0.8],
            aggregated=self.rng.choice([None, {"5m0s": {"p95": ("12", "9Gi")}}]),
        )
        if self.embedded.get("NodeMetric", name, api_version=report["apiVersion"]) is None:
            self.embedded.insert(report)
        elif self.rng.random() < 0.1:
            remove(self.embedded, report)
        else:
            replace(self.embedded, report)

    def pod(self):
        """A pod, of production or not."""
        self.pods += 1
        size = {"cpu": self.rng.choice(["1", "2", "5"]), "memory": "1Gi"}
        self.embedded.insert(pod(f"p{self.pods}", size, priority=self.rng.choice([0, 9000, 5000])))

    def end_of_one(self):
        """A pod is deleted."""
        listed = self.embedded.registry.list(self.embedded.resource("Pod"))
        if listed:
            remove(self.embedded, self.rng.choice(listed))

    async def live(self, seconds):
        """It goes on for so long."""
        for _ in range(seconds // 2):
            happening = self.rng.choice([self.pod, self.pod, self.end_of_one, None, None, *[self.report] * 3])
            if happening == self.report:
                self.report(self.rng.choice(NODES))
            elif happening is not None:
                happening()
            await asyncio.sleep(2)


def recorded_life(seed, seconds=300, **more):
    async def main():
        busy = Busy(seed, **more)
        life = Recorded(busy.embedded, configuration(ARGS), seconds_per_segment=20)
        Kubelet(busy.embedded)
        async with life.running():
            await busy.live(seconds)
        return life, busy

    return run(main())


@pytest.mark.parametrize("seed", quick_first([1, 2, 3], 1))
def test_a_journal_is_replayed_equal(seed):
    life, busy = recorded_life(seed)
    repetition, replay = repeat(life.journal.records())
    assert repetition.divergence is None
    assert readings(replay.replayed.scheduler) == readings(life.scheduler)
    assert busy.pods > 20
    assert len(life.journal.segments) > 8
    for segment in range(1, len(life.journal.segments)):
        repetition, replay = repeat(life.journal.records(segment))
        assert repetition.divergence is None, segment
        assert readings(replay.replayed.scheduler) == readings(life.scheduler), segment
    assert consider(life.journal.records()).changed == []


def test_a_journal_with_untimed_reports_is_replayed_equal_from_its_beginning():
    life, _ = recorded_life(4, untimed=True)
    repetition, replay = repeat(life.journal.records())
    assert repetition.divergence is None
    assert readings(replay.replayed.scheduler) == readings(life.scheduler)


@pytest.mark.parametrize("seed", quick_first([5, 6], 1))
def test_a_snapshot_is_explained_as_the_live_scheduler_would(seed):
    async def main():
        busy = Busy(seed)
        life = Recorded(busy.embedded, configuration(ARGS))
        Kubelet(busy.embedded)
        async with life.running() as scheduler:
            refused = scored = 0
            for _ in range(10):
                await busy.live(20)
                dump = snapshot(scheduler.cluster, scheduler.pending_pods())
                objects = [json.loads(msgspec.json.encode(thing)) for thing in dump]
                offline = OfflineScheduler(
                    resolved(configuration(ARGS)), IN_TREE, objects, clock=busy.embedded.clock, rng=Random(1)
                )
                assert readings(offline) == readings(scheduler)
                for thing in (pod("new", {"cpu": "6"}), pod("huge", {"cpu": "30"}), pod("batch", priority=5000)):
                    own = scheduler.cluster.pods.build(convert(thing, core.Pod))
                    live = explain(scheduler.profiles["default-scheduler"], scheduler.cluster, own)
                    offline.add(thing)
                    assert offline.explain(own.key) == live
                    refused += sum(each.plugin == "LoadAwareScheduling" for each in live.nodes)
                    scored += sum("LoadAwareScheduling" in each.scores for each in live.nodes)
            return refused, scored

    refused, scored = run(main())
    assert refused > 3
    assert scored > 3


def test_simulated_as_live():
    """Pods that come one by one go where a simulation has them go, and are refused in the same words."""
    nodes = [node("a", cpu="32"), node("b", cpu="48"), node("c", cpu="64")]
    names = [f"default/p{i}" for i in range(14)]
    pods = [pod(f"p{i}", {"cpu": "8", "memory": "1Gi"}) for i in range(14)]

    async def main():
        embedded = api_server()
        at = embedded.clock.wall() + 3600
        reports = [metric("a", ("1", "1Gi"), at=at), metric("b", ("20", "9Gi"), at=at), metric("c", ("9", "0"), at=at)]
        for thing in (*nodes, *reports):
            embedded.insert(thing)
        life = Recorded(embedded, configuration())
        async with life.running():
            for each in pods:
                embedded.insert(each)
                await asyncio.sleep(1)
            places = {f"default/p{i}": where(embedded, f"p{i}") or "" for i in range(14)}
            messages = {
                f"default/p{i}": embedded.get("Pod", f"p{i}")["status"]["conditions"][0].get("message")
                for i in range(14)
                if not where(embedded, f"p{i}")
            }
        offline = OfflineScheduler(
            resolved(configuration()), IN_TREE, [*nodes, *reports, *pods], clock=embedded.clock, rng=Random(1)
        )
        return places, messages, Simulation(offline).run()

    places, messages, simulated = run(main())
    assert {outcome.pod: outcome.node for outcome in simulated} == places
    assert {outcome.pod: outcome.message for outcome in simulated if not outcome.node} == messages
    assert sorted(places) == sorted(names)
    assert 2 <= len(messages) <= 8
