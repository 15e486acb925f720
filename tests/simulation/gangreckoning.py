"""The end of a run with gangs: none is half there, none waits that would fit, and PodGroups say what is so."""

from collections import Counter, defaultdict
from datetime import datetime
from random import Random

from koordsched.framework.status import Code
from tests.reference.evaluation import evaluate
from tests.simulation.claimreckoning import with_allocations
from tests.simulation.configuration import PROFILE
from tests.simulation.gangoptions import (
    LABEL,
    ONCE_SATISFIED,
    WAITING_AND_RUNNING,
    by_pod_group,
    declared_by,
    defined_by,
    gang_of,
    id_of,
)
from tests.simulation.gangusers import API_VERSION, KIND
from tests.simulation.invariants import is_finished, is_gone
from tests.simulation.nativeusers import group_of

TRIALS = 6
"""Ways in which a gang is tried to be placed: if all succeed, so does the scheduler."""

GIVING_BACK = 25.0
"""Seconds after the waiting time of a gang that was not bound as a whole, until it has given its nodes back."""

UNTRIED = ("volumes", "loads", "breakers", "numa", "devices", "reservations", "claims")
"""What members would have to be given, or change, when they are placed: then the trials are left out."""


class GangReckoning:
    """Methods return texts, none if all is well."""

    def __init__(self, checks, broken, plan, natives=None):
        """`checks`: `GangInvariants`; `broken`: uids of pods that cannot be understood; `natives`: `NativeInvariants`,
        None without PodGroups of Kubernetes' own.
        """
        self._natives = natives
        self._broken = broken
        self._checks = checks
        self._server = checks._server
        self._plan = plan
        self._rng = Random(f"{plan.seed} gang reckoning")
        self._members = defaultdict(list)
        """Gang id -> its pods, but for those that are over."""
        self._over = defaultdict(list)
        for pod in self._server.objects("Pod"):
            gang_id = gang_of(pod)
            if gang_id is not None and pod["metadata"]["uid"] not in broken:
                (self._over if is_finished(pod) else self._members)[gang_id].append(pod)
        self._groups = {id_of(group): group for group in self._server.objects(KIND, API_VERSION)}

    def is_tried_alone(self, pod):
        """Whether a pending pod is placed by itself for certain."""
        if group_of(pod):
            return False
        gang_id = gang_of(pod)
        if gang_id is None:
            return True
        options = self._options(gang_id)
        return (
            options is not None
            and options.policy == ONCE_SATISFIED
            and any(_is_bound(other) for each in self._grouped(options.groups) for other in self._members[each])
        )

    def is_kept_out(self, pod, waiting):
        """Whether a pending pod cannot be tried, or that is unknown, as its gang lacks pods. `waiting`: uid -> pod."""
        gang_id = gang_of(pod)
        if group_of(pod):
            found = self._natives.groups(waiting, self._broken).get(group_of(pod))
            return found is None or len(found[1]) + len(found[2]) < found[0]
        if gang_id is None or self.is_tried_alone(pod):
            return False
        options = self._options(gang_id)
        return options is None or self._lacking(options.groups, waiting) is None

    def companions(self, pod):
        """The pods that are placed in one attempt with a pending one, itself included."""
        gang_id = gang_of(pod)
        if gang_id is None or group_of(pod) or self.is_tried_alone(pod):
            return [pod]
        options = self._options(gang_id)
        return [other for each in (options.groups if options else [gang_id]) for other in self._members[each]]

    def wrong(self, reckoning, quotas, now):
        """All that is wrong. `reckoning`: what else there is; `quotas`: `QuotaInvariants`, None without; `now`: the
        time by the clock of the replica that acts, in seconds since the epoch, None if none does.
        """
        return [*self._halves(now), *self._statuses(), *self._waiting_in_vain(reckoning, quotas)]

    # --- what defines gangs ----------------------------------------------------------------------------

    def _options(self, gang_id):
        """What defines a gang, if every scheduler that has read all objects must agree; else None."""
        defaults = self._checks.defaults
        if gang_id in self._groups:
            return defined_by(self._groups[gang_id], defaults)
        declared = {declared_by(pod, defaults) for pod in self._members[gang_id] if not by_pod_group(pod)} - {None}
        known = set(self._checks.declared.get(gang_id, ()))
        return declared.pop() if len(declared) == 1 and known == declared else None

    def _grouped(self, gang_ids):
        """Those of the gangs that say that they belong together."""
        return [
            each for each in gang_ids if (options := self._options(each)) is not None and options.groups == gang_ids
        ]

    # --- halves ----------------------------------------------------------------------------------------

    def _halves(self, now):
        """Gangs with some members on nodes, but fewer than have to be, that the scheduler alone has touched.

        Until its waiting time is over such a gang may wait for room (whether there is some is asked below, as for all
        that wait). Then a Strict gang gives its nodes back, and of another one an Event says that it is incomplete.
        """
        told = self._told()
        for gang_id, members in sorted(self._members.items()):
            options, bound = self._options(gang_id), [pod for pod in members if _is_bound(pod)]
            if options is None or not 0 < len(bound) < options.min or any(map(is_gone, bound)):
                continue
            if any(each in self._checks.disturbed for each in (gang_id, *options.groups)):
                continue
            since = max(_bound_at(pod) for pod in bound)
            if now is None or now < since + options.waiting + GIVING_BACK:
                continue
            if options.strict or not told.intersection((gang_id, *(pod["metadata"]["uid"] for pod in bound))):
                yield f"{len(bound)} members of gang {gang_id} have a node, of {options.min}, for {now - since:.0f} s"

    def _told(self):
        """Gang ids and uids of pods of which an Event says that the gang is incomplete."""
        events = self._server.objects("Event", "events.k8s.io/v1")
        concerned = [event["involvedObject"] for event in events if event.get("reason") == "GangIncomplete"]
        gangs = {f"{each['namespace']}/{each['name']}" for each in concerned if each["kind"] == KIND}
        return gangs | {each["uid"] for each in concerned if each["kind"] == "Pod"}

    # --- PodGroups -------------------------------------------------------------------------------------

    def _statuses(self):
        """PodGroups that do not say how their members are."""
        for gang_id, group in sorted(self._groups.items()):
            status = group.get("status") or {}
            if status.get("phase") in ("Finished", "Failed"):
                continue
            members = self._members[gang_id]
            over = [pod for pod in self._over[gang_id] if (pod["metadata"].get("labels") or {}).get(LABEL)]
            phases = Counter(pod["status"].get("phase") for pod in over)
            due = {
                "scheduled": sum(map(_is_bound, members + over)),
                "running": sum(pod["status"].get("phase") == "Running" for pod in members),
                "succeeded": phases["Succeeded"],
                "failed": phases["Failed"],
                "phase": _phase(group, len(members + over), sum(map(_is_bound, members + over)), members, phases),
            }
            said = {key: status.get(key, "" if key == "phase" else 0) for key in due}
            if said != due:
                yield f"PodGroup {gang_id} says {said}, it is {due}"

    # --- gangs that wait -------------------------------------------------------------------------------

    def _waiting_in_vain(self, reckoning, quotas):
        """Groups of gangs for which there is room, however their members are placed."""
        if set(UNTRIED).intersection(self._plan.features):
            return
        waiting = {pod["metadata"]["uid"]: pod for pod in reckoning.waiting()}
        groups = {options.groups for each in self._members if (options := self._options(each)) is not None}
        for gang_ids in sorted(groups):
            lacking = self._lacking(gang_ids, waiting)
            if lacking is None:
                continue
            trial = _Trial(reckoning, quotas, waiting)
            if all(trial.succeeds(lacking, self._rng) for _ in range(TRIALS)):
                yield f"gangs {', '.join(gang_ids)} wait although there is room"
        for name, (least, bound, pending) in (
            self._natives.groups(waiting, self._broken).items() if self._natives else ()
        ):
            needed = max(least - len(bound), 1)
            if needed <= len(pending):
                trial = _Trial(reckoning, quotas, waiting)
                if all(trial.succeeds([(pending, needed)], self._rng) for _ in range(TRIALS)):
                    yield f"group {name} waits although there is room"

    def _lacking(self, gang_ids, waiting):
        """(pods that wait, how many of them are needed) by gang; None if the gangs are not to be placed together."""
        if self._grouped(gang_ids) != list(gang_ids):
            return None
        lacking, is_any_bound = [], False
        for gang_id in gang_ids:
            members, options = self._members[gang_id], self._options(gang_id)
            pending = [pod for pod in members if pod["metadata"]["uid"] in waiting]
            bound = sum(map(_is_bound, members))
            is_any_bound = is_any_bound or (bound and options.policy == ONCE_SATISFIED)
            needed = options.min - (bound if options.policy == WAITING_AND_RUNNING else 0)
            stuck = sum(not _is_bound(pod) and _is_stuck(pod) for pod in members)
            if len(members) < options.min or (stuck and len(members) - stuck < options.min) or len(pending) < needed:
                return None
            lacking.append((pending, needed))
        return lacking if not is_any_bound and any(pending for pending, _ in lacking) else None


