"""The judge of volumes goes by what a replica knew when it decided, no more and no less."""

import asyncio

import pytest

from tests.plugins.objects import container, node, pod
from tests.simulation.apiserver import OUTSIDE, Server
from tests.simulation.invariants import NODES, PODS, Decision, Invariants
from tests.simulation.loop import SimulationLoop
from tests.simulation.trace import Trace
from tests.simulation.volumeinvariants import CLAIMS, CSI_NODES, VOLUMES, VolumeInvariants
from tests.simulation.volumeusers import DRIVER, STORAGE

REPLICA = "a.1"
OWN = "own"
OTHER = "other"
"""Claims, each of one pod: the node can hold one of them."""


class _World:
    """A node that can hold one volume, a pod on it that claims one, and another pod for which a replica decides."""

    def __init__(self):
        self.server = Server(1, Trace(asyncio.get_running_loop().time))
        self.invariants = Invariants(self.server, self.server.trace, lambda: None)
        self.invariants.features.append(VolumeInvariants(self.invariants, self.server))
        insert = self.server.insert
        insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        insert(node("n"))
        drivers = [{"name": DRIVER, "nodeID": "n", "topologyKeys": [], "allocatable": {"count": 1}}]
        meta = {"metadata": {"name": "n"}}
        insert({"apiVersion": STORAGE, "kind": "CSINode", **meta, "spec": {"drivers": drivers}})
        insert({"apiVersion": STORAGE, "kind": "StorageClass", "metadata": {"name": "late"}, "provisioner": DRIVER})
        insert(_using(OTHER, nodeName="n"))
        self.pod = insert(_using(OWN))
        self.appear(OWN)

    def appear(self, name):
        """A claim, and its volume."""
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "late"}
        source = {"csi": {"driver": DRIVER, "volumeHandle": name}}
        meta = {"name": name, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
        self.server.insert({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
                            "spec": {**spec, **source}})  # fmt: skip
        self.server.insert({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta,
                            "spec": {**spec, "volumeName": name}})  # fmt: skip

    def vanish(self, name):
        """The claim."""
        self.server.remove("PersistentVolumeClaim", name)

    def decide(self, listing=()):
        """The replica, which knows all that there is, places the pod."""
        known = dict.fromkeys((NODES, PODS, CLAIMS, VOLUMES, CSI_NODES), self.server.registry.store.rv)
        self.invariants.placed(self.pod.uid, Decision(REPLICA, "n", known, set(listing), order=0), ())

    def bind(self):
        """What the judge has to say when the replica binds the pod."""
        self.server.writer = REPLICA
        self.server.registry.bind("default", self.pod.name, self.pod.uid, "n")
        self.server.writer = OUTSIDE
        return self.invariants.violations


def _using(claim, **spec):
    made = pod(f"with-{claim}", container(), **spec)
    del made["metadata"]["uid"]
    made["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
    return made


def _not_there(world):
    world.decide()


def _there(world):
    world.appear(OTHER)
    world.decide()


def _appears_later(world):
    world.decide()
    world.appear(OTHER)


def _vanishes_later(world):
    world.appear(OTHER)
    world.decide()
    world.vanish(OTHER)


def _appears_while_listed(world):
    world.decide(listing=[CLAIMS])
    world.appear(OTHER)


def _there_while_listed(world):
    world.appear(OTHER)
    world.decide(listing=[CLAIMS])


TOO_MANY = f"{REPLICA} binds pod with-own to n, too many volumes: ['{DRIVER}: 2 of 1']"
CASES = [
    (_not_there, []),
    (_there, [TOO_MANY]),
    (_appears_later, []),
    (_vanishes_later, [TOO_MANY]),
    (_appears_while_listed, []),
    (_there_while_listed, [TOO_MANY]),
]


@pytest.mark.parametrize("course, expected", CASES, ids=[course.__name__.strip("_") for course, _ in CASES])
def test_limits_are_judged_by_the_claims_that_were_known(course, expected):
    async def judged():
        world = _World()
        course(world)
        return world.bind()

    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        assert runner.run(judged()) == expected
