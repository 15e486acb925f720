"""The end of a run with Reservations: their status, the pods that wait for them, and what replicas know of them."""

from tests.plugins.reservation.naive.cluster import Cluster, allocated_to
from tests.plugins.reservation.naive.controller import synchronised
from tests.plugins.reservation.naive.decision import Decision
from tests.plugins.reservation.naive.matching import Rejected
from tests.plugins.reservation.naive.model import Settings
from tests.plugins.reservation.naive.plugin import Reservation as NaiveReservation
from tests.reference.evaluation import Outcome, evaluate
from tests.simulation.configuration import DEVICES, NUMA, PROFILE, RESERVATION, gates
from tests.simulation.invariants import is_finished
from tests.simulation.reservationusers import is_operating, is_over
from tests.simulation.reservedroom import as_reservation, is_due
from tests.simulation.stayersreckoning import fits_beside

CLEANS = "CleanExpiredReservationAllocated=true"


class ReservationReckoning:
    """Compares with the naive model. Methods return texts, none if all is well."""

    def __init__(self, simulation):
        self._server = simulation.server
        self._users = simulation.reservations
        self._gates = gates(simulation.plan)
        names_of_gates = [text.removesuffix("=true") for text in self._gates]
        self._settings = Settings.of(self._users.args, names_of_gates)
        leader = simulation.leader()
        self._now = (leader if leader is not None else simulation.server).clock.wall()
        self._plugin = NaiveReservation({})

    # --- who fits where --------------------------------------------------------------------------------

    def evaluate(self, pod, world, profile, nominated):
        """The outcome for a pod, or for a reserve pod, in a world of pods and nodes with all Reservations.

        What other plugins than Reservation allocate, CPUs and devices, is told apart by the node without what the pod's
        own Reservations keep: a pod that asks for any has its place for sure where it has it without.
        """
        cluster = self._cluster(world)
        allocating = [name for name in (NUMA, DEVICES) if name in profile.plugins]
        try:
            decision = Decision(cluster, pod, self._settings)
        except Rejected as rejected:
            return Outcome(rejected=(RESERVATION, rejected.status))
        view = self._dated(decision.view, world)
        if world is not world.origin:  # a dry run: others look at what there really is
            view.origin = self.view(world.origin)
            view.origin.decision, view.origin.holding = decision, view.holding
        outcome = evaluate(pod, view, self._with_reservation(profile), nominated)
        beside = fits_beside(decision, view, profile, nominated, lambda made: self._dated(made, world))
        if beside is not None:
            outcome.feasible = [name for name in outcome.feasible if name in beside]
        if decision.info is not None and not decision.info.policy:  # those without owners are left out of the cluster
            made = filter(None, map(as_reservation, world.origin.placed))
            closed = {each["status"]["nodeName"] for each in made if not each["spec"]["owners"]}
            outcome.feasible = [name for name in outcome.feasible if name not in closed]
        if is_operating(pod):  # it is to be one of policy Aligned
            closed = {info.node for info in cluster.infos() if info.matchable and not info.policy}
            outcome.feasible = [name for name in outcome.feasible if name not in closed]
        if hasattr(world.origin, "now"):  # a pod that acts as a Reservation is a load all the same
            acting = {made["status"]["nodeName"] for made in map(as_reservation, world.origin.placed) if made}
            outcome.feasible = [name for name in outcome.feasible if name not in acting]
        if not outcome.feasible or all(name in outcome.skipped for name in allocating):
            return outcome
        if decision.has_affinity or (decision.is_reserve and decision.required):
            outcome.feasible = []
            return outcome
        beside = evaluate(pod, self.view(world), profile, nominated)
        outcome.feasible = [name for name in outcome.feasible if name in beside.feasible]
        outcome.filtered |= beside.filtered
        return outcome

    def spared(self, pod, world):
        """uids of the pods that are not evicted for this one: what they use falls back to a Reservation that is none of
        its own, or they act as one of these, and are away."""
        cluster = self._cluster(world)
        try:
            states = Decision(cluster, pod, self._settings).states
        except Rejected:
            states = {}
        own = {info.uid for state in states.values() for info in state.matched}
        users = {user["metadata"]["uid"] for info in cluster.infos() if info.uid not in own for user in info.owners}
        return users | own

    def view(self, world):
        """The world with all that Reservations keep."""
        return self._dated(self._cluster(world).view(), world)

    def waiting(self):
        """The reserve pods of the Reservations that have no node, by name."""
        cluster = Cluster()
        for thing in self._users.objects():
            cluster.put(thing)
        found = {}
        for name, thing in cluster.reservations.items():
            info = cluster.info(name)
            pod = info.reserve_pod() if info.valid else None
            if pod is None or info.node or is_over(thing) or info.terminating or is_due(thing, self._now):
                continue
            if pod["spec"]["schedulerName"] == PROFILE:
                said = (thing.get("status") or {}).get("conditions") or ()
                told = [{**each, "type": "PodScheduled"} for each in said if each["type"] == "Scheduled"]
                found[name] = {**pod, "status": {"conditions": told}}
        return found

    def _cluster(self, world):
        """What there is, with the pods of this world."""
        cluster = Cluster(now=self._now)
        cluster.others = [thing for things in world.objects.values() for thing in things]
        for thing in self._users.objects():
            cluster.put(thing)
        acting = {}
        for pod in world.origin.placed:
            made = as_reservation(pod)
            if made is not None and made["spec"]["owners"] and not allocated_to(pod):
                acting[made["metadata"]["uid"]] = made
        for pod in world.placed:
            made = acting.get(pod["metadata"]["uid"])
            cluster.put(made if made is not None else pod)
        whole = Cluster()
        for thing in [*self._users.objects(), *acting.values(), *world.origin.placed]:
            whole.put(thing)
        cluster.spent = {info.name for info in whole.infos() if info.once and info.owners}
        return cluster

    def _with_reservation(self, profile):
        copy = type(profile).__new__(type(profile))
        copy.__dict__.update(profile.__dict__)
        copy.plugins = {**profile.plugins, RESERVATION: self._plugin}
        copy.points = {point: list(chain) for point, chain in profile.points.items()}
        for point in ("preFilter", "filter"):
            copy.points[point].append(RESERVATION)
        return copy

    @staticmethod
    def _dated(view, world):
        if hasattr(world.origin, "now"):
            view.now = world.origin.now
        return view

    # --- what objects say ------------------------------------------------------------------------------

    def wrong(self):
        """Reservations and pods that do not say what is so."""
        cluster = Cluster(*self._server.objects("Node"), now=self._now)
        for thing in [*self._users.objects(), *self._server.objects("Pod")]:
            cluster.put(thing)
        uids = {thing["metadata"]["uid"] for thing in cluster.reservations.values()}
        uids |= {pod["metadata"]["uid"] for pod in cluster.pods.values() if is_operating(pod)}
        found = []
        for name, thing in cluster.reservations.items():
            found += self._wrong_object(cluster, name, thing)
        if CLEANS in self._gates:
            found += [
                f"pod {key} says that it uses a reservation that is gone"
                for key, pod in cluster.pods.items()
                if (uid := allocated_to(pod)) and uid not in uids and not is_finished(pod)
            ]
        return found

    def _wrong_object(self, cluster, name, thing):
        status = thing.get("status") or {}
        node = status.get("nodeName")
        if is_over(thing):
            if node and node not in cluster.nodes and _has_expired(thing):
                yield f"reservation {name} is over, and its node is gone: it is still there"
            return
        if is_due(thing, self._now):
            yield f"reservation {name} has not ended in time"
            return
        cluster.now = 0.0
        due = synchronised(cluster, thing)
        if due is not thing:
            said = {key: status.get(key) for key in ("phase", "allocated", "currentOwners")}
            yield f"reservation {name} says {said}, it is {due['status']}"

    def unexplained(self, name):
        """A Reservation that waits without saying why."""
        thing = next(thing for thing in self._users.objects() if thing["metadata"]["name"] == name)
        conditions = (thing.get("status") or {}).get("conditions") or ()
        if not any((each["type"], each["status"]) == ("Scheduled", "False") for each in conditions):
            yield f"reservation {name} waits without a word"