class _Trial:
    """Places the members of a group one after the other, on any node that is right, until there are enough."""

    def __init__(self, reckoning, quotas, waiting):
        self._world = reckoning.world()
        self._profile = reckoning.profile()
        self._quotas = quotas
        self._claims = reckoning.claims is not None
        self._nominated = [
            (pod, node) for pod in waiting.values() if (node := (pod.get("status") or {}).get("nominatedNodeName"))
        ]

    def succeeds(self, lacking, rng):
        order = [(pod, number) for number, (pending, _) in enumerate(lacking) for pod in pending]
        rng.shuffle(order)
        left, world, placed = [needed for _, needed in lacking], self._world, set()
        for pod, number in order:
            if self._quotas is not None and self._quotas.now(placed).refusal(pod) is not None:
                return False
            nominated = [(other, node) for other, node in self._nominated if other["metadata"]["uid"] not in placed]
            feasible = evaluate(pod, world, self._profile, nominated).feasible
            if not feasible:
                return False
            node = rng.choice(feasible)
            world = world.with_pods([(pod, node)])
            if self._claims:
                [place] = [each for each in world.nodes if each["metadata"]["name"] == node]
                world = with_allocations(world, pod, place)
            placed.add(pod["metadata"]["uid"])
            left[number] -= 1
            if max(left) <= 0:
                return True
        return False


