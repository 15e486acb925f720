"""Safety: what must hold after every single write, judged from the API server's own state.

A scheduler may be behind the server; what it decides must be right by some state that it can have seen since. What
it decided itself, and what its predecessors decided, it must know.
"""

from collections.abc import Mapping
from itertools import count
from types import MappingProxyType
from typing import NamedTuple

from tests.plugins.reservation.naive.names import RESERVE_POD
from tests.reference.profile import Profile
from tests.reference.world import World, is_deleting
from tests.simulation.history import History

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
FITTING = ("NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit")
FINISHED = ("Succeeded", "Failed")


class Violation(Exception):
    """An invariant does not hold."""


class Decision(NamedTuple):
    """What a replica knew when it placed a pod."""

    writer: str
    node: str
    versions: dict[str, int]
    """Path of a resource -> the version of which everything had been handled."""
    listing: set[str]
    """Paths of the resources that were being listed anew: some of their objects were newer than that."""
    order: int
    """Grows from decision to decision."""
    read: Mapping[str, Mapping[tuple[str, str], int]] = MappingProxyType({})
    """Path of a resource, one of which objects may become unreadable -> key -> the version that had been read last."""
    acts: bool = True
    """Whether it can come to anything. A replica that led, and is ending, has given up its bindings when it decides."""


class Bound(NamedTuple):
    """Since when a pod has a node."""

    version: int
    decision: Decision | None
    """Why a replica bound it; None if somebody else did."""
    path: str = PODS
    """Of the resource that says so."""

    def must_be_known(self, decision):
        """Whether the pod had to be reckoned with: what replicas decided before, and what had been heard of."""
        if self.decision is not None:
            return self.decision.order < decision.order
        return self.version <= decision.versions[self.path]


class Lease(NamedTuple):
    """Who leads."""

    holder: str
    """Empty when nobody does."""
    until: float
    """When another one may take it, by the server's clock: whoever watches it counts from a later moment."""


