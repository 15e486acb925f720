"""Gangs: what must hold whenever members are placed, bound or evicted, by the server's objects alone.

Who decides may be behind the server, and of what defines a gang there may be several versions: what is demanded holds
for one of them at least.
"""

from typing import NamedTuple

from tests.reference.world import is_deleting
from tests.simulation.gangoptions import (
    ONCE_SATISFIED,
    WAITING_AND_RUNNING,
    by_pod_group,
    declared_by,
    defined_by,
    gang_of,
    id_of,
)
from tests.simulation.gangusers import API_VERSION, KIND
from tests.simulation.history import History
from tests.simulation.invariants import PODS, is_finished

POD_GROUPS = "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups"
_BOUND_WITH = ("bind-gang-group-id", "bind-gang-member-count")
GROUP_ID, MEMBER_COUNT = (f"internal.scheduling.koordinator.sh/{key}" for key in _BOUND_WITH)
WRITTEN = (GROUP_ID, MEMBER_COUNT, *(f"scheduling.koordinator.sh/{key}" for key in _BOUND_WITH))


class _Job(NamedTuple):
    """Pods that were placed together. `first`: no others of their gangs were on their way by then."""

    uids: frozenset
    first: bool


class GangInvariants:
    """`defaults`: the options of gangs that name none."""

    def __init__(self, invariants, server, defaults):
        self._invariants = invariants
        self._server = server
        self.defaults = defaults
        self.groups = History()
        """PodGroups."""
        self.declared = {}
        """Gang id -> options that pods have ever declared."""
        self.ever_bound = set()
        """Ids of gangs of which a pod was bound at some time."""
        self.disturbed = {}
        """Gang id -> why it need not be whole any more, whatever the scheduler did."""
        self._begun = set()
        """Ids of gangs of which a pod was placed, or bound: what happens to them from then on may tear them apart."""
        self._last_change = {}
        """(path, gang id) -> version of the last change of such an object that would."""
        self._gang_of = {}
        self._jobs = {}
        self._evicted = set()
        """The uids of pods that replicas evict."""
        registry = server.registry
        registry.subscribe_changes(server.resource(KIND, API_VERSION), self._group_changed)
        registry.subscribe_changes(server.resource("Pod"), self._pod_changed)

    # --- what is known of gangs ----------------------------------------------------------------------

    def options(self, gang_id, version=None):
        """What may define a gang: for who had handled `version` of PodGroups, or now; empty if nothing does."""
        key = tuple(gang_id.split("/", 1))
        if version is None:
            states = [state for state in self.groups.newest() if id_of(state) == gang_id] or [None]
        else:
            states = self.groups.states_since(key, version)
        found = [defined_by(state, self.defaults) for state in states if state is not None]
        return found + (list(self.declared.get(gang_id, ())) if None in states else [])

    def gang_of(self, uid):
        """The gang that a pod is in, or was in."""
        return self._gang_of.get(uid)

    def companions_on_their_way(self, writer, uid):
        """How many of the pods that a replica has placed together with this one are not bound yet."""
        job = self._jobs.get((writer, uid))
        return len(job.uids.difference(self._invariants.bound)) if job is not None else 0

    # --- decisions -------------------------------------------------------------------------------------

    def placed(self, uid, decision, assumed):
        """Nothing: what counts is what is placed together."""

    def placed_together(self, uids, decision, on_their_way):
        """A replica placed these pods in one attempt. `on_their_way`: uids of those that it was binding."""
        here, before = set(uids), set(on_their_way) - set(uids)
        gangs = {uid: self._gang_of.get(uid) for uid in here}
        for uid in uids:
            companions = self._companions(gangs[uid]) if gangs[uid] is not None else ()
            others = [other for other in before if self._gang_of.get(other) in companions]
            self._jobs[decision.writer, uid] = _Job(frozenset(here), not others)
            for other in others:
                self._join(decision.writer, other)
        if not decision.acts:
            return
        if PODS in decision.listing or POD_GROUPS in decision.listing:
            for gang_id in {gang for gang in gangs.values() if gang is not None}:
                self._begin(gang_id, {})
            return
        for gang_id in sorted({gang for gang in gangs.values() if gang is not None}):
            self._begin(gang_id, decision.versions)
            self._check_whole(gang_id, here | before, decision)

    def _join(self, writer, uid):
        """One that goes on alone, of a group that lacks members, is counted with those that complete it."""
        job = self._jobs.get((writer, uid))
        if job is not None and len(job.uids) == 1:
            self._jobs[writer, uid] = job._replace(first=False)

    def _begin(self, gang_id, versions):
        """Pods of the gang are on their way. `versions`: path -> what had been handled by then."""
        self._begun.add(gang_id)
        if any(versions.get(path, 0) < self._last_change.get((path, gang_id), 0) for path in (PODS, POD_GROUPS)):
            self.disturbed.setdefault(gang_id, "it has changed unnoticed")

    def _disturb(self, gang_id, path, version, why):
        """The gang is not what it was."""
        self._last_change[path, gang_id] = version
        if gang_id in self._begun:
            self.disturbed.setdefault(gang_id, why)

    def _companions(self, gang_id):
        """All gangs that may ever have been placed with this one."""
        return {gang_id, *(other for options in self.options(gang_id, 0) for other in options.groups)}

    def _check_whole(self, gang_id, on_their_way, decision):
        """By one of the definitions that the replica may know, the members may go."""
        version = decision.versions.get(POD_GROUPS, 0)
        shortages = []
        for options in self.options(gang_id, version):
            if options.policy == ONCE_SATISFIED and self.ever_bound.intersection((gang_id, *options.groups)):
                return
            shortage = [
                text
                for other in options.groups
                if (text := self._shortage(other, decision, on_their_way, options.groups)) is not None
            ]
            if not shortage:
                return
            shortages.append(", ".join(shortage))
        why = " or ".join(dict.fromkeys(shortages)) or "nothing defines it"
        self._invariants.fail(f"{decision.writer} places pods of gang {gang_id}, but {why}")

    def _shortage(self, gang_id, decision, on_their_way, groups):
        """Why there are not enough members; None if there are, by one of the definitions."""
        texts, version = [], decision.versions.get(POD_GROUPS, 0)
        known = {pod["metadata"]["uid"]: pod for pod in self._known_members(gang_id, decision.versions[PODS])}
        there = {uid for uid in on_their_way if uid in known or self._gang_of.get(uid) == gang_id}
        bound = {uid for uid in self._invariants.bound if self._gang_of.get(uid) == gang_id}
        for options in self.options(gang_id, version):
            if options.policy == ONCE_SATISFIED and self.ever_bound.intersection(groups):
                return None
            count = len(there)
            if options.policy == WAITING_AND_RUNNING:
                count = len(there | bound | {uid for uid, pod in known.items() if pod["spec"].get("nodeName")})
            if count >= options.min:
                return None
            texts.append(f"{gang_id} has {count} of {options.min}")
        return texts[0] if texts else f"nothing defines {gang_id}"

    def _known_members(self, gang_id, version):
        """The members, but those that have finished, for who had handled this version of pods."""
        return [pod for pod in self._invariants.pods.at(version) if gang_of(pod) == gang_id and not is_finished(pod)]

    def leaving(self, uids):
        """A replica evicts these pods, for a job or for a pod alone."""
        self._evicted.update(uids)

    def evicting(self, victims, on_their_way, decision):
        """A replica makes room for a job by the pods of these uids, which are leaving; others are being bound."""
        going = self._evicted
        if not decision.acts or PODS in decision.listing or POD_GROUPS in decision.listing:
            return
        pods = self._invariants.pods.at(decision.versions[PODS])
        for gang_id in sorted({self._gang_of[uid] for uid in victims if self._gang_of.get(uid) is not None}):
            known = [pod for pod in pods if gang_of(pod) == gang_id and not is_finished(pod)]
            staying = [pod for pod in known if pod["metadata"]["uid"] not in going and not is_deleting(pod)]
            rest = [pod for pod in staying if pod["spec"].get("nodeName")]
            placed = sum(pod in rest or pod["metadata"]["uid"] in on_their_way for pod in staying)
            options = self.options(gang_id, decision.versions.get(POD_GROUPS, 0))
            if rest and options and placed < min(each.min for each in options):
                names = sorted(pod["metadata"]["name"] for pod in rest)
                self._invariants.fail(f"{decision.writer} evicts a part of gang {gang_id}: {', '.join(names)} stay")

    def bound(self, pod, decision):
        """A pod was bound; it says with how many others."""
        uid = pod["metadata"]["uid"]
        job = self._jobs.get((decision.writer, uid))
        if job is None or self._gang_of.get(uid) is None or not job.first:
            return
        annotations = pod["metadata"].get("annotations") or {}
        said = [annotations[key] for key in WRITTEN if key in annotations]
        count, due = annotations.get(MEMBER_COUNT), str(len(job.uids)) if len(job.uids) > 1 else None
        if count != due or len(said) != (4 if due else 0):
            self._invariants.fail(f"pod {pod['metadata']['name']} says it was bound with {said}, it was with {due}")
        elif (
            due
            and self._gang_of[uid] not in (ids := annotations[GROUP_ID].split(","))
            and not any(tuple(ids) == each.groups for each in self.options(self._gang_of[uid], 0))
        ):
            self._invariants.fail(f"pod {pod['metadata']['name']} says it is of group {ids}")

    # --- changes -------------------------------------------------------------------------------------

    def _group_changed(self, change):
        new, old = change.new, change.old
        self.groups.note(change)
        inputs = (new["spec"], (new["metadata"].get("annotations") or {}), new.get("status"))
        self._invariants.tell(change, f" {inputs}")
        self._invariants.one_acts(f"a write to PodGroup {change.record.name}")
        if change.type != "MODIFIED" or _inputs(new) != _inputs(old):
            for gang_id in (id_of(new), *self._companions(id_of(new))):
                self._disturb(gang_id, POD_GROUPS, change.record.rv, "what defines it has changed")

    def _pod_changed(self, change):
        new, uid, version = change.new, change.record.uid, change.record.rv
        gang_id, node = gang_of(new), new["spec"].get("nodeName")
        before = self._gang_of.get(uid)
        if before is not None and before != gang_id:
            self._disturb(before, PODS, version, "a pod left it")
        if gang_id is not None and change.old is not None and gang_of(change.old) != gang_id:
            self._disturb(gang_id, PODS, version, "a pod came to it")
        if change.type == "DELETED":
            if before is not None:
                self._disturb(before, PODS, version, "a pod was deleted")
            return
        if gang_id is None:
            self._gang_of.pop(uid, None)
            return
        self._gang_of[uid] = gang_id
        if not by_pod_group(new):
            self._declare(gang_id, new)
        if is_finished(new):
            self._disturb(gang_id, PODS, version, "a pod has finished")
        was_bound = change.old is not None and change.old["spec"].get("nodeName")
        if node and not was_bound:
            self.ever_bound.add(gang_id)
            self._begun.add(gang_id)
            if not self._server.writer:
                self._disturb(gang_id, PODS, version, "another client bound a pod")

    def _declare(self, gang_id, pod):
        options = declared_by(pod, self.defaults)
        if options is not None:
            self.declared.setdefault(gang_id, {})[options] = None


def _inputs(group):
    return group["spec"], group["metadata"].get("annotations")
