"""Decisions about devices are the same wherever they are made: live, replayed, from a snapshot."""

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
from tests.extraplugins import resolved_with
from tests.journal.recording import Recorded, consider, repeat
from tests.parity.koord import custom_resources
from tests.plugins.deviceshare.columns import row_state
from tests.plugins.deviceshare.naive.request import ALLOCATED, SCHEDULING_HINTS
from tests.plugins.deviceshare.randomstates import Draw
from tests.plugins.deviceshare.world import DEVICES, configuration, profile
from tests.plugins.loadaware.running import remove
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run

NODES = ("n0", "n1", "n2", "n3")
KINDS = {"Device": "scheduling.koordinator.sh/v1alpha1", "Node": "v1"}
FOREIGN = '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-memory-ratio":"40"}}]}'


def believed(scheduler):
    """The columns of every node."""
    columns = scheduler.profiles["default-scheduler"].plugins[DEVICES].columns
    return {name: row_state(columns, row) for name, row in sorted(scheduler.cluster.table.row_of.items())}


class Busy(Draw):
    """A cluster in which nodes, Devices and pods come, change and go."""

    def __init__(self, seed, lost=("Node", "Device", "Device"), priorities=(0, 0, 10)):
        """`lost`: kinds of what may go; `priorities`: of pods."""
        self.embedded = Embedded()
        self.lost, self.priorities = lost, priorities
        for thing in custom_resources():
            self.embedded.insert(thing)
        for name in ("default", "koordinator-system"):
            self.embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        super().__init__(Random(seed), 0, 0, odd=True)
        self.serial = 0
        for name in NODES:
            self.node(name)

    def put(self, thing):
        """An object is as it says from now on."""
        embedded, meta = self.embedded, thing["metadata"]
        resource = embedded.resource(thing["kind"], thing["apiVersion"])
        namespace = meta.get("namespace", "default")
        if embedded.get(thing["kind"], meta["name"], namespace, api_version=thing["apiVersion"]) is None:
            embedded.insert(thing)
            return
        record = embedded.registry.record(resource, namespace if resource.namespaced else None, meta["name"])
        stored = record.obj()
        kept = {**stored["metadata"], **{key: meta.get(key) or {} for key in ("labels", "annotations")}}
        embedded.registry.replace_record(resource, record, {**stored, **thing, "metadata": kept})

    def fill(self, name, device):
        """Pods come by themselves."""

    def configuration(self):
        """That of the scheduler."""
        return configuration(profile(self.state.args, {}, name="default-scheduler"))

    def lose(self):
        """A node or a Device is gone."""
        kind = self.rng.choice(self.lost)
        found = self.embedded.registry.list(self.embedded.resource(kind, KINDS[kind]))
        if found:
            remove(self.embedded, self.rng.choice(found))

    def new_pod(self):
        """A pod that waits."""
        self.serial += 1
        pod = self.pod(f"p{self.serial}", self.rng.choice(self.priorities))
        for key in SCHEDULING_HINTS:
            pod["metadata"]["annotations"].pop(key, None)
        del pod["metadata"]["uid"]
        pod["spec"]["schedulerName"] = "default-scheduler"
        pod["status"] = {"phase": "Pending"}
        return pod

    def some_pod(self):
        """Any pod, None without."""
        listed = self.embedded.registry.list(self.embedded.resource("Pod"))
        return self.rng.choice(listed) if listed else None

    def end_of_one(self):
        """A pod is deleted."""
        pod = self.some_pod()
        if pod is not None:
            remove(self.embedded, pod)

    def other_devices(self):
        """What a running pod was given is written anew."""
        pod = self.some_pod()
        if pod is not None and pod["spec"].get("nodeName"):
            annotations = {**(pod["metadata"].get("annotations") or {}), ALLOCATED: FOREIGN}
            self.put({**pod, "metadata": {**pod["metadata"], "annotations": annotations}})

    def machine(self):
        """A node reports other devices."""
        self.node(self.rng.choice(NODES))

    async def live(self, seconds):
        """It goes on for so long."""
        for _ in range(seconds):
            what = self.rng.choice(["pod", "pod", "pod", self.end_of_one, self.machine, self.other_devices, None])
            if what == "pod":
                self.embedded.insert(self.new_pod())
            elif what is not None:
                what()
            if self.rng.random() < 0.08:
                self.lose()
            await asyncio.sleep(1)


def recorded_life(seed, seconds=60):
    async def main():
        busy = Busy(seed)
        life = Recorded(busy.embedded, busy.configuration(), seconds_per_segment=10)
        Kubelet(busy.embedded)
        async with life.running():
            await busy.live(seconds)
        pods = busy.embedded.registry.list(busy.embedded.resource("Pod"))
        return life, sum(ALLOCATED in (pod["metadata"].get("annotations") or {}) for pod in pods)

    return run(main())


@pytest.mark.parametrize("seed", quick_first([1, 2, 3, 4, 5, 6], 2))
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


@pytest.mark.parametrize("seed", [7, 8])
def test_a_snapshot_is_explained_as_the_live_scheduler_would(seed):
    """Of Devices that are gone there is nothing in a snapshot, as after a restart; nor of nominations that are not
    written yet."""

    async def main():
        busy = Busy(seed, lost=["Node"], priorities=[0])
        life = Recorded(busy.embedded, busy.configuration())
        refused = 0
        async with life.running() as scheduler:
            for _ in range(6):
                await busy.live(12)
                dump = snapshot(scheduler.cluster, scheduler.pending_pods())
                objects = [json.loads(msgspec.json.encode(thing)) for thing in dump]
                offline = OfflineScheduler(
                    resolved_with(busy.configuration(), ()), IN_TREE, objects, clock=busy.embedded.clock, rng=Random(1)
                )
                assert believed(offline) == believed(scheduler)
                for _ in range(4):
                    thing = busy.new_pod()
                    thing["metadata"]["uid"] = thing["metadata"]["name"]
                    own = scheduler.cluster.pods.build(convert(thing, core.Pod))
                    live = explain(scheduler.profiles["default-scheduler"], scheduler.cluster, own)
                    offline.add(thing)
                    assert offline.explain(own.key) == live
                    refused += sum(each.plugin == DEVICES for each in live.nodes)
        return refused

    assert run(main()) > 3
