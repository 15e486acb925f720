"""The end of a run: faults have stopped, nobody changes anything. What must be true once it has come to rest?"""

from koordsched.framework.interface import CycleState
from koordsched.plugins.volumebinding.plugin import VolumeBooks
from tests.reference.evaluation import evaluate, priority
from tests.reference.profile import Profile
from tests.reference.world import World, is_deleting
from tests.simulation.breakerinvariants import workload_of
from tests.simulation.claimreckoning import believed as believed_claims
from tests.simulation.claimreckoning import lacks_claims, with_claims
from tests.simulation.configuration import DEVICES, GANGS, NUMA
from tests.simulation.devicereckoning import fails, not_adapted, with_devices
from tests.simulation.deviceusers import believed as believed_devices
from tests.simulation.gangreckoning import believed as believed_gangs
from tests.simulation.invariants import is_finished, is_gone
from tests.simulation.loadusers import believed as believed_loads
from tests.simulation.numareckoning import refused_by_reserve, with_numa
from tests.simulation.numausers import believed as believed_numa
from tests.simulation.quotareckoning import believed as believed_quotas
from tests.simulation.quotausers import KIND as QUOTA
from tests.simulation.quotausers import is_readable
from tests.simulation.reservationreckoning import believed as believed_reservations


class Reckoning:
    """Compares what is with what should be. Methods return texts, none if all is well."""

    def __init__(
        self,
        server,
        broken,
        quotas=None,
        storage=(),
        loads=None,
        set_apart=((), ()),
        numa=None,
        devices=None,
    ):
        self.server = server
        self.broken = broken
        """uids of pods that cannot be understood."""
        self.quotas = quotas
        """What `tests.reference.quotas` makes of the server's objects, None without quotas."""
        self.storage = storage
        """Claims, volumes, classes and drivers."""
        self.loads = loads
        """`LoadUsers`, None where nodes report no loads."""
        self._quarantined, self._closed = set_apart
        self.numa = numa
        """`NumaUsers`, None where nodes report no CPUs."""
        self.devices = devices
        """`DeviceUsers`, None where nodes report no devices."""
        self.reservations = None
        """`ReservationReckoning`, None where there are no Reservations."""
        self.gangs = None
        """`GangReckoning`, None where there are no gangs."""
        self.claims = None
        """`ClaimUsers`, None where pods claim no devices."""
        self.preempts = True
        """Whether room is made for single pods."""

    # --- liveness ----------------------------------------------------------------------------------

    def unplaced(self):
        """Pods that wait although there is a place for them, or could be made (by the naive reference)."""
        profile, world = self.profile(), self.world()
        waiting = self.waiting()
        nominated = nominated_rows(waiting)
        lasting = [(thing, node) for thing, node in nominated if self._keeps_its_promise(thing)]
        found = []
        for thing in waiting:
            name = _name(thing)
            if self.gangs is not None and not self.gangs.is_tried_alone(thing):
                continue
            places = self._places(thing, world, profile, nominated)
            if places:
                found.append(f"{name} waits although it fits on {', '.join(sorted(places))}")
            elif self.preempts and places is not None and not _never_preempts(thing):
                places = set(self._could_make_room(thing, world, profile, lasting)).difference(self._closed)
                if places:
                    found.append(f"{name} waits although it may preempt on {', '.join(sorted(places))}")
        return found

    def wrong_reservations(self):
        """Reservations that wait although there is a place for them, or do not say what is so."""
        if self.reservations is None:
            return []
        profile, world, found = self.profile(), self.world(), self.reservations.wrong()
        nominated = nominated_rows([thing for thing in self.server.objects("Pod") if self.waits(thing)])
        for name, pod in self.reservations.waiting().items():
            if places := self._places(pod, world, profile, nominated):
                found.append(f"reservation {name} waits although it fits on {', '.join(sorted(places))}")
            found += self.reservations.unexplained(name)
        return found

    def _places(self, thing, world, profile, nominated):
        """The nodes that the pod fits on; None if no place can help it: what keeps it waiting is no lack of room."""
        reserving = [profile.plugins[name] for name in (NUMA, DEVICES) if name in profile.plugins]
        if self._quota_refuses(thing) or (reserving and (refused_by_reserve(thing) or not_adapted(thing))):
            return None
        outcome = self._evaluate(thing, world, profile, nominated)
        if fails(outcome):
            return None
        places = set(outcome.feasible).difference(self._closed)
        if outcome.feasible and not places:
            return None  # it was refused on Permit: a gate alone can help it, no victims
        if reserving and places:
            world = self.reservations.view(world) if self.reservations is not None else world
            kept = {node["metadata"]["name"]: node for node in world.nodes}
            places = {name for name in places if all(p.reserves(thing, kept[name], world) for p in reserving)}
            return places or None
        return places

    def _evaluate(self, thing, world, profile, nominated):
        if self.reservations is not None:
            return self.reservations.evaluate(thing, world, profile, nominated)
        return evaluate(thing, world, profile, nominated)

    def unredeemed(self):
        """Promises that keep others away although nothing is leaving that their pods could wait for.

        Those to pods that never preempt are left to them, and those to pods that wait for their quota, for others of
        their gang to come, or for claims that are not there. The members of a gang keep theirs while something leaves
        for one of them.
        """
        leaving = {thing["spec"].get("nodeName") for thing in self.server.objects("Pod") if is_deleting(thing)}
        return [
            f"{_name(thing)} still waits for {node}, which no pod leaves"
            for thing, node in nominated_rows(self.waiting())
            if leaving.isdisjoint((node, *self._promised_to_companions(thing))) and not self._keeps_its_promise(thing)
        ]

    def _keeps_its_promise(self, thing):
        """Whether no attempt in vain takes it from the pod: it has none to come, or keeps it nonetheless."""
        if _never_preempts(thing) or self._quota_refuses(thing) or self._lacks_companions(thing):
            return True
        return self.claims is not None and lacks_claims(thing, self.world())

    def _promised_to_companions(self, thing):
        """The nodes promised to the waiting pods with which this one is placed."""
        if self.gangs is None:
            return []
        return [node for _, node in nominated_rows([each for each in self.gangs.companions(thing) if self.waits(each)])]

    def _lacks_companions(self, thing):
        return self.gangs is not None and self.gangs.is_kept_out(
            thing, {other["metadata"]["uid"]: other for other in self.waiting()}
        )

    def _quota_refuses(self, thing):
        return self.quotas is not None and self.quotas.refusal(thing) is not None

    def profile(self):
        """The plugins, as the naive reference has them."""
        profile = Profile(self.loads.profile() if self.loads is not None else {})
        if self.numa is not None:
            profile = with_numa(profile, self.numa.args)
        if self.devices is not None:
            adapts = self.devices.vendors is not None and self.devices.vendors.adapts
            numa_args = self.numa.args if self.numa is not None else None
            profile = with_devices(profile, self.devices.args, numa_args, adapts=adapts)
        return with_claims(profile) if self.claims is not None else profile

    def waiting(self):
        """The pods that wait for a node of ours."""
        return [thing for thing in self.server.objects("Pod") if self.waits(thing)]

    def world(self):
        """All that decisions depend on."""
        others = [*self.server.objects("Node"), *self.server.objects("Namespace"), *self.storage]
        placed = [thing for thing in self.server.objects("Pod") if thing["spec"].get("nodeName")]
        world = World([*others, *(thing for thing in placed if not is_finished(thing))])
        if self.loads is not None:
            world.now = self.loads.now()
            for report in self.loads.objects():
                world.add(report)
        for users in (self.numa, self.devices, self.claims):
            for report in users.objects() if users is not None else ():
                world.add(report)
        if self.devices is not None and self.devices.vendors is not None:
            for thing in self.devices.vendors.config_maps():
                world.add(thing)
        return world

    def waits(self, thing):
        """Whether a pod waits for a node of ours."""
        spec = thing["spec"]
        return not (
            spec.get("nodeName")
            or spec.get("schedulingGates")
            or spec["schedulerName"] != "default-scheduler"
            or thing["metadata"]["uid"] in self.broken
            or is_gone(thing)
            or workload_of(thing) in self._quarantined
        )

    def _could_make_room(self, thing, world, profile, lasting):
        """Nodes that would do without their pods of lower priority.

        What is promised there counts in dry runs as it does elsewhere, if the promise may be `lasting`: one to a pod
        that never preempts outlives attempts in vain (core spec 3.8, "kept"), and pods that wait for their quota or for
        others of their gang are not tried. Any other pod's next attempt ends its promise, or finds it a node where it
        may preempt itself.
        """
        found = []
        spared = self.reservations.spared(thing, world) if self.reservations is not None else ()
        for node in world.nodes:
            name = node["metadata"]["name"]
            lower = [pod for pod in world.pods_on(node) if priority(pod) < priority(thing)]
            victims = [pod for pod in lower if pod["metadata"]["uid"] not in spared]
            if not victims:
                continue
            if name in self._evaluate(thing, world.without(victims), profile, lasting).feasible:
                found.append(name)
        return found

    # --- the scheduler's own state -------------------------------------------------------------------

    def strays(self, process):
        """What a scheduler holds on to that it should have let go of, and pods that it has lost."""
        scheduler, found = process.scheduler, []
        if scheduler.cluster.assumed:
            found.append(f"still assumed: {sorted(pod.key for pod in scheduler.cluster.assumed.values())}")
        if scheduler.binding.in_flight:
            found.append(f"{scheduler.binding.in_flight} bindings under way")
        if scheduler.queue.in_flight_pods():
            found.append(f"in flight: {[pod.key for pod in scheduler.queue.in_flight_pods()]}")
        queued = {item.pod.uid for item in scheduler.queue}
        pending = {pod.uid: pod for pod in scheduler.pending_pods() if not pod.deleting}
        found += [f"lost: {pod.key}" for uid, pod in pending.items() if uid not in queued]
        found += [f"queued without reason: {item.key}" for item in scheduler.queue if item.pod.uid not in pending]
        books = scheduler.cluster.shared(VolumeBooks)
        assumptions = books.assumptions
        promised = [*assumptions._claims._assumptions, *assumptions._volumes._assumptions, *assumptions._made]
        if promised:
            found.append(f"volumes and claims still promised: {promised}")
        if scheduler.waiting.get(next(iter(queued), "")) is not None:
            found.append("a queued pod waits on Permit")
        return [f"{process.name}: {text}" for text in found]

    def unheard(self, process):
        """Events that were neither handled nor superseded: what the scheduler keeps are the server's own objects, each
        in its newest version."""
        found = []
        for store in process.scheduler.cluster.objects.wanted():
            ours = {(o.metadata.namespace, o.metadata.name): int(o.metadata.resource_version) for o in store}
            theirs = {record.key: record.rv for record in self.server.records(store.kind.path) if _is_readable(record)}
            found += [
                f"{process.name}: {store.kind.plural} {'/'.join(key)}: {ours.get(key)}, on the server {theirs.get(key)}"
                for key in sorted({*ours, *theirs})
                if ours.get(key) != theirs.get(key)
            ]
        return found

    @staticmethod
    def differences(process, fresh):
        """Where the state of a scheduler differs from one that was just built from the server's objects."""
        promised, nominator = _promised_to_reserve_pods(process.scheduler), fresh.scheduler.queue.nominator
        for uid, node in promised:
            nominator.add(fresh.scheduler.pending_pod(uid), node)
        ours, theirs = belief(process.scheduler), belief(fresh.scheduler)
        for uid, _ in promised:
            nominator.delete(uid)
        for uid in set(ours["verdicts"]) ^ set(theirs["verdicts"]):
            # What a gang has been through is known to those who were there.
            ours["verdicts"].pop(uid, None)
            theirs["verdicts"].pop(uid, None)
        return [
            f"{process.name}: {part} {name}: {ours[part].get(name)}, by a rebuild {theirs[part].get(name)}"
            for part in theirs
            for name in sorted({*ours[part], *theirs[part]})
            if ours[part].get(name) != theirs[part].get(name)
        ]


