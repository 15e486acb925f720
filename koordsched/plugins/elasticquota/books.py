"""The quota trees of a cluster, kept in step with its quotas, nodes and pods.

The numbers are a function of what the API server holds: objects that are not being deleted, nodes, pods, plus the
pods we assumed. They do not depend on the order of watch events, so a restart does not change them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.plugins.elasticquota.arithmetic import accounting
from koordsched.plugins.elasticquota.arithmetic.quota import Quota
from koordsched.plugins.elasticquota.arithmetic.tally import Tally
from koordsched.plugins.elasticquota.arithmetic.timing import DELETE_QUOTA, UPDATE_QUOTA, Timed, untimed
from koordsched.plugins.elasticquota.arithmetic.tree import QuotaTree
from koordsched.plugins.elasticquota.arithmetic.trees import QuotaTrees
from koordsched.plugins.elasticquota.definitions import Reading, read
from koordsched.plugins.elasticquota.kinds import ELASTIC_QUOTAS, ElasticQuota
from koordsched.plugins.elasticquota.mapping import BY_NAME, Claim, QuotaNames, claim_of
from koordsched.plugins.elasticquota.members import (
    Group,
    GroupKey,
    Member,
    Requested,
    group_key,
    is_preemptible,
    requested,
)
from koordsched.plugins.elasticquota.nodes import NodeTotals
from koordsched.plugins.elasticquota.room import ROOM, Room
from koordsched.plugins.elasticquota.settings import Settings


class _Party:
    """The pods with the same claim, and the quota that is theirs."""

    __slots__ = ("groups", "quota")

    def __init__(self, quota: Quota | None) -> None:
        self.quota = quota
        self.groups: dict[GroupKey, Group] = {}


class QuotaBooks:
    """See the package. A `PodObserver`."""

    def __init__(self, cluster: ClusterState, settings: Settings, wall: Callable[[], float]) -> None:
        self.settings = settings
        self.version = 0
        """Grows with every change of a number."""
        self.before_reading: Callable[[], None] = self.bring_up_to_date
        """To be called before numbers are read by what is no step of the scheduler (`framework.pluginstates`)."""
        self._cluster = cluster
        self._wall = wall
        self.trees = QuotaTrees(
            default_max=dict(settings.default_max),
            system_max=dict(settings.system_max),
            scales_mins=settings.scales_mins,
            guarantees=settings.guarantees,
        )
        self._timed: Timed = untimed
        self._names = QuotaNames(default=settings.default_quota)
        self._objects: dict[str, list[ElasticQuota]] = {}
        self._readings: dict[str, Reading] = {}
        self._members: dict[str, Member] = {}
        """By uid. Which of the pods that should be gone are there depends on when they were last seen."""
        self._groups: dict[GroupKey, Group] = {}
        self._parties: dict[Claim, _Party] = {}
        self._claims: dict[Quota, dict[Claim, None]] = {}
        cluster.objects.of(ELASTIC_QUOTAS).subscribe(self._object_changed)
        self._totals = NodeTotals(cluster.table, self.trees, lambda: self._changed([]))
        cluster.add_observer(self)

    @staticmethod
    def shared(cluster: ClusterState, settings: Settings, wall: Callable[[], float]) -> QuotaBooks:
        """The books of a cluster, created once, with the settings of the first profile.

        Profiles place pods on the same nodes and in the same quotas: two answers to what a quota may use would both
        be wrong. Where the settings of profiles differ, `config.warnings` says so.
        """
        return cluster.shared(lambda cluster: QuotaBooks(cluster, settings, wall), QuotaBooks)

    def bring_up_to_date(self) -> None:
        """Counts what was tallied, and works out what each quota may use, so that reading changes nothing."""
        for tree in self.trees.trees.values():
            tree.settle()
        for quota in self.trees.quotas.values():
            if quota.takes_part and not quota.tree.is_calm_for(quota):
                quota.tree.shares_of(quota)

    def time_steps(self, timed: Timed) -> None:
        """From now on the steps of keeping the books are measured."""
        self._timed = timed
        self.trees.time_steps(timed)

    # --- reading ----------------------------------------------------------------------------------------

    def quota(self, name: str) -> Quota | None:
        """The quota of that name; the root of the default tree is one."""
        found = self.trees.quotas.get(name)
        if found is None and name == self.trees.default_tree.root.name:
            return self.trees.default_tree.root
        return found

    def quotas(self) -> list[Quota]:
        """All quotas, by name; the root of the default tree included."""
        found = [*self.trees.quotas.values(), self.trees.default_tree.root]
        return sorted(found, key=lambda quota: quota.name)

    def objects(self, name: str) -> list[ElasticQuota]:
        """The objects of that name, the one in force first."""
        return list(self._objects.get(name, ()))

    def members(self, quota: Quota) -> Iterator[Member]:
        """The pods directly in a quota, in no particular order."""
        for group in self.groups(quota):
            yield from group.members.values()

    def groups(self, quota: Quota) -> list[Group]:
        """The same in groups that count alike."""
        return [group for claim in self._claims.get(quota, ()) for group in self._parties[claim].groups.values()]

    def member(self, uid: str) -> Member | None:
        """The pod of that uid, as it is counted."""
        return self._members.get(uid)

    def quota_of(self, pod: Pod) -> Quota | None:
        """The quota a pod belongs to; also of pods that are in no books."""
        member = self._members.get(pod.uid)
        return member.quota if member is not None else self._quota_for(claim_of(pod))

    def requested(self, pod: Pod) -> Requested:
        """What the pod requests."""
        return requested(pod, overhead=self.settings.pod_overhead)

    def validation_errors(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """What is wrong with each ElasticQuota object, by namespace and name."""
        found: dict[tuple[str, str], tuple[str, ...]] = {}
        for name, objects in self._objects.items():
            first = objects[0].metadata
            problems = (*self._readings[name].problems, *self.trees.problems(name))
            if problems:
                found[first.namespace, name] = problems
            for other in objects[1:]:
                text = f"a quota of this name is in namespace {first.namespace} already; that one counts"
                found[other.metadata.namespace, name] = (text,)
        return found

    def unknown_names(self) -> dict[str, int]:
        """Names in labels of pods that are no quota's -> how many pods."""
        return {
            name: sum(len(group.members) for group in party.groups.values())
            for (kind, name), party in self._parties.items()
            if kind == BY_NAME and not self._names.knows(name)
        }

    # --- quotas -----------------------------------------------------------------------------------------

    def _object_changed(self, old: ElasticQuota | None, new: ElasticQuota | None) -> None:
        either = new if new is not None else old
        assert either is not None, "one of the two is there"
        name, namespace = either.metadata.name, either.metadata.namespace
        objects = [thing for thing in self._objects.get(name, ()) if thing.metadata.namespace != namespace]
        if new is not None and new.metadata.deletion_timestamp is None:
            objects.append(new)
        if not objects:
            if self._objects.pop(name, None) is not None:
                with self._timed(DELETE_QUOTA):
                    self._withdraw(name)
            return
        # The oldest one counts, so that a later one takes nothing from the quota of another owner.
        objects.sort(key=lambda thing: (thing.metadata.creation_timestamp or "", thing.metadata.namespace))
        self._objects[name] = objects
        with self._timed(UPDATE_QUOTA):
            self._enact(objects[0])

    def _enact(self, obj: ElasticQuota) -> None:
        """An object is in force from now on, perhaps as another one than before."""
        name = obj.metadata.name
        reading = read(obj, multiple_trees=self.settings.multiple_trees)
        self._readings[name] = reading
        quota = self.trees.quotas.get(name)
        recount: list[Group] = []
        if quota is not None and quota.max_names != frozenset(reading.definition.max):
            recount = self.groups(quota)
        for group in recount:
            self._uncount(group)
        changed = self.trees.define(reading.definition)
        for group in recount:
            self._count(group, quota)
        redirected = self._names.define(name, obj.metadata.namespace, reading.namespaces)
        moved = self._redirect(redirected)
        if changed or moved:
            self._changed(moved)

    def _withdraw(self, name: str) -> None:
        """There is no quota of this name any more; its pods move to the quota they belong to without it."""
        del self._readings[name]
        moved = self._redirect(self._names.remove(name))
        remaining = self.trees.quotas.get(name)
        recount = self.groups(remaining) if remaining is not None else []
        for group in recount:
            self._uncount(group)
        self.trees.undefine(name)
        for group in recount:
            self._count(group, remaining)
        self._changed(moved)

    def _redirect(self, claims: Iterable[Claim]) -> list[Quota]:
        """Moves pods whose claim leads to another quota now; returns the quotas they left and entered."""
        touched: list[Quota] = []
        for claim in sorted(claims):
            party = self._parties.get(claim)
            quota = self._quota_for_claim(claim)
            if party is None or party.quota is quota:
                continue
            for group in party.groups.values():
                self._uncount(group)
            self._unlink(party, claim)
            touched.extend(one for one in (party.quota, quota) if one is not None)
            party.quota = quota
            self._link(party, claim)
            for group in party.groups.values():
                self._count(group, quota)
        return touched

    def _count(self, group: Group, quota: Quota | None) -> None:
        """The pods of a group, which counts nowhere, count in this quota from now on."""
        if quota is None:
            return
        asked = group.requested
        if not asked.is_whole:
            quota.tree.irregular = True
        tally = group.tally = Tally(quota, asked.counted_in(quota), non_preemptible=group.non_preemptible)
        if group.members:
            quota.tree.unvetted = True
            accounting.ask(tally, len(group.members))
            accounting.place(tally, sum(member.assigned for member in group.members.values()))

    def _uncount(self, group: Group) -> None:
        """The pods of a group count nowhere, until they are counted anew."""
        tally, group.tally = group.tally, None
        if tally is not None:
            accounting.place(tally, -tally.placed)
            accounting.ask(tally, -tally.asked)

    def _quota_for(self, claim: Claim) -> Quota | None:
        party = self._parties.get(claim)
        return party.quota if party is not None else self._quota_for_claim(claim)

    def _quota_for_claim(self, claim: Claim) -> Quota | None:
        name = self._names.resolve(claim)
        return self.trees.quotas[name] if name is not None else None

    # --- pods -------------------------------------------------------------------------------------------

    def pod_seen(self, pod: Pod, assigned: bool) -> None:
        """See `PodObserver`."""
        member = self._members.get(pod.uid)
        if pod.deleting and self._is_ignored(pod):
            if member is not None:
                self.pod_gone(pod.uid)
            return
        if member is None:
            quota = self._join(pod, assigned)
            if quota is not None:
                tree = quota.tree
                if assigned:
                    tree.settle()  # what it uses may give others room, who wait for it
                if tree.shifted or tree.overdrawn:
                    self._changed([quota])
            return
        before = member.pod
        member.pod = pod
        if before.labels is pod.labels and before.shape is pod.shape:
            if assigned != member.assigned:
                self._set_assigned(member, assigned)
            return
        held_on = member.assigned and member.non_preemptible
        quotas = self._leave(member), self._join(pod, assigned)
        self._changed(quotas, yielding=pod if held_on and assigned and is_preemptible(pod) else None)

    def pod_assigned(self, pod: Pod, assigned: bool) -> None:
        """See `PodObserver`."""
        member = self._members.get(pod.uid)
        if member is not None and member.assigned != assigned:
            self._set_assigned(member, assigned)

    def pod_gone(self, uid: str) -> None:
        """See `PodObserver`."""
        member = self._members.get(uid)
        if member is not None:
            self._changed([self._leave(member)])

    def _is_ignored(self, pod: Pod) -> bool:
        if self.settings.ignores_terminating:
            return True
        deadline = pod.deletion_deadline
        return self.settings.ignores_overdue and deadline is not None and self._wall() > deadline

    def _join(self, pod: Pod, assigned: bool) -> Quota | None:
        key = group_key(pod)
        group = self._groups.get(key)
        if group is None:
            group = self._open(key, pod)
        group.members[pod.uid] = self._members[pod.uid] = Member(pod, group, assigned=assigned)
        self.version += 1
        tally = group.tally
        if tally is None:
            return None
        accounting.ask(tally, 1)
        if assigned:
            tally.quota.tree.unvetted = True
            accounting.place(tally, 1)
        return tally.quota

    def _leave(self, member: Member) -> Quota | None:
        group, uid = member.group, member.pod.uid
        tally = group.tally
        if tally is not None:
            if member.assigned:
                accounting.place(tally, -1)
            accounting.ask(tally, -1)
        del self._members[uid], group.members[uid]
        if not group.members:
            self._close(group)
        return tally.quota if tally is not None else None

    def _open(self, key: GroupKey, pod: Pod) -> Group:
        claim = claim_of(pod)
        party = self._parties.get(claim)
        if party is None:
            party = self._parties[claim] = _Party(self._quota_for_claim(claim))
            self._link(party, claim)
        group = Group(key, claim, self.requested(pod), non_preemptible=not is_preemptible(pod))
        self._groups[key] = party.groups[key] = group
        self._count(group, party.quota)
        return group

    def _close(self, group: Group) -> None:
        del self._groups[group.key]
        party = self._parties[group.claim]
        del party.groups[group.key]
        if not party.groups:
            self._unlink(party, group.claim)
            del self._parties[group.claim]

    def _link(self, party: _Party, claim: Claim) -> None:
        if party.quota is not None:
            self._claims.setdefault(party.quota, {})[claim] = None

    def _unlink(self, party: _Party, claim: Claim) -> None:
        if party.quota is not None:
            claims = self._claims[party.quota]
            del claims[claim]
            if not claims:
                del self._claims[party.quota]

    def _set_assigned(self, member: Member, assigned: bool) -> None:
        member.assigned = assigned
        self.version += 1
        tally = member.group.tally
        if tally is None:
            return
        accounting.place(tally, 1 if assigned else -1)
        if not assigned:
            self._changed([tally.quota])
        elif tally.quota.tree.shifted:
            self._changed([])

    # --- news -------------------------------------------------------------------------------------------

    def _changed(self, less_used: Iterable[Quota | None], yielding: Pod | None = None) -> None:
        """Something changed after which more pods may fit, if there is room now that was not there before."""
        self.version += 1
        quotas: set[str] = set()
        for quota in less_used:
            if quota is not None:
                quotas.add(quota.name)
                quotas.update(ancestor.name for ancestor in quota.ancestors())
        trees = self._shifted()
        if quotas or trees:
            # A tree may have shifted before the transaction in which that is noticed.
            self._cluster.announce(ROOM, None, Room(frozenset(quotas), trees, yielding), earlier=bool(trees))

    def _shifted(self) -> frozenset[str]:
        shifted: list[QuotaTree] = []
        for tree in self.trees.trees.values():
            if tree.is_watched:
                tree.settle()
            if tree.shifted:
                tree.shifted = False
                shifted.append(tree)
        return frozenset(tree.id for tree in shifted)

    # --- what journals record ---------------------------------------------------------------------------

    state_type: type[frozenset[str]] = frozenset[str]

    def recorded_state(self) -> frozenset[str]:
        """The uids of pods that should be gone by now and count, because that was not so when they were last seen."""
        if not self.settings.ignores_overdue:
            return frozenset()
        return frozenset(
            uid for uid, member in self._members.items() if member.pod.deleting and self._is_ignored(member.pod)
        )

    def restore_state(self, state: frozenset[str]) -> None:
        """See `framework.pluginstates.Keeper`."""
        for uid in state:
            pod = self._cluster.assigned.get(uid)
            if pod is not None and uid not in self._members:
                self._join(pod, True)