def stuck(scheduler):
    """Groups that could be tried, and no pod of which is in the queue for it; members that are said to have a place."""
    cache = _cache(scheduler)
    if cache is None:
        return
    if cache.round is not None:
        yield "the attempt to place a group of gangs has not ended"
    for gang in cache.gangs.values():
        if gang.waiting:
            yield f"members of gang {gang.id} have a place: {sorted(pod.key for pod in gang.waiting.values())}"
    yield from forgotten(scheduler)


def forgotten(scheduler):
    """Groups and pods that go on alone that could be tried, but are not in the queue, at any time between attempts."""
    cache = _cache(scheduler)
    if cache is None or cache.round is not None or scheduler.cluster.in_transaction:
        return
    queued = {item.pod.uid: item for item in scheduler.queue}
    tried = {pod.uid for pod in scheduler.queue.in_flight_pods()}

    def is_replaced(pod):
        """Whether another pod of its name has come, whose list does not end yet: this one is gone when it does.

        The other one may have a node by then.
        """
        present = scheduler.queue.get(pod.key)
        if present is not None:
            return present.pod.uid != pod.uid
        others = (*scheduler.queue.in_flight_pods(), *scheduler.cluster.assigned.values())
        return any(other.key == pod.key and other.uid != pod.uid for other in others)

    for group in cache.groups():
        if cache.why_not(group):
            continue
        alone = [pod for gang in group.gangs.values() if group.admits_singly(gang) for pod in gang.pending.values()]
        lost = [pod for pod in alone if _is_gated(queued.get(pod.uid)) and not is_replaced(pod)]
        gated = [pod.key for pod in lost if cache.placeable(pod)]
        if gated and not tried.intersection(pod.uid for pod in alone):
            yield f"pods of group {group.id} are kept from the queue: {sorted(gated)}"
        together = {
            pod.uid
            for gang in group.gangs.values()
            if not group.admits_singly(gang)
            for pod in gang.pending.values()
            if cache.placeable(pod) and not _is_kept_by_others(queued.get(pod.uid)) and not is_replaced(pod)
        }
        # They wait for what becomes of those that are being bound: they go on alone then, or all are tried again.
        others_lead = any(gang.goes_on_alone and gang.waiting for gang in group.gangs.values())
        enough = all(
            group.admits_singly(gang) or len(together & gang.pending.keys()) + len(gang.bound) >= gang.options.min
            for gang in group.gangs.values()
        )
        # When the one that stands for them is replaced, they are tried as soon as it is gone.
        stand_in = next((pod for gang in group.gangs.values() if (pod := gang.pending.get(group.representative))), None)
        if stand_in is not None and is_replaced(stand_in):
            continue
        # As upstream, a gang that does not name the group back wakes none of it (record gang-group-one-sided).
        one_sided = any(gang_id not in group.gangs for gang_id in group.gang_ids)
        waits = together and enough and not one_sided and not others_lead and not tried & together
        if waits and all(_is_gated(queued.get(uid)) for uid in together):
            yield f"group {group.id} waits, and no pod is in the queue for it"