def belief(scheduler):
    """What a scheduler believes, by names only: comparable between schedulers."""
    cluster, table = scheduler.cluster, scheduler.cluster.table
    names = table.resource_names.names
    nodes = {}
    for name, row in table.row_of.items():
        nodes[name] = {
            "allocatable": {names[i]: int(c.data[row]) for i, c in enumerate(table.allocatable) if c.data[row]},
            "requested": {names[i]: int(c.data[row]) for i, c in enumerate(table.requested) if c.data[row]},
            "nonzero": [int(column.data[row]) for column in table.requested_nonzero],
            "pods": (int(table.pods_count.data[row]), int(table.pods_allocatable.data[row])),
            "taints": str(table.taint_sets[table.taint_set.data[row]]),
            "unschedulable": bool(table.unschedulable.data[row]),
            "on it": sorted(pod.key for pod in cluster.pods_on(row).values()),
        }
    return {
        "node": nodes,
        "pod on": {
            pod.uid: (pod.node, sorted(pod.labels.labels.items()), pod.deleting, _named(pod.requests.amounts, names))
            for pod in cluster.assigned.values()
        },
        "orphans": {name: sorted(pods) for name, pods in cluster.orphans.items()},
        "pending": {pod.uid: (pod.key, pod.resource_version) for pod in scheduler.pending_pods()},
        "nominated": {
            name: sorted(pod.key for pod in scheduler.queue.nominator.nominated_on(name))
            for name in sorted(scheduler.queue.nominator.nodes_with_nominated())
        },
        "verdicts": _verdicts(scheduler),
        "quota": believed_quotas(scheduler),
        "load of": believed_loads(scheduler),
        "CPUs of": believed_numa(scheduler),
        "devices of": believed_devices(scheduler),
        "reservation": believed_reservations(scheduler),
        "device in use": believed_claims(scheduler),
        "gang": believed_gangs(scheduler),
    }


