"""The judge of volumes goes by what a replica knew when it decided, no more and no less."""

import asyncio
from types import SimpleNamespace

import pytest

from koordsched.plugins.reservation.kinds import OPERATING_MODE, RESERVATION_OWNERS
from tests.parity.koord import custom_resources
from tests.plugins.objects import container, node, pod
from tests.plugins.reservation.naive.names import IGNORED
from tests.simulation.apiserver import OUTSIDE, Server
from tests.simulation.invariants import NODES, PODS, Decision, Invariants
from tests.simulation.loop import SimulationLoop
from tests.simulation.reservationinvariants import RESERVATIONS, ReservationInvariants
from tests.simulation.trace import Trace
from tests.simulation.volumeinvariants import CLAIMS, CSI_NODES, VOLUMES, VolumeInvariants
from tests.simulation.volumeusers import DRIVER, STORAGE

REPLICA = "a.1"
OWN = "own"
OTHER = "other"
"""Claims, each of one pod: the node can hold one of them."""


class _World:
    """A node that can hold one volume, a pod on it that claims one, and another pod for which a replica decides."""

    def __init__(self, labels=None, acts=False):
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
        other = _using(OTHER, nodeName="n")
        if acts:
            other["metadata"] |= {"labels": {OPERATING_MODE: "Reservation"}, "annotations": {RESERVATION_OWNERS: "[]"}}
            other["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        insert(other)
        own = _using(OWN)
        own["metadata"]["labels"] = labels or {}
        self.pod = insert(own)
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
        known = dict.fromkeys((NODES, PODS, CLAIMS, VOLUMES, CSI_NODES, RESERVATIONS), self.server.registry.store.rv)
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


def _judges_reservations(world):
    """Also of pods that act as Reservations."""
    for thing in custom_resources():
        world.server.insert(thing)
    plan = SimpleNamespace(features=(), seed=1)
    about = {"invariants": world.invariants, "server": world.server, "plan": plan}
    world.invariants.reserved = ReservationInvariants(SimpleNamespace(**about, permits=None, reservations=None))


@pytest.mark.parametrize("ignores", [True, False])
def test_a_pod_that_ignores_reservations_does_not_see_what_a_pod_holds_that_acts_as_one(ignores):
    async def judged():
        world = _World(labels={IGNORED: "true"} if ignores else {}, acts=True)
        _judges_reservations(world)
        world.appear(OTHER)
        world.decide()
        return world.bind()

    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        assert runner.run(judged()) == ([] if ignores else [TOO_MANY])