def believed(scheduler):
    """uid of a Reservation -> what a replica knows of it; {} without Reservations."""
    plugin = scheduler.profiles[PROFILE].plugins.get(RESERVATION)
    if plugin is None:
        return {}
    cache, table = plugin.cache, scheduler.cluster.table
    named = table.resource_names.names
    found = {}
    for info in cache:
        row = cache.row_of(info)
        found[info.uid] = {
            "name": info.name,
            "version": info.reservation.metadata.resource_version,
            "node": table.names[row] if row >= 0 else "",
            "owners": sorted(pod.key for pod in info.owners.values()),
            "allocated": {named[index]: amount for index, amount in sorted(info.allocated.items())},
            "usable": info.matchable,
            "counted": info.counted,
        }
    rows = {
        name: {
            "without a policy": int(cache.unbound.data[row]),
            "with a policy": int(cache.bound.data[row]),
            "there": sorted(info.uid for info in cache.on(row)),
        }
        for name, row in table.row_of.items()
    }
    users = {uid: sorted(pod.key for pod in cache.users(uid).values()) for uid in sorted(cache.used())}
    return {**found, "rows": rows, "users": users}


def _has_expired(thing):
    conditions = (thing.get("status") or {}).get("conditions") or ()
    return any((each["type"], each["reason"]) == ("Ready", "Expired") for each in conditions)
