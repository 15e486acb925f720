"""Breakers without a scheduler: pods and nodes are told one by one, and time is a number."""

from random import Random

from koordsched.api import core, podstates
from koordsched.api.decoding import convert
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import Handle
from koordsched.framework.permit import WaitingPods
from koordsched.framework.status import ReasonTable
from koordsched.framework.timers import Timers
from koordsched.plugins.nodecircuitbreaker.args import NodeCircuitBreakerArgs
from koordsched.plugins.nodecircuitbreaker.breakers import Breakers
from koordsched.plugins.nodecircuitbreaker.record import ANNOTATION
from koordsched.plugins.shared.moments import moment_text
from tests.plugins.objects import node, pod
from tests.plugins.states import carry_over
from tests.virtualtime import WALL_EPOCH


class Clock:
    """Stands still unless it is moved."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def wall(self):
        return WALL_EPOCH + self.now


class Reporter:
    """Keeps (object, reason, text)."""

    def __init__(self):
        self.events = []

    def event(self, kind, meta, event_type, reason, message, *, action="", once=False):
        self.events.append((meta.name, reason, message))

    def pod_event(self, pod, event_type, reason, message, *, action=""):
        self.events.append((pod.name, reason, message))


class Machine:
    """A cluster state and its breakers."""

    def __init__(self, args=None, clock=None):
        self.args = args
        self.clock = clock or Clock()
        self.cluster = ClusterState()
        self.timers = Timers(self.clock.monotonic)
        self.reporter = Reporter()
        self.announced, self.activated = [], []
        self.wires = {}
        """By uid, the pods as they were last built."""
        self.cluster.on_event(lambda event, old, new: self.announced.append(new))
        self.handle = Handle(
            profile="default-scheduler",
            cluster=self.cluster,
            reasons=ReasonTable(),
            writes=None,
            evictions=None,
            nominations=None,
            clock=self.clock,
            live_clock=self.clock,
            rng=Random(7),
            events=self.reporter,
            waiting=WaitingPods(),
            activate=self.activated.extend,
            timers=self.timers,
            virtual_pods=None,
        )
        self.breakers = Breakers.shared(args or NodeCircuitBreakerArgs(), self.handle)

    def resumed(self):
        """Another one, in the state that a journal has of this one: the objects, and what checkpoints keep."""
        other = type(self)(self.args, self.clock)
        for known in self.cluster.table.nodes:
            other.cluster.upsert_node(known)
        for kind in (store.kind for store in self.cluster.objects.wanted()):
            for thing in self.cluster.objects.of(kind):
                other.cluster.objects.of(kind).upsert(thing)
        for placed in self.cluster.assigned.values():
            wire = self.wires[placed.uid]
            again = other.cluster.pods.build(wire)
            other.wires[placed.uid] = wire
            if self.cluster.is_assumed(placed.uid):
                other.cluster.assume(again, placed.row)
            else:
                other.cluster.set_pod(again)
        carry_over(self.handle, other.handle)
        return other

    def build(self, thing, kind):
        """The pod as the scheduler reads it."""
        wire = convert(thing, kind)
        self.wires[wire.metadata.uid] = wire
        return self.cluster.pods.build(wire)

    def wait(self, seconds=0.0):
        """Time passes, then the scheduler looks."""
        self.clock.now += seconds
        self.timers.run()

    def node(self, name, zone="a", written=None, unschedulable=False):
        """A node comes, or changes."""
        labels = {"topology.kubernetes.io/zone": zone} if zone else {}
        thing = node(name, labels=labels, unschedulable=unschedulable)
        thing["metadata"]["uid"] = f"uid-{name}"
        if written is not None:
            thing["metadata"]["annotations"] = {ANNOTATION: written}
        self.cluster.upsert_node(convert(thing, core.Node))

    def echo(self, name):
        """What the controller would write is written."""
        row = self.cluster.table.row_of[name]
        zone = self.cluster.table.nodes[row].metadata.labels.get("topology.kubernetes.io/zone", "")
        self.node(name, zone, self.breakers.text_on(row) or None)

    def built(self, name, on="", owner="", kind="StatefulSet", namespace="default", **status):
        """The pod as the scheduler reads it."""
        thing = pod(name, on=on or None, namespace=namespace)
        if owner:
            thing["metadata"]["ownerReferences"] = [
                {"kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}
            ]
        thing["status"] = status
        return self.build(thing, podstates.Pod)

    def pod(self, name, on, owner="", namespace="default", **status):
        """A pod on a node, with this status."""
        self.cluster.set_pod(self.built(name, on, owner, namespace=namespace, **status))

    def fails(self, name, on, owner="", reason="CreateContainerError", namespace="default"):
        """A pod does not start."""
        self.pod(name, on, owner, namespace, **waiting(self.clock, reason))

    def runs(self, name, on, owner=""):
        """A pod runs."""
        self.pod(name, on, owner, phase="Running", startTime=moment_text(self.clock.wall()))

    def gone(self, name):
        """A pod is gone."""
        uid = f"uid-default-{name}"
        self.cluster.pod_gone(uid)
        self.cluster.remove_pod(uid)

    def place(self, name, on):
        """A pod is placed; False if the breaker refuses it."""
        placed = self.built(name)
        row = self.cluster.table.row_of[on]
        self.cluster.assume(placed, row)
        if self.breakers.begin_probe(placed, row):
            return True
        self.cluster.forget(placed)
        return False

    def take_back(self, name):
        """It is not placed after all."""
        uid = f"uid-default-{name}"
        self.breakers.end_probe(uid)
        self.cluster.forget(self.cluster.assigned[uid])

    def state(self, name):
        """closed, open, half-open, or held."""
        row = self.cluster.table.row_of[name]
        record = self.breakers.records.get(row)
        found = record.state if record is not None else "held" if name in self.breakers.held else "closed"
        column = {"closed": 0, "held": 0, "open": 1, "half-open": 3 if record and record.probe else 2}[found]
        assert self.breakers.state.data[row] == column
        return found


def waiting(clock, reason, **more):
    """The status of a pod whose container waits."""
    container = {"name": "c", "image": "i", "restartCount": 0, "state": {"waiting": {"reason": reason}}, **more}
    return {"phase": "Pending", "startTime": moment_text(clock.wall()), "containerStatuses": [container]}