class Invariants:
    """Listens to the server; `violations` are texts, `on_violation` is called at the first."""

    def __init__(self, server, trace, on_violation):
        self.server = server
        self.trace = trace
        self.violations = []
        self.lease = None
        """The Lease as it is; None before there is one."""
        self.bindings = 0
        self.decisions = {}
        """(replica, uid) -> Decision, the newest."""
        self.attempted = {}
        """Replica -> uids of the pods that it tried to place."""
        self.bound = {}
        """uid -> Bound."""
        self.nodes = History(is_readable=lambda node: isinstance(node["spec"].get("taints") or [], list))
        self.pods = History()
        self.features = []
        """Checks of what a world has beside pods and nodes."""
        self.reserved = None
        """`ReservationInvariants`, None where there are no Reservations."""
        self.without_served = None
        """`claiminvariants.without_served`, None where pods claim no devices."""
        self.least_requested = None
        """`resizes.least_requested`, None where pods are not resized."""
        self.calm = False
        """No request travels late any more."""
        self._on_violation = on_violation
        self._orders = count()
        self._plugins = Profile({}).plugins
        registry = server.registry
        for kind, check in (("Pod", self._pod), ("Node", self._node)):
            registry.subscribe_changes(server.resource(kind), check)
        registry.subscribe_changes(server.resource("Lease", "coordination.k8s.io/v1"), self._lease)
        registry.subscribe_changes(server.resource("Event", "events.k8s.io/v1"), self._event)

    def fail(self, text):
        self.trace(f"VIOLATION {text}")
        self.violations.append(text)
        self._on_violation()

    # --- changes -----------------------------------------------------------------------------------

    def tell(self, change, more=""):
        record, writer = change.record, self.server.writer
        by = f" by {writer}" if writer else ""
        self.trace(f"{change.type} {'/'.join(record.key)} {record.uid[:8]} v{record.rv}{more}{by}")

    def _event(self, change):
        self.tell(change, f" {change.new.get('reason')}")
        self.one_acts("an event")

    def _lease(self, change):
        before, spec, now = self.lease, change.new["spec"], self.server.clock.monotonic()
        lease = self.lease = Lease(spec["holderIdentity"] or "", now + spec["leaseDurationSeconds"])
        self.tell(change, f" holder={lease.holder}")
        if before is not None and before.holder not in ("", lease.holder):
            if lease.holder and now < before.until:
                self.fail(f"{lease.holder} takes the lease of {before.holder}, {before.until - now:.3f} s too early")
            elif not lease.holder and self.server.writer != before.holder:
                self.fail(f"{self.server.writer} gives away the lease of {before.holder}")

    def one_acts(self, what):
        """A replica may write while the lease is its own and, by the server's clock, nobody could have taken it."""
        writer, lease = self.server.writer, self.lease
        if not writer or lease is None:
            return
        if lease.holder != writer:
            self.fail(f"{what} by {writer} while {lease.holder or 'nobody'} holds the lease")
        elif self.server.clock.monotonic() >= lease.until:
            self.fail(f"{what} by {writer} after its lease has run out")

    def _node(self, change):
        # Of one that nobody can read, what was last known stays in force.
        self.tell(change, "" if self.nodes.note(change) else " (malformed)")

    def _pod(self, change):
        new, old, uid = change.new, change.old, change.record.uid
        self.pods.note(change)
        node = new["spec"].get("nodeName", "")
        status = new.get("status") or {}
        self.tell(change, f" node={node} nominated={status.get('nominatedNodeName', '')} {status.get('phase', '')}")
        self.one_acts(f"a write to pod {new['metadata']['name']}")
        if change.type == "DELETED":
            self.bound.pop(uid, None)
            return
        before = (old or {}).get("spec", {}).get("nodeName", "")
        if before and before != node and self.server.writer:
            self.fail(f"pod {new['metadata']['name']} moved from {before} to {node or 'nowhere'}")
        if node and node != before:
            decision = self.decisions.get((self.server.writer, uid))
            self.bound[uid] = Bound(change.record.rv, decision)
            if self.server.writer:
                self._newly_bound(new, node, decision)
        elif self.server.writer and old is not None and self.server.request[1].endswith("/status"):
            self._status_written(old, new)

    def _status_written(self, old, new):
        uid, name = new["metadata"]["uid"], new["metadata"]["name"]
        if _verdict(new) == _verdict(old):
            return
        if uid not in self.attempted.get(self.server.writer, ()):
            self.fail(f"{self.server.writer} writes the status of pod {name} {uid}, which it never tried to place")
        bound = self.bound.get(uid)
        own = bound is not None and bound.decision is not None and bound.decision.writer == self.server.writer
        if own and self.calm:
            self.fail(f"{self.server.writer} writes {_verdict(new)} into pod {name}, which it has bound")

    # --- bindings ----------------------------------------------------------------------------------

    def placed(self, uid, decision, assumed):
        """A replica placed a pod. `assumed`: uids of all pods whose bindings it has under way."""
        decision = decision._replace(order=next(self._orders))
        self.decisions[decision.writer, uid] = decision
        for feature in self.features:
            feature.placed(uid, decision, assumed)

    def _newly_bound(self, pod, node, decision):
        self.bindings += 1
        if decision is None or decision.node != node:
            name = pod["metadata"]["name"]
            self.fail(f"{self.server.writer} binds pod {name} to {node}, which it did not decide")
            return
        self._check(pod, decision)
        self.check_later(decision)

    def check_later(self, decision):
        """Who was decided later but bound earlier had to leave room for what is bound now."""
        for other in self.server.objects("Pod"):
            later = self.bound.get(other["metadata"]["uid"])
            if later is None or later.decision is None or is_finished(other):
                continue
            if later.decision.order > decision.order:
                self._check(other, later.decision)

    def known_others(self, pod, decision):
        """The other pods on nodes, as they are now, that a decision had to reckon with."""
        for other in self.server.objects("Pod"):
            bound = self.bound.get(other["metadata"]["uid"])
            if bound is None or other["metadata"]["uid"] == pod["metadata"]["uid"] or is_finished(other):
                continue
            if bound.must_be_known(decision):
                yield other

    def node_states(self, decision):
        """What the replica may have believed of the node when it decided, or could have heard since."""
        key = ("", decision.node)
        return self.nodes.since(key, decision.versions[NODES], decision.read.get(NODES, {}).get(key))

    def _check(self, pod, decision):
        """The pod, which is bound, fits where it is."""
        for feature in self.features:
            feature.bound(pod, decision)
        self.check_room(pod, decision)

    def check_room(self, pod, decision, as_known=()):
        """There is room for the pod, which is bound, or for a Reservation as its reserve pod. `as_known`: the same by
        earlier states of it that the replica may have believed in.
        """
        others = [each for each in self.known_others(pod, decision) if each["spec"]["nodeName"] == decision.node]
        if self.least_requested is not None:
            pod, *others = (self._with_least_requests(each, decision) for each in (pod, *others))
        reasons, kept, slots = [], [], 0
        if self.reserved is not None:
            kept = self.reserved.kept_from(pod, decision, others)
            slots = len(kept) + self.reserved.slots_of(pod, len(others))
            others = self.reserved.without_operating(pod, decision, others)
        for state in self.node_states(decision):
            found = [self._misfit(each, state, others, kept, slots) for each in (pod, *as_known)]
            if None in found:
                return
            reasons += dict.fromkeys(found)
        why = "; ".join(reasons) or "there is no such node"
        what = "reservation" if is_reserve_pod(pod) else "pod"
        self.fail(f"{decision.writer} binds {what} {pod['metadata']['name']} to {decision.node}: {why}")

    def _with_least_requests(self, pod, decision):
        """What a pod has requested since the decision may all be what the replica knew of it."""
        meta = pod["metadata"]
        states = self.pods.since((meta.get("namespace", ""), meta["name"]), decision.versions[PODS])
        return self.least_requested(pod, [state for state in states if state["metadata"]["uid"] == meta["uid"]])

    def _misfit(self, pod, node, others, kept, slots):
        """Why the pod does not fit on this state of the node; None if it does.

        `kept`: reserve pods. `slots`: how many pods there may be beside the node's own number: reserve pods, and those
        that the Reservation takes over.
        """
        if slots:
            status = node["status"]
            most = str(int(status["allocatable"]["pods"]) + slots)
            node = {**node, "status": {**status, "allocatable": {**status["allocatable"], "pods": most}}}
        if self.without_served is not None:
            pod = self.without_served(pod, node)
        world = World([node])
        for other in [*others, *kept]:
            world.add(other)
        for name in FITTING:
            plugin = self._plugins[name]
            status = plugin.filter(pod, node, world)
            if status is not None:
                return f"{name}: {', '.join(status.reasons)}"
        return None


def is_reserve_pod(pod):
    """Whether it stands for a Reservation."""
    return RESERVE_POD in (pod["metadata"].get("annotations") or {})


def is_finished(pod):
    return (pod.get("status") or {}).get("phase") in FINISHED


def is_gone(pod):
    """Whether a pod is on its way out or has come to its end."""
    return is_deleting(pod) or is_finished(pod)


def _verdict(pod):
    """What a scheduler says of a pod in its status. A nomination may be taken back by whoever needs the room."""
    said = [c for c in (pod.get("status") or {}).get("conditions") or () if c.get("type") == "PodScheduled"]
    return [(condition["status"], condition.get("reason"), condition.get("message")) for condition in said]
