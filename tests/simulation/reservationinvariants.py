"""Reservations: what must hold whenever one gets its node or a pod is bound, judged from the server's own objects."""

from collections import Counter

from tests.plugins.reservation.naive import names
from tests.plugins.reservation.naive.cluster import allocated_to
from tests.plugins.reservation.naive.info import Info, in_units
from tests.plugins.reservation.naive.matching import Diagnosis, Rejected, Wish
from tests.reference.podrequests import exact_requests
from tests.simulation.configuration import gates
from tests.simulation.history import History
from tests.simulation.invariants import PODS, Bound, is_finished
from tests.simulation.reservationusers import API_VERSION, KIND, is_operating, is_over
from tests.simulation.reservedroom import as_reservation

RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"


class ReservationInvariants:
    """A replica may be behind; what it decides must be right by Reservations and pods that it can have known."""

    def __init__(self, simulation):
        self._invariants = simulation.invariants
        self._server = simulation.server
        self._permits = simulation.permits
        self._users = simulation.reservations
        self._omits_node_labels = "OmitNodeLabelsForReservation=true" in gates(simulation.plan)
        self._history = History()
        self._rooms = {}
        """uid of a Reservation that has a node -> Bound."""
        self._judged = set()
        self._ignoring = set()
        """uids of pods that ignored Reservations when they were bound: their labels may change while they run."""
        simulation.server.registry.subscribe_changes(simulation.server.resource(KIND, API_VERSION), self._changed)

    # --- Reservations themselves ---------------------------------------------------------------------

    def _changed(self, change):
        self._history.note(change)
        new, old, uid = change.new, change.old, change.record.uid
        status, before = new.get("status") or {}, (old or {}).get("status") or {}
        node, phase = status.get("nodeName", ""), status.get("phase", "")
        self._invariants.tell(change, f" {phase} node={node}")
        self._invariants.one_acts(f"a write to reservation {change.record.name}")
        if change.type == "DELETED":
            self._rooms.pop(uid, None)
            return
        self._check_course(new, before, status)
        if node and not before.get("nodeName"):
            self._newly_placed(new, node, change.record.rv)
        if is_over(new):
            self._rooms.pop(uid, None)

    def _check_course(self, thing, before, status):
        name, fail = thing["metadata"]["name"], self._invariants.fail
        if before.get("nodeName") and status.get("nodeName") != before["nodeName"]:
            fail(f"reservation {name} moved from {before['nodeName']} to {status.get('nodeName') or 'nowhere'}")
        if before.get("phase") in ("Succeeded", "Failed") and status.get("phase") != before["phase"]:
            fail(f"reservation {name} is {status.get('phase')} after it was {before['phase']}")
        if status.get("phase") == "Succeeded" != before.get("phase"):
            if not Info(thing).once:
                fail(f"reservation {name}, which is to be used many times, has succeeded")
            elif not status.get("currentOwners") and not before.get("currentOwners"):
                fail(f"reservation {name} has succeeded without an owner")

    def _newly_placed(self, thing, node, version):
        uid, name, writer = thing["metadata"]["uid"], thing["metadata"]["name"], self._server.writer
        decision = self._invariants.decisions.get((writer, uid))
        self._rooms[uid] = Bound(version, decision, RESERVATIONS)
        if decision is None or decision.node != node:
            self._invariants.fail(f"{writer} gives reservation {name} node {node}, which it did not decide")
            return
        pod = self._reserve_pod(thing, decision)
        if self._permits is not None:
            self._permits.bound(pod, decision)
        known = [state["metadata"].get("annotations") for state in self._states(uid, decision) if state is not None]
        earlier = [{**thing, "metadata": {**thing["metadata"], "annotations": each}} for each in known]
        self._invariants.check_room(pod, decision, [self._reserve_pod(each, decision) for each in earlier])
        self._invariants.check_later(decision)

    def _reserve_pod(self, thing, decision):
        """As it counts: what pods use that the Reservation takes over is theirs."""
        bare = Info({**thing, "status": {}}).reserve_pod()
        others = self._invariants.known_others(bare, decision)
        info = self._info(thing, [other for other in others if other["spec"]["nodeName"] == decision.node], decision)
        return info.reserve_pod(info.held())

    # --- what they keep ------------------------------------------------------------------------------

    def kept_from(self, pod, decision, others):
        """Reserve pods that count what Reservations keep from a pod that is placed, as a decision had to know them.

        `others`: the pods that it had to reckon with. What the pod's own Reservation keeps is no matter to it; nor is
        any, if it ignores Reservations.
        """
        if self._may_ignore(pod, decision):
            return []
        own, found = allocated_to(pod), []
        for uid, bound in self._rooms.items():
            if uid not in (own, pod["metadata"]["uid"]) and bound.must_be_known(decision):
                found += self._least_kept(uid, [pod, *others], decision)
        return found

    @staticmethod
    def slots_of(pod, others):
        """How many of the other pods on a node take no slot from this one: all, for the reserve pod of a Reservation
        that may take pods over, as of these more may be out of sight when it is placed than it takes."""
        return others if names.PRE_ALLOCATION in (pod["metadata"].get("annotations") or {}) else 0

    def without_operating(self, pod, decision, others):
        """The other pods; those that act as Reservations count what their owners leave. Those that a Reservation has
        taken over have host ports that it may have as well."""
        own, found = allocated_to(pod), []
        ignores = self._may_ignore(pod, decision)
        for other in others:
            if allocated_to(other) == pod["metadata"]["uid"]:
                found.append(without_ports(other))
                continue
            thing = self._acting(other, decision)
            if thing is None:
                found.append(other)
            elif other["metadata"]["uid"] != own and not ignores:
                found.append(self._kept(thing, [pod, *others], decision, pod))
        return found

    def in_sight(self, pod, decision, others):
        """The other pods but for those on the pod's node that act as Reservations and that it uses, or ignores: with
        all that they hold, volumes included, they are away for it (reservation spec 3.4)."""
        own, ignores = allocated_to(pod), self._may_ignore(pod, decision)
        return [
            other
            for other in others
            if other["spec"]["nodeName"] != decision.node
            or not (ignores or other["metadata"]["uid"] == own)
            or self._acting(other, decision) is None
        ]

    def _acting(self, pod, decision):
        """The Reservation that a pod is, or was as far as the replica may have known."""
        states = [pod, *self._states_of(pod, decision)]
        return next((thing for thing in map(as_reservation, states) if thing is not None), None)

    def _states(self, uid, decision):
        """The states of a Reservation that a replica may have believed in, or heard of since; None for its absence."""
        for versions in self._history.all_states(decision.versions[RESERVATIONS]).values():
            if any(state is not None and state["metadata"]["uid"] == uid for state in versions):
                return [state if state is None or state["metadata"]["uid"] == uid else None for state in versions]
        return []

    def _least_kept(self, uid, pods, decision):
        states = self._states(uid, decision)
        if any(state is None or is_over(state) for state in states[-1:]):
            return []
        held = [state for state in states if state is not None and (state.get("status") or {}).get("nodeName")]
        held = [state for state in held if state["status"]["nodeName"] == decision.node and not is_over(state)]
        if not held:
            return []
        return [self._kept(min(held, key=lambda state: self._weight(state, pods, decision)), pods, decision, pods[0])]

    def _weight(self, thing, pods, decision):
        return sum(self._held(thing, pods, decision).values())

    def _info(self, thing, pods, decision):
        """With all who may have been known to use it."""
        uid = thing["metadata"]["uid"]
        users = [pod for pod in pods if any(allocated_to(state) == uid for state in self._states_of(pod, decision))]
        return Info(thing, [pod for pod in users if pod["metadata"]["uid"] != uid])

    def _held(self, thing, pods, decision):
        return in_units(self._info(thing, pods, decision).held())

    def _kept(self, thing, pods, decision, pod):
        info = self._info(thing, pods, decision)
        made = info.reserve_pod(info.held())
        if info.owns(pod):
            made = without_ports(made)
        made["spec"]["nodeName"] = decision.node
        return made

    def _states_of(self, pod, decision):
        """The states of a pod that the replica may have believed in, or heard of since."""
        meta = pod["metadata"]
        states = self._invariants.pods.states_since((meta["namespace"], meta["name"]), decision.versions[PODS])
        return [state for state in states if state and state["metadata"]["uid"] == meta["uid"]] or [pod]

    def _may_ignore(self, pod, decision):
        """Whether the pod ignored Reservations by a state that the replica may have believed in."""
        return any(map(_ignores, self._states_of(pod, decision)))

    def sharing(self, node):
        """(Reservation, pods that use it) of those on a node whose place a replica decided, and of the pods that act as
        Reservations; none where a pod ignores them, which may have taken what they keep, or an administrator has
        written which one a pod uses."""
        pods = [pod for pod in self._server.objects("Pod") if pod["spec"].get("nodeName") == node]
        pods = [pod for pod in pods if not is_finished(pod)]
        if any(_ignores(pod) or pod["metadata"]["uid"] in self._ignoring for pod in pods):
            return
        if any(pod["metadata"]["uid"] in self._users.moved for pod in pods):
            return
        for thing in self._server.objects(KIND, API_VERSION):
            if thing["metadata"]["uid"] in self._rooms and thing["status"].get("nodeName") == node:
                yield thing, [pod for pod in pods if allocated_to(pod) == thing["metadata"]["uid"]]
        for acting in pods:
            known = self._invariants.bound.get(acting["metadata"]["uid"])
            if is_operating(acting) and known is not None and known.decision is not None:
                yield acting, [pod for pod in pods if allocated_to(pod) == acting["metadata"]["uid"]]

    # --- who uses them -------------------------------------------------------------------------------

    def placed(self, uid, decision, assumed):
        """Nothing: what counts is what is bound."""

    def bound(self, pod, decision):
        """A pod was bound, or one was that was decided earlier."""
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        if uid in self._judged:
            return
        self._judged.add(uid)
        if self._may_ignore(pod, decision):
            self._ignoring.add(uid)
        used = allocated_to(pod)
        reasons = list(dict.fromkeys(self._problems(pod, used, decision)))
        if None not in reasons:
            what = f"with reservation {used}" if used else "without a reservation"
            self._invariants.fail(f"{decision.writer} binds pod {name} to {decision.node} {what}: {'; '.join(reasons)}")

    def _problems(self, pod, used, decision):
        """Why the pod may not use it, for each state that the replica can have known; a None among them if it may."""
        states = self._states_of(pod, decision)
        if used is None:
            yield from (self._may_go_without(state) for state in states)
            return
        things = [thing for thing in self._states(used, decision) if thing is not None]
        things += self._operating(used, decision)
        if not things:
            yield "there is no such reservation"
        others = [
            other
            for other in self._invariants.known_others(pod, decision)
            if all(allocated_to(state) == used for state in self._states_of(other, decision))
            and other["spec"]["nodeName"] == decision.node
        ]
        for state in states:
            for thing in things:
                for node in self._invariants.node_states(decision):
                    yield self._problem(state, Info(thing), node, others)

    def _operating(self, uid, decision):
        """The states of a pod that acts as a Reservation."""
        for states in self._invariants.pods.all_states(decision.versions[PODS]).values():
            there = [state for state in states if state is not None and state["metadata"]["uid"] == uid]
            if there:
                return [thing for thing in map(as_reservation, there) if thing]
        return []

    @staticmethod
    def _may_go_without(pod):
        try:
            wish = Wish(pod)
            return "it has to use one" if wish.affinity is not None and not wish.ignores else None
        except Rejected:
            return "it cannot be placed at all"

    def _problem(self, pod, info, node, others):
        if not info.available or info.node != node["metadata"]["name"]:
            return f"it is {info.phase} on {info.node or 'no node'}"
        if info.broken or not info.owns(pod):
            return "it was made for others"
        try:
            wish = Wish(pod)
        except Rejected:
            return "it cannot be placed at all"
        if wish.ignores:
            return "it uses none"
        if not wish.may_use(info, node, Diagnosis(), self._omits_node_labels):
            return "it must not use this one"
        if info.once and others:
            return f"{others[0]['metadata']['name']} has used it up"
        return self._beyond(pod, info, others) if info.policy == names.RESTRICTED else None

    @staticmethod
    def _beyond(pod, info, others):
        used, wanted = Counter(), exact_requests(pod)
        for other in others:
            used.update(exact_requests(other))
        for name in info.names:
            left = info.allocatable.get(name, 0) - info.inner.get(name, 0) - used[name]
            if wanted.get(name, 0) > max(left, 0):
                return f"it has only {left} {name} left"
        return None


def _ignores(pod):
    return (pod["metadata"].get("labels") or {}).get(names.IGNORED) == "true"


def without_ports(pod):
    """The pod as if it wanted no host ports."""
    containers = [{key: value for key, value in one.items() if key != "ports"} for one in pod["spec"]["containers"]]
    return {**pod, "spec": {**pod["spec"], "containers": containers}}
