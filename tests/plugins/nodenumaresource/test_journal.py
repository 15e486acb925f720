"""Decisions about CPUs and NUMA nodes are the same wherever they are made: live, in a replay, from a snapshot."""

import asyncio
import json
from random import Random

import msgspec
import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.engine.explain import explain
from koordsched.plugins import IN_TREE
from koordsched.scheduling.offline import OfflineScheduler
from koordsched.scheduling.snapshot import snapshot
from tests.depth import quick_first
from tests.embedded import Embedded
from tests.journal.recording import Recorded, consider, repeat
from tests.parity.koord import custom_resources
from tests.plugins.loadaware.running import remove
from tests.plugins.nodenumaresource.cluster import NAME, configuration, resolved, row_state
from tests.plugins.nodenumaresource.naivemachine import SCHEDULING
from tests.plugins.nodenumaresource.randomstates import HINT, Draw
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run

NODES = ("m0", "m1", "m2", "m3")
STATUS = f"{SCHEDULING}resource-status"
FREE = ("cpu", "memory")
"""Of anything else there must be a limit."""


def believed(scheduler):
    """The columns of every node."""
    columns = scheduler.profiles["default-scheduler"].plugins[NAME].columns
    return {name: row_state(columns, row) for name, row in sorted(scheduler.cluster.table.row_of.items())}


class Busy:
    """A cluster in which nodes, reports and pods come, change and go."""

    def __init__(self, seed):
        self.rng = Random(seed)
        self.draw = Draw(self.rng, 0, 0)
        self.args = self.draw.args()
        self.embedded = Embedded()
        for thing in custom_resources():
            self.embedded.insert(thing)
        self.embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        self.serial = 0
        for name in NODES:
            self.machine(name)

    def put(self, thing):
        """An object is as it says from now on."""
        embedded, meta = self.embedded, thing["metadata"]
        resource = embedded.resource(thing["kind"], thing["apiVersion"])
        if embedded.get(thing["kind"], meta["name"], api_version=thing["apiVersion"]) is None:
            embedded.insert(thing)
            return
        namespace = "default" if resource.namespaced else None
        record = embedded.registry.record(resource, namespace, meta["name"])
        stored = record.obj()
        kept = {**stored["metadata"], **{key: meta.get(key) or {} for key in ("labels", "annotations")}}
        embedded.registry.replace_record(resource, record, {**stored, **thing, "metadata": kept})

    def machine(self, name=None):
        """A node and its report, in any order."""
        node, report, _ = self.draw.node(name or self.rng.choice(NODES))
        things = [node, *([report] if report is not None else [])]
        for thing in self.rng.sample(things, len(things)):
            self.put(thing)

    def lose(self):
        """A node or a report is gone."""
        kind, version = self.rng.choice([("Node", "v1"), ("NodeResourceTopology", "topology.node.k8s.io/v1alpha1")])
        found = self.embedded.registry.list(self.embedded.resource(kind, version))
        if found:
            remove(self.embedded, self.rng.choice(found))

    def pod(self):
        """A pod."""
        self.serial += 1
        pod = self.draw.pod(f"p{self.serial}", Random(self.rng.random()))
        pod["metadata"]["annotations"].pop(HINT, None)
        del pod["metadata"]["uid"]
        pod["spec"]["schedulerName"] = "default-scheduler"
        pod["status"] = {"phase": "Pending"}
        resources = pod["spec"]["containers"][0]["resources"]
        resources["limits"] = {name: text for name, text in resources["requests"].items() if name not in FREE}
        return pod

    def some_pod(self):
        listed = self.embedded.registry.list(self.embedded.resource("Pod"))
        return self.rng.choice(listed) if listed else None

    def end_of_one(self):
        """A pod is deleted."""
        pod = self.some_pod()
        if pod is not None:
            remove(self.embedded, pod)

    def other_cpus(self):
        """What a running pod was given is written anew."""
        pod = self.some_pod()
        if pod is not None and pod["spec"].get("nodeName"):
            annotations = {**(pod["metadata"].get("annotations") or {}), STATUS: '{"cpuset":"0,3"}'}
            self.put({**pod, "metadata": {**pod["metadata"], "annotations": annotations}})

    async def live(self, seconds):
        """It goes on for so long."""
        for _ in range(seconds):
            what = self.rng.choice(["pod", "pod", "pod", self.end_of_one, self.machine, self.other_cpus, None, None])
            if what == "pod":
                self.embedded.insert(self.pod())
            elif what is not None:
                what()
            if self.rng.random() < 0.03:
                self.lose()
            await asyncio.sleep(1)


def recorded_life(seed, seconds=60):
    async def main():
        busy = Busy(seed)
        life = Recorded(busy.embedded, configuration(busy.args), seconds_per_segment=10)
        Kubelet(busy.embedded)
        async with life.running():
            await busy.live(seconds)
        pods = busy.embedded.registry.list(busy.embedded.resource("Pod"))
        return life, sum(STATUS in (pod["metadata"].get("annotations") or {}) for pod in pods)

    return run(main())


@pytest.mark.parametrize("seed", quick_first([1, 2, 3, 4], 2))
def test_a_journal_is_replayed_equal(seed):
    """From its beginning, and from every checkpoint."""
    life, given = recorded_life(seed)
    assert given > 3
    repetition, replay = repeat(life.journal.records())
    assert repetition.divergence is None
    assert repetition.tally.decisions > 10
    assert believed(replay.replayed.scheduler) == believed(life.scheduler)
    assert len(life.journal.segments) > 4
    for segment in range(1, len(life.journal.segments)):
        repetition, replay = repeat(life.journal.records(segment))
        assert repetition.divergence is None, segment
        assert believed(replay.replayed.scheduler) == believed(life.scheduler), segment
    assert consider(life.journal.records()).changed == []


@pytest.mark.parametrize("seed", [5, 6])
def test_a_snapshot_is_explained_as_the_live_scheduler_would(seed):
    async def main():
        busy = Busy(seed)
        life = Recorded(busy.embedded, configuration(busy.args))
        refused = 0
        async with life.running() as scheduler:
            for _ in range(6):
                await busy.live(12)
                dump = snapshot(scheduler.cluster, scheduler.pending_pods())
                objects = [json.loads(msgspec.json.encode(thing)) for thing in dump]
                offline = OfflineScheduler(
                    resolved(configuration(busy.args)), IN_TREE, objects, clock=busy.embedded.clock, rng=Random(1)
                )
                assert believed(offline) == believed(scheduler)
                for _ in range(4):
                    thing = busy.pod()
                    thing["metadata"]["uid"] = thing["metadata"]["name"]
                    own = scheduler.cluster.pods.build(convert(thing, core.Pod))
                    live = explain(scheduler.profiles["default-scheduler"], scheduler.cluster, own)
                    offline.add(thing)
                    assert offline.explain(own.key) == live
                    refused += sum(each.plugin == NAME for each in live.nodes)
        return refused

    assert run(main()) > 3
