"""The quota trees of a cluster, kept in step with its quotas, nodes and pods.

The numbers are a function of what the API server holds: objects that are not being deleted, nodes, pods, plus the
pods we assumed. In which order all that was heard does not matter, so a restart changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from koordsched.api import core
from koordsched.api.quota import ElasticQuota
from koordsched.cluster.objects import ELASTIC_QUOTAS
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.plugins.elasticquota import accounting
from koordsched.plugins.elasticquota.amounts import Amounts, parse
from koordsched.plugins.elasticquota.definitions import Reading, read
from koordsched.plugins.elasticquota.mapping import BY_NAME, Claim, QuotaNames, claim_of
from koordsched.plugins.elasticquota.members import Member, Requested, requested
from koordsched.plugins.elasticquota.quota import Quota
from koordsched.plugins.elasticquota.room import ROOM, Room
from koordsched.plugins.elasticquota.settings import Settings
from koordsched.plugins.elasticquota.tree import QuotaTree
from koordsched.plugins.elasticquota.trees import QuotaTrees


@dataclass(frozen=True, slots=True)
class _Opening:
    """Opens the books of a cluster; equal settings, equal books."""

    settings: Settings
    wall: Callable[[], float] = field(compare=False)

    def __call__(self, cluster: ClusterState) -> QuotaBooks:
        return QuotaBooks(cluster, self.settings, self.wall)


class _Party:
    """The pods with the same claim, and the quota that is theirs."""

    __slots__ = ("members", "quota")

    def __init__(self, quota: Quota | None) -> None:
        self.quota = quota
        self.members: dict[str, Member] = {}


class QuotaBooks:
    """See the package. A `PodObserver`."""

    def __init__(self, cluster: ClusterState, settings: Settings, wall: Callable[[], float]) -> None:
        self.settings = settings
        self.version = 0
        self._cluster = cluster
        self._wall = wall
        self.trees = QuotaTrees(
            default_max=dict(settings.default_max),
            system_max=dict(settings.system_max),
            scales_mins=settings.scales_mins,
            guarantees=settings.guarantees,
        )
        self._names = QuotaNames(default=settings.default_quota)
        self._objects: dict[str, list[ElasticQuota]] = {}
        self._readings: dict[str, Reading] = {}
        self._members: dict[str, Member] = {}
        self._parties: dict[Claim, _Party] = {}
        self._claims: dict[Quota, dict[Claim, None]] = {}
        self._nodes: dict[int, tuple[core.Quantities, Amounts]] = {}
        cluster.objects.of(ELASTIC_QUOTAS).subscribe(self._object_changed)
        cluster.table.on_node(self._node_changed)
        cluster.table.on_removal(self._node_removed)
        cluster.add_observer(self)

    @staticmethod
    def shared(cluster: ClusterState, settings: Settings, wall: Callable[[], float]) -> QuotaBooks:
        """The books of a cluster with these settings, opened once."""
        return cluster.shared(_Opening(settings, wall))

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
        for claim in self._claims.get(quota, ()):
            yield from self._parties[claim].members.values()

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

    def complaints(self) -> dict[tuple[str, str], tuple[str, ...]]:
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
            name: len(party.members)
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
                self._withdraw(name)
            return
        # The oldest one counts, so that whoever comes later takes nothing away from anybody.
        objects.sort(key=lambda thing: (thing.metadata.creation_timestamp or "", thing.metadata.namespace))
        self._objects[name] = objects
        self._enact(objects[0])

    def _enact(self, obj: ElasticQuota) -> None:
        """An object is in force from now on, perhaps as another one than before."""
        name = obj.metadata.name
        reading = read(obj, multiple_trees=self.settings.multiple_trees)
        self._readings[name] = reading
        quota = self.trees.quotas.get(name)
        recount: list[Member] = []
        if quota is not None and quota.max_names != frozenset(reading.definition.max):
            recount = list(self.members(quota))
        for member in recount:
            self._uncount(member)
        changed = self.trees.define(reading.definition)
        for member in recount:
            self._count(member)
        redirected = self._names.define(name, obj.metadata.namespace, reading.namespaces)
        moved = self._redirect(redirected)
        if changed or moved:
            self._changed(moved)

    def _withdraw(self, name: str) -> None:
        """There is no quota of this name any more; its pods go where they belong without it."""
        del self._readings[name]
        moved = self._redirect(self._names.remove(name))
        remaining = self.trees.quotas.get(name)
        recount = list(self.members(remaining)) if remaining is not None else []
        for member in recount:
            self._uncount(member)
        self.trees.undefine(name)
        for member in recount:
            self._count(member)
        self._changed(moved)

    def _redirect(self, claims: Iterable[Claim]) -> list[Quota]:
        """Moves pods whose claim leads to another quota now; returns the quotas they left and entered."""
        touched: list[Quota] = []
        for claim in sorted(claims):
            party = self._parties.get(claim)
            quota = self._quota_for_claim(claim)
            if party is None or party.quota is quota:
                continue
            for member in party.members.values():
                self._uncount(member)
            self._unlink(party, claim)
            touched.extend(one for one in (party.quota, quota) if one is not None)
            party.quota = quota
            self._link(party, claim)
            for member in party.members.values():
                member.quota = quota
                self._count(member)
        return touched

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
                quota.tree.shifted = False  # one more that wants something leaves nobody more than before
            return
        before = member.pod
        member.pod = pod
        if before.labels is pod.labels and before.shape is pod.shape:
            if assigned != member.assigned:
                self._set_assigned(member, assigned)
            return
        left = self._leave(member)
        self._changed([left, self._join(pod, assigned)])

    def pod_assigned(self, pod: Pod, assigned: bool) -> None:
        """See `PodObserver`."""
        member = self._members.get(pod.uid)
        if member is not None:
            if member.assigned != assigned:
                self._set_assigned(member, assigned)
        elif assigned:
            self.pod_seen(pod, True)

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
        claim = claim_of(pod)
        party = self._parties.get(claim)
        if party is None:
            party = self._parties[claim] = _Party(self._quota_for_claim(claim))
            self._link(party, claim)
        member = Member(pod, claim, self.requested(pod), assigned=assigned)
        member.quota = party.quota
        party.members[pod.uid] = self._members[pod.uid] = member
        self._count(member)
        self.version += 1
        return member.quota

    def _leave(self, member: Member) -> Quota | None:
        self._uncount(member)
        uid = member.pod.uid
        del self._members[uid]
        party = self._parties[member.claim]
        del party.members[uid]
        if not party.members:
            self._unlink(party, member.claim)
            del self._parties[member.claim]
        return member.quota

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
        quota = member.quota
        if quota is None:
            return
        change = accounting.add_used if assigned else accounting.remove_used
        change(quota, member.counted, member.non_preemptible)
        if not quota.takes_part:
            self.trees.usage_changed()
        if not assigned:
            self._changed([quota])
        elif quota.tree.guarantees:
            self._changed([])  # what runs is guaranteed, and with the floor the share may grow
        else:
            quota.tree.shifted = False

    def _count(self, member: Member) -> None:
        quota = member.quota
        if quota is None:
            return
        asked = member.requested
        member.counted = asked.counted_in(quota)
        if not asked.is_whole:
            quota.tree.irregular = True
        accounting.add_request(quota, member.counted, member.non_preemptible)
        if member.assigned:
            accounting.add_used(quota, member.counted, member.non_preemptible)
            if not quota.takes_part:
                self.trees.usage_changed()

    def _uncount(self, member: Member) -> None:
        quota = member.quota
        if quota is None:
            return
        if member.assigned:
            accounting.remove_used(quota, member.counted, member.non_preemptible)
            if not quota.takes_part:
                self.trees.usage_changed()
        accounting.remove_request(quota, member.counted, member.non_preemptible)

    # --- nodes ------------------------------------------------------------------------------------------

    def _node_changed(self, row: int, node: core.Node) -> None:
        # A node on its way out is no promise any more, whenever we hear of it.
        written = node.status.allocatable if node.metadata.deletion_timestamp is None else {}
        before = self._nodes.get(row)
        if before is not None and before[0] == written:
            return
        amounts, _ = parse(written)  # the node handler complains of what cannot be read
        self._nodes[row] = (written, amounts)
        self.trees.nodes_changed(amounts, before[1] if before is not None else {})
        self._changed([])

    def _node_removed(self, row: int) -> None:
        before = self._nodes.pop(row, None)
        if before is not None:
            self.trees.nodes_changed({}, before[1])
            self._changed([])

    # --- news -------------------------------------------------------------------------------------------

    def _changed(self, less_used: Iterable[Quota | None]) -> None:
        """Something changed after which more pods may fit, if there is room now that was not there before."""
        self.version += 1
        quotas: set[str] = set()
        for quota in less_used:
            if quota is not None:
                quotas.add(quota.name)
                quotas.update(ancestor.name for ancestor in quota.ancestors())
        trees = self._shifted()
        if quotas or trees:
            self._cluster.announce(ROOM, None, Room(frozenset(quotas), trees))

    def _shifted(self) -> frozenset[str]:
        shifted: list[QuotaTree] = [tree for tree in self.trees.trees.values() if tree.shifted]
        for tree in shifted:
            tree.shifted = False
        return frozenset(tree.id for tree in shifted)