def stale_notices(scheduler):
    """Members that are said to be kept out, although another one represents them in the queue."""
    cache = _cache(scheduler)
    plugin = scheduler.profiles[PROFILE].plugins.get("Coscheduling")
    told = scheduler._notices._waits
    for item in scheduler.queue if cache is not None else ():
        gated = item.gating_plugin == plugin.name and item.pod.uid in told
        if gated and plugin.pre_enqueue(item.pod).code is Code.WAIT:
            yield f"{item.key} reads that it is kept out, but it is not: {told[item.pod.uid].message}"


def believed(scheduler):
    """Gang id -> its pods, and what its PodGroup says; {} without gangs."""
    cache = _cache(scheduler)
    return {
        gang.id: {
            "children": sorted(gang.children),
            "bound": sorted(gang.bound),
            "pending": sorted(gang.pending),
            "options": gang.options if gang.from_crd else None,
            "groups": gang.group.gang_ids if gang.from_crd else None,
        }
        for gang in (cache.gangs.values() if cache is not None else ())
    }


def _cache(scheduler):
    plugin = scheduler.profiles[PROFILE].plugins.get("Coscheduling")
    return plugin.cache if plugin is not None else None


def _is_gated(item):
    """Whether the pod's gang keeps it from the queue, or it is lost."""
    return item is None or item.gating_plugin == "Coscheduling"


def _is_kept_by_others(item):
    """Whether another plugin keeps the pod from the queue: as long as a claim of its is missing, for example."""
    return item is not None and item.gating_plugin not in ("", "Coscheduling")


def _is_bound(pod):
    return bool(pod["spec"].get("nodeName"))


def _bound_at(pod):
    """When the pod was bound by the server's clock, in seconds since the epoch; or later, when the
    answer to the binding was lost and a status says that it failed."""
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == "PodScheduled":
            return datetime.fromisoformat(condition["lastTransitionTime"]).timestamp()
    return 0.0


def _is_stuck(pod):
    return is_gone(pod) or bool(pod["spec"].get("schedulingGates"))


def _phase(group, pods, scheduled, members, over):
    """The phase that follows from the members (coscheduling spec 3.12)."""
    minimum, before = group["spec"].get("minMember", 0), (group.get("status") or {}).get("phase")
    if not pods or (before == "Pending" and not pods >= minimum > 0):
        return "Pending"
    running = sum(pod["status"].get("phase") == "Running" for pod in members)
    if over["Succeeded"] >= minimum:
        return "Finished"
    if over["Failed"] and over["Failed"] + over["Succeeded"] + running >= minimum:
        return "Failed"
    if scheduled < minimum:
        return "Scheduling"
    return "Running" if over["Succeeded"] + running >= minimum else "Scheduled"
