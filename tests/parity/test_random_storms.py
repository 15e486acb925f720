"""Preemption while the API server fails, nodes go and budgets change: in the end all who wait have to."""

import asyncio
from datetime import UTC, datetime
from random import Random

import pytest

from koordsched.client.errors import Ambiguous, NotSent
from koordsched.queue.item import Place
from tests.embedded import Embedded, scheduler_on
from tests.parity.comparing import key
from tests.parity.fresh import fresh_seeds
from tests.reference.evaluation import evaluate
from tests.reference.postfilter import post_filter
from tests.reference.profile import profiles_of
from tests.reference.randompreemption import RandomFullCluster
from tests.reference.world import World
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run

KINDS = (
    ("v1", "Node"),
    ("v1", "Namespace"),
    ("v1", "PersistentVolume"),
    ("v1", "PersistentVolumeClaim"),
    ("storage.k8s.io/v1", "CSINode"),
    ("policy/v1", "PodDisruptionBudget"),
    ("v1", "Pod"),
)
BUSY, QUIET = 40, 120.0
"""Virtual seconds in which things happen, and then until everything must have settled: less than any safety net."""


class Storm:
    """A random cluster, a kubelet, a server that fails now and then, and things that happen."""

    def __init__(self, seed):
        self.rng = Random(seed)
        self.embedded = Embedded(seed)
        self.raging = True
        self.state = RandomFullCluster(self.rng)
        objects, self.names = self.state.full_cluster(self.rng.randint(2, 6))
        for item in objects:
            self.embedded.insert(item)
        Kubelet(self.embedded, grace=self.rng.choice([0.5, 3.0]))
        self.arrived = 0

    async def fault(self, call, proceed):
        """Writes to pods fail in all the ways there are."""
        if not self.raging or call.method == "GET" or "/pods" not in call.path or self.rng.random() > 0.3:
            return await proceed()
        what = self.rng.randrange(5)
        if what == 0:
            return 500, {}, b'{"kind":"Status","code":500,"reason":"InternalError","message":"told to fail"}'
        if what == 1:
            raise NotSent("connection refused")
        if what == 2:
            raise Ambiguous("connection lost before it was carried out")
        if what == 3:
            await proceed()
            raise Ambiguous("connection lost after it was carried out")
        await asyncio.sleep(self.rng.choice([0.1, 4.0]))
        return await proceed()

    def all_of(self, api_version, kind):
        return self.embedded.registry.list(self.embedded.resource(kind, api_version))

    def some(self, api_version, kind):
        """One of the kind, if there is one."""
        return self.rng.choice(self.all_of(api_version, kind) or [None])

    def delete(self, api_version, kind, thing):
        """The object goes at once."""
        resource, meta = self.embedded.resource(kind, api_version), thing["metadata"]
        self.embedded.registry.delete(resource, meta.get("namespace"), meta["name"], grace_period_seconds=0)

    def collect_garbage(self):
        """Pods whose node is gone go."""
        nodes = {node["metadata"]["name"] for node in self.all_of("v1", "Node")}
        for pod in self.all_of("v1", "Pod"):
            if pod["spec"].get("nodeName", "") not in {"", *nodes}:
                self.delete("v1", "Pod", pod)

    def something_happens(self):
        what = self.rng.randrange(12)
        if what < 6:
            self.arrived += 1
            self.embedded.insert(self.state.preemptor(f"p{self.arrived:02}", self.names))
        elif what < 8 and (pod := self.some("v1", "Pod")):
            self.delete("v1", "Pod", pod)
        elif what == 8 and len(self.all_of("v1", "Node")) > 1:
            self.delete("v1", "Node", self.some("v1", "Node"))
        elif what == 9:
            self.names.append(f"n{len(self.names)}")
            self.embedded.insert(self.state.node(self.names[-1]))
        elif what == 10:
            if budget := self.some("policy/v1", "PodDisruptionBudget"):
                self.delete("policy/v1", "PodDisruptionBudget", budget)
            self.embedded.insert(self.state.budget(f"late-{self.rng.randrange(2**32)}", []))

    async def rage(self):
        """The busy time, and the quiet after it."""
        for _ in range(BUSY):
            self.something_happens()
            await asyncio.sleep(self.rng.choice([0.0, 0.01, 1.0, 2.0]))
            self.collect_garbage()
        self.raging = False
        await asyncio.sleep(10.0)
        self.collect_garbage()
        await asyncio.sleep(QUIET)

    def waiting(self):
        """(pending pod, why it should not be waiting any more) for every pending pod; "" if it has to."""
        objects = [
            {**item, "apiVersion": version, "kind": kind}
            for version, kind in KINDS
            for item in self.all_of(version, kind)
        ]
        world, profile = World(objects), profiles_of({})["default-scheduler"]
        pending = [item for item in objects if item["kind"] == "Pod" and not item["spec"].get("nodeName")]
        nominated = [(pod, name) for pod in pending if (name := pod["status"].get("nominatedNodeName"))]
        now = datetime.fromtimestamp(self.embedded.clock.wall(), UTC)
        for pod in pending:
            outcome = evaluate(pod, world, profile, nominated)
            if outcome.feasible:
                yield pod, f"fits on {outcome.feasible}"
            elif post_filter(pod, world, profile, outcome, nominated, now)[1].status is None:
                yield pod, "may preempt"
            else:
                yield pod, ""


@pytest.mark.parametrize("seed", fresh_seeds("storms", 20))
def test_no_pod_is_lost_in_a_storm(seed):
    async def main():
        storm = Storm(seed)
        async with scheduler_on(storm.embedded, fault=storm.fault) as running:
            scheduler = running.scheduler
            await storm.rage()
            assert not scheduler.cluster.assumed
            assert not scheduler.queue.in_flight_pods()
            assert [queued.key for queued in scheduler.queue if queued.place is Place.GATED] == []
            waiting = {key(pod): why_not for pod, why_not in storm.waiting()}
            assert {name: why_not for name, why_not in waiting.items() if why_not} == {}
            assert sorted(waiting) == sorted(queued.key for queued in scheduler.queue)
            assert not scheduler.cluster.orphans

    run(main())