def _promised_to_reserve_pods(scheduler):
    """(uid, node) of those that wait for their quota: like pods, they keep the promise, but no object says so."""
    waiting = [item for item in scheduler.queue if item.pod.virtual and "ElasticQuota" in item.rejected_by]
    promised = [(item.pod.uid, scheduler.queue.nominator.node_of(item.pod.uid)) for item in waiting]
    return [(uid, node) for uid, node in promised if node]


def _name(thing):
    return f"{thing['metadata']['namespace']}/{thing['metadata']['name']}"


def nominated_rows(waiting):
    """(pod, node name) of those that were promised one."""
    return [(thing, node) for thing in waiting if (node := (thing.get("status") or {}).get("nominatedNodeName"))]


def _never_preempts(thing):
    return thing["spec"].get("preemptionPolicy") == "Never"


def _named(amounts, names):
    return {names[index]: amount for index, amount in amounts}


def _is_readable(record):
    return record.obj()["kind"] != QUOTA or is_readable(record.obj())


def _verdicts(scheduler):
    """uid -> node name -> reason, for every pending pod but members of gangs that may not be tried: caches and counters
    included.
    """
    table, found = scheduler.cluster.table, {}
    for pod in scheduler.pending_pods():
        profile = scheduler.profiles[pod.shape.scheduler_name]
        verdicts = profile.filtering.filter(CycleState(pod), all_nodes=True)
        reasons = profile.handle.reasons
        if reasons[int(verdicts.codes[verdicts.codes != 0].max(initial=0))].plugin == GANGS:
            continue
        found[pod.uid] = {
            name: _reason(reasons, int(verdicts.codes[row])) for name, row in sorted(table.row_of.items())
        }
    return found


def _reason(reasons, code):
    return "fits" if code == 0 else f"{reasons[code].plugin}: {', '.join(reasons[code].texts)}"
