"""A cluster in which nodes, reports and pods come, change and go, and what a plugin's decisions about it must be.

Live, replayed from a journal, and evaluated on a snapshot they are the same. For plugins that give pods some of a node,
by an annotation, as agents report it in objects of a kind of their own.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from random import Random

import msgspec

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.engine.explain import explain
from koordsched.plugins import IN_TREE
from koordsched.scheduling.offline import OfflineScheduler
from koordsched.scheduling.snapshot import snapshot
from tests.embedded import Embedded
from tests.extraplugins import resolved_with
from tests.journal.recording import Recorded, consider, repeat
from tests.parity.koord import custom_resources
from tests.plugins.loadaware.running import remove
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run

PROFILE = "default-scheduler"


class BusyCluster(ABC):
    """To be mixed with what draws objects with `rng`; everything follows from that."""

    PLUGIN = ""
    KINDS = {}
    """Kind -> apiVersion of what may go: nodes and reports."""
    ALLOCATION, FOREIGN = "", ""
    """The annotation that says what a pod was given, and a value that no scheduler wrote."""
    QUIET = 1
    """How often nothing happens, of about seven times."""
    LOSS = 0.08
    """How likely something goes in a second."""

    def __init__(self):
        self.embedded = Embedded()
        for thing in custom_resources():
            self.embedded.insert(thing)
        for name in ("default", "koordinator-system"):
            self.embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.lost = tuple(self.KINDS)
        """The kinds that may go, perhaps one more than once."""
        self.serial = 0

    @abstractmethod
    def configuration(self):
        """That of the scheduler."""

    @abstractmethod
    def machine(self):
        """A node reports something else."""

    @abstractmethod
    def drawn_pod(self, name):
        """A pod as it is drawn, without what would place it."""

    def new_pod(self):
        """A pod that waits."""
        self.serial += 1
        pod = self.drawn_pod(f"p{self.serial}")
        del pod["metadata"]["uid"]
        pod["spec"]["schedulerName"] = PROFILE
        pod["status"] = {"phase": "Pending"}
        return pod

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

    def given(self):
        """How many pods say what they were given."""
        pods = self.embedded.registry.list(self.embedded.resource("Pod"))
        return sum(self.ALLOCATION in (pod["metadata"].get("annotations") or {}) for pod in pods)

    async def live(self, seconds):
        """It goes on for so long."""
        happens = [*["pod"] * 3, self._end_one, self.machine, self._give_something_else, *[None] * self.QUIET]
        for _ in range(seconds):
            what = self.rng.choice(happens)
            if what == "pod":
                self.embedded.insert(self.new_pod())
            elif what is not None:
                what()
            if self.rng.random() < self.LOSS:
                self._lose()
            await asyncio.sleep(1)

    def _lose(self):
        kind = self.rng.choice(self.lost)
        found = self.embedded.registry.list(self.embedded.resource(kind, self.KINDS[kind]))
        if found:
            remove(self.embedded, self.rng.choice(found))

    def _some_pod(self):
        listed = self.embedded.registry.list(self.embedded.resource("Pod"))
        return self.rng.choice(listed) if listed else None

    def _end_one(self):
        pod = self._some_pod()
        if pod is not None:
            remove(self.embedded, pod)

    def _give_something_else(self):
        pod = self._some_pod()
        if pod is not None and pod["spec"].get("nodeName"):
            annotations = {**(pod["metadata"].get("annotations") or {}), self.ALLOCATION: self.FOREIGN}
            self.put({**pod, "metadata": {**pod["metadata"], "annotations": annotations}})


def believed(scheduler, plugin, row_state):
    """What the columns of the plugin say about every node."""
    columns = scheduler.profiles[PROFILE].plugins[plugin].columns
    return {name: row_state(columns, row) for name, row in sorted(scheduler.cluster.table.row_of.items())}


def check_replays(cluster_of, row_state, seconds=60):
    """A recorded life is replayed equal, from its beginning and from every checkpoint.

    `cluster_of()` makes the cluster; `row_state(columns, row)` is all that the plugin's columns say about a row.
    """

    async def recorded():
        busy = cluster_of()
        life = Recorded(busy.embedded, busy.configuration(), seconds_per_segment=10)
        Kubelet(busy.embedded)
        async with life.running():
            await busy.live(seconds)
        return busy, life

    busy, life = run(recorded())
    assert busy.given() > 3
    known = believed(life.scheduler, busy.PLUGIN, row_state)
    assert len(life.journal.segments) > 4
    for segment in range(len(life.journal.segments)):
        repetition, replay = repeat(life.journal.records(segment) if segment else life.journal.records())
        assert repetition.divergence is None, segment
        assert segment or repetition.tally.decisions > 10
        assert believed(replay.replayed.scheduler, busy.PLUGIN, row_state) == known, segment
    assert consider(life.journal.records()).changed == []


def check_snapshots(cluster_of, row_state):
    """On a snapshot, new pods are explained as the live scheduler would."""

    async def main():
        busy = cluster_of()
        life = Recorded(busy.embedded, busy.configuration())
        refused = 0
        async with life.running() as scheduler:
            for _ in range(6):
                await busy.live(12)
                offline = _on_snapshot(scheduler, busy)
                assert believed(offline, busy.PLUGIN, row_state) == believed(scheduler, busy.PLUGIN, row_state)
                for _ in range(4):
                    thing = busy.new_pod()
                    thing["metadata"]["uid"] = thing["metadata"]["name"]
                    own = scheduler.cluster.pods.build(convert(thing, core.Pod))
                    live = explain(scheduler.profiles[PROFILE], scheduler.cluster, own)
                    offline.add(thing)
                    assert offline.explain(own.key) == live
                    refused += sum(each.plugin == busy.PLUGIN for each in live.nodes)
        return refused

    assert run(main()) > 3


def _on_snapshot(scheduler, busy):
    dump = snapshot(scheduler.cluster, scheduler.pending_pods())
    objects = [json.loads(msgspec.json.encode(thing)) for thing in dump]
    resolved = resolved_with(busy.configuration(), ())
    return OfflineScheduler(resolved, IN_TREE, objects, clock=busy.embedded.clock, rng=Random(1))
