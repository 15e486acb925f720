"""All gangs, made of pods and PodGroups as they come and go (coscheduling spec 3.1).

One for all profiles. Nothing depends on the order in which pods and PodGroups are seen, but for one rule of upstream:
of the pods that define a gang the first one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from datetime import datetime

import msgspec

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import Handle
from koordsched.plugins.coscheduling.args import CoschedulingArgs
from koordsched.plugins.coscheduling.gang import Gang, GangGroup, is_stuck
from koordsched.plugins.coscheduling.kinds import POD_GROUPS, PodGroup
from koordsched.plugins.coscheduling.options import GangOptions, from_pod, from_pod_group
from koordsched.plugins.coscheduling.podfacts import GangFacts
from koordsched.plugins.coscheduling.round import Round
from koordsched.plugins.coscheduling.shortcomings import Shortcomings


class GangRecord(msgspec.Struct, array_like=True):
    """What is known of a gang beyond its objects. `options`: those of a pod, which may be gone."""

    id: str
    created: float
    options: GangOptions | None
    satisfied: bool
    waiting: tuple[str, ...]
    representative: str
    binding_members: tuple[str, ...]
    at_rest: bool = False
    demoted: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    tried_first: tuple[str, ...] = ()
    in_vain: int = 0
    quiet_until: float = 0.0


class GangCache:
    """Observes pods and PodGroups.

    `gangs` by id. `profiles`: the schedulers whose pods are placed by gangs.
    """

    def __init__(self, cluster: ClusterState, args: CoschedulingArgs, handle: Handle) -> None:
        self._cluster = cluster
        self._args = args
        self._wall = handle.clock.wall
        self._activate = handle.activate
        self._renounce = handle.renounce
        self._nominations = handle.nominations
        self._monotonic = handle.clock.monotonic
        self.state_type = list[GangRecord]
        self.profiles: set[str] = set()
        self._round: Round | None = None
        self._round_watchers: list[Callable[[Round | None, Round | None], None]] = []
        self._preemption_watchers: list[Callable[[str], None]] = []
        self.gangs: dict[str, Gang] = {}
        self.shortcomings = Shortcomings()
        self._groups: dict[Hashable, GangGroup] = {}
        self._of_pod: dict[str, Gang] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._replacing = False
        self.facts = cluster.shared(GangFacts)
        self.pod_groups = cluster.objects.of(POD_GROUPS)
        self.pod_groups.subscribe(self._pod_group_changed)
        cluster.add_observer(self, virtual=True)
        handle.states.keep("Coscheduling", self)

    @staticmethod
    def shared(args: CoschedulingArgs, handle: Handle) -> GangCache:
        """The cache of a cluster, created once, with the arguments of the first profile."""
        cache = handle.cluster.shared(lambda cluster: GangCache(cluster, args, handle), GangCache)
        cache.profiles.add(handle.profile)
        return cache

    # --- reading -----------------------------------------------------------------------------------

    @property
    def round(self) -> Round | None:
        """The attempt that is under way."""
        return self._round

    @round.setter
    def round(self, new: Round | None) -> None:
        old, self._round = self._round, new
        for watcher in self._round_watchers:
            watcher(old, new)

    def on_round(self, watcher: Callable[[Round | None, Round | None], None]) -> None:
        """Calls it with the attempt that ends and the one that begins, None for none."""
        self._round_watchers.append(watcher)

    def on_preemption(self, watcher: Callable[[str], None]) -> None:
        """Calls it with "" when job preemption begins, and with the result when it ends."""
        self._preemption_watchers.append(watcher)

    def preempting(self, result: str) -> None:
        """Job preemption begins, "", or ended with a result."""
        for watcher in self._preemption_watchers:
            watcher(result)

    def gang_id(self, pod: Pod) -> str | None:
        """The id of the gang that the pod names; None for most pods."""
        membership = self.facts.membership(pod)
        return membership.id if membership is not None else None

    def of(self, pod: Pod) -> Gang | None:
        """The gang that the pod was counted to."""
        return self._of_pod.get(pod.uid)

    def groups(self) -> Iterable[GangGroup]:
        """All groups."""
        return self._groups.values()

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Calls it with the id of a gang that changed, or one of whose pods did."""
        self._listeners.append(listener)

    def placeable(self, pod: Pod) -> bool:
        """Whether a pending pod is ours, and may be placed at all."""
        return pod.shape.scheduler_name in self.profiles and not is_stuck(pod)

    def why_not(self, group: GangGroup) -> str:
        """Why the group is not to be tried, "" if it is."""
        return self.shortcomings.why_not(group)

    def key_of(self, uid: str) -> str:
        """`namespace/name` of a member, "" for none."""
        gang = self._of_pod.get(uid)
        return gang.children[uid].key if gang is not None else ""

    # --- what happens to pods ------------------------------------------------------------------------

    def pod_seen(self, pod: Pod, assigned: bool) -> None:
        """See PodObserver."""
        membership = self.facts.membership(pod)
        uid = pod.uid
        gang = self._of_pod.get(uid)
        moved = gang is not None and (membership is None or membership.id != gang.id)
        if moved:
            self.pod_gone(uid)
        if membership is None:
            return
        if gang is None or moved:
            gang = self._of_pod[uid] = self._get_or_create(membership.id)
        before = gang.children.get(uid)
        comes_bound = self._put(gang, pod, assigned)
        defined = gang.options is None and not membership.by_pod_group and self._define_by(gang, pod)
        if comes_bound:
            self.satisfy(gang.group)
        if is_stuck(pod) and gang.group.representative == uid:
            gang.group.representative = ""
        pending, alone = uid in gang.pending, gang.group.admits_singly(gang)
        if before is None:
            # A new pod that may be placed comes to the queue itself, for all unless it goes on alone.
            concerns = moved or not pending or alone or not self.placeable(pod)
        else:
            concerns = pending and not _is_alike(before, pod)
        if defined:
            self._options_changed(gang)
        elif concerns and before is not None and is_stuck(pod):
            self._fewer(gang.group)
        elif concerns or comes_bound:
            if alone and pending and (moved or before is not None) and self.placeable(pod):
                self._activate((pod,))
            self.wake(gang.group)
        elif before is None:
            self._is_held(gang.group)
        self._changed(gang)

    def _put(self, gang: Gang, pod: Pod, assigned: bool) -> bool:
        """Whether the pod is on a node, which was not known."""
        uid = pod.uid
        if uid in gang.bound:
            gang.put(pod, gang.bound)
            return False
        assumed = self._cluster.is_assumed(uid)
        if assigned and pod.node and not assumed:
            gang.put(pod, gang.bound)
            return True
        gang.put(pod, gang.waiting if assumed or uid in gang.waiting else gang.pending)
        return False

    def pod_assigned(self, pod: Pod, assigned: bool) -> None:
        """See PodObserver: Permit and Unreserve say more."""

    def pod_gone(self, uid: str) -> None:
        """See PodObserver."""
        gang = self._of_pod.pop(uid, None)
        if gang is None:
            return
        pending, waiting = uid in gang.pending, uid in gang.waiting
        gang.remove(uid)
        group = gang.group
        group.end_binding()
        if group.representative == uid:
            group.representative = ""
        if not gang.children and not gang.from_crd:
            self._drop(gang)
        elif pending:
            self._fewer(group)
        elif waiting:
            self.wake(group)  # the others waited for its binding
        self._changed(gang)

    def _fewer(self, group: GangGroup) -> None:
        """A pending pod is gone, or cannot be placed any more. If too few are left, the others keep no room, which they
        need together.
        """
        could = not group.held
        self.wake(group)
        if could and group.held:
            self._renounce(list(group.pending()))

    def _get_or_create(self, gang_id: str) -> Gang:
        gang = self.gangs.get(gang_id)
        if gang is None:
            group = self._group((gang_id,), gang_id)
            gang = self.gangs[gang_id] = Gang(gang_id, group, self._wall(), self.shortcomings.assess)
            self.shortcomings.assess(gang)
            gang.group.gangs[gang_id] = gang
            namespace, _, name = gang_id.partition("/")
            if (pod_group := self.pod_groups.get(namespace, name)) is not None:
                self._define(gang, from_pod_group(pod_group, self._args))
        return gang

    def _define_by(self, gang: Gang, pod: Pod) -> bool:
        """Whether the pod defines the gang."""
        options = from_pod(gang.id, pod.labels.labels, self.facts.annotations(pod), self._args)
        if options is not None:
            self._define(gang, options)
        return options is not None

    # --- what happens to PodGroups -----------------------------------------------------------------

    def _pod_group_changed(self, old: PodGroup | None, new: PodGroup | None) -> None:
        if new is not None:
            gang = self._get_or_create(new.id)
            before, options = gang.options if old is not None else None, from_pod_group(new, self._args)
            self._define(gang, options)
            gang.created = _seconds(new.metadata.creation_timestamp) or gang.created
            if options != before:
                self._options_changed(gang)
            self._changed(gang)
        elif old is not None and old.id in self.gangs:
            self._pod_group_gone(self.gangs[old.id])

    def _pod_group_gone(self, gang: Gang) -> None:
        """Its pods stay: another PodGroup of the name finds them."""
        gang.options = None
        for pod in gang.children.values():
            membership = self.facts.membership(pod)
            if gang.options is None and membership is not None and not membership.by_pod_group:
                self._define_by(gang, pod)
        if gang.options is None:
            self._regroup(gang, (gang.id,))
        if not gang.children:
            self._drop(gang)
        elif gang.options is not None:
            self._options_changed(gang)
        self._changed(gang)

    # --- gangs and groups ----------------------------------------------------------------------------

    def _define(self, gang: Gang, options: GangOptions) -> None:
        gang.options = options
        self._regroup(gang, options.groups)

    def _regroup(self, gang: Gang, gang_ids: tuple[str, ...]) -> None:
        before, group = gang.group, self._group(gang_ids, gang.id)
        if group is not before:
            together = before.binding_members
            self._leave(gang)
            gang.group = group
            group.gangs[gang.id] = gang
            group.kept_out = False
            if before.representative in gang.children:
                if not group.represented:
                    group.representative, group.at_rest = before.representative, before.at_rest
                before.representative = ""
            if gang.waiting and not group.binding_members:
                group.binding_members = together  # as they say when they are bound
            self.wake(before)
            self.shortcomings.reword(group)
        group.changed()
        if gang.bound:
            self.satisfy(group)

    def _group(self, gang_ids: tuple[str, ...], gang_id: str) -> GangGroup:
        """The group of a gang that names these."""
        key = _group_key(gang_ids, gang_id)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = GangGroup(gang_ids)
            self.shortcomings.follow(group)
        return group

    def _leave(self, gang: Gang) -> None:
        group = gang.group
        del group.gangs[gang.id]
        group.end_binding()
        if not group.gangs:
            del self._groups[_group_key(group.gang_ids, gang.id)]
            self.shortcomings.forget(group)

    def _drop(self, gang: Gang) -> None:
        self._leave(gang)
        del self.gangs[gang.id]
        self.shortcomings.gone(gang.id)

    def satisfy(self, group: GangGroup) -> None:
        """A pod of the group is bound. Those that still wait are placed one by one from now on."""
        if group.satisfied:
            return
        group.satisfied = True
        group.changed()
        self._let_go(group)
        self.wake(group)

    def _let_go(self, group: GangGroup) -> None:
        """Has those tried that are placed one by one. If one of them is in the queue for all, it no longer is."""
        if self.round is not None and self.round.group is group:
            self.round.woken = True
            return
        singly = [gang for gang in group.gangs.values() if group.admits_singly(gang)]
        if any(group.representative in gang.children for gang in singly):
            group.representative = ""
        self._activate([pod for gang in singly for pod in gang.pending.values() if self.placeable(pod)])

    def wake(self, group: GangGroup) -> None:
        """Has the group tried, if it may be and no pod is in the queue for it.

        The first pod that all PreEnqueue plugins let in is tried for all. During its round the group is left alone, and
        tried again afterwards.
        """
        if self.round is not None and self.round.group is group:
            self.round.woken = True
            return
        if self._is_held(group) or group.represented or not group.gangs:
            return
        for pod in list(group.pending()):
            if self.placeable(pod):
                self._activate((pod,))
                if group.represented:
                    return
        group.kept_out = True

    def replace_representative(self, group: GangGroup) -> None:
        """The pod that is in the queue for all is kept out of it: the others may be enough. If all are kept out, the
        first to be let in represents them.
        """
        group.representative = ""
        if not self._replacing:  # else another one of those that are asked now is kept out
            self._replacing = True
            try:
                self.wake(group)
            finally:
                self._replacing = False

    def _is_held(self, group: GangGroup) -> bool:
        """Whether the group may not be tried. When that becomes so, its pods leave the queue, and show why."""
        before, group.held = group.held, self.shortcomings.hold(group)
        if group.held:
            group.kept_out = False
        if group.held and not before:
            self._activate([pod for pod in group.pending() if self.placeable(pod)])
        return group.held

    def _options_changed(self, gang: Gang) -> None:
        if gang.group.satisfied:
            self._let_go(gang.group)
        self.wake(gang.group)

    def end_round(self, placed: bool) -> None:
        """The round is over. What happened to the group meanwhile, and pods that are left, have it tried again.

        If a member had no place, and there may be enough without it, the others are tried without it.
        """
        around, self.round = self.round, None
        if around is None:
            return
        group = around.group
        if placed:
            group.succeeded()
        elif around.trigger is not None and not around.preempts and self._in_vain(around, around.trigger):
            group.evicted_in_vain(around.trigger, self._monotonic())
        if around.trigger is not None and not placed and self._can_do_without(around):
            around.woken = True
        else:
            group.demoted.clear()
        if around.woken and group.satisfied:
            self._let_go(group)
        left = (gang for gang in group.gangs.values() if gang.pending and not gang.goes_on_alone)
        if around.woken or (placed and next(left, None) is not None):
            self.wake(group)

    def _in_vain(self, around: Round, trigger: Pod) -> bool:
        """Whether others were promised their places, and give them up."""
        return any(self._nominations.node_of(pod.uid) for pod in around.renounced() if pod.uid != trigger.uid)

    def _can_do_without(self, around: Round) -> bool:
        group, trigger = around.group, around.trigger
        if trigger is None or around.rejection_message or around.refused_plan is not None or not group.has_surplus:
            return False
        if trigger.shape in group.demoted_shapes():
            return False  # the others have been tried
        group.demoted.add(trigger.uid)
        demoted = group.demoted_shapes()
        return all(
            sum(self.placeable(pod) and pod.shape not in demoted for pod in gang.pending.values()) >= gang.missing
            for gang in group.gangs.values()
        )

    def _changed(self, gang: Gang) -> None:
        gang.group.changed()
        for listener in self._listeners:
            listener(gang.id)

    # --- journals ----------------------------------------------------------------------------------

    def recorded_state(self) -> list[GangRecord]:
        """See Keeper."""
        return list(self._records())

    def _records(self) -> Iterator[GangRecord]:
        for gang in self.gangs.values():
            group = gang.group
            yield GangRecord(
                gang.id,
                gang.created,
                gang.options if not gang.from_crd else None,
                group.satisfied,
                tuple(gang.waiting),
                group.representative,
                tuple(sorted(group.binding_members)),
                group.at_rest,
                tuple(sorted(group.demoted)),
                tuple(sorted(gang.alone)),
                tuple(sorted(group.tried_first)),
                group.in_vain,
                group.quiet_until,
            )

    def restore_state(self, state: list[GangRecord]) -> None:
        """See Keeper."""
        for record in state:
            gang = self.gangs.get(record.id)
            if gang is None:
                continue
            gang.created = record.created
            if record.options is not None:
                self._define(gang, record.options)
            group = gang.group
            group.satisfied = record.satisfied
            group.representative, group.at_rest = record.representative, record.at_rest
            group.binding_members = frozenset(record.binding_members)
            group.demoted = set(record.demoted)
            group.tried_first = set(record.tried_first)
            group.in_vain, group.quiet_until = record.in_vain, record.quiet_until
            for uid in record.waiting:
                if (pod := gang.children.get(uid)) is not None:
                    gang.put(pod, gang.waiting)
            gang.alone.update(gang.waiting.keys() & set(record.alone))
        for group in self._groups.values():
            group.held = self.shortcomings.hold(group)


def _group_key(gang_ids: tuple[str, ...], gang_id: str) -> Hashable:
    return gang_ids if gang_id in gang_ids else (gang_ids, gang_id)


def _is_alike(before: Pod, pod: Pod) -> bool:
    """Whether a pending pod has the same chances as the version before."""
    return before.shape is pod.shape and before.labels is pod.labels and is_stuck(before) is is_stuck(pod)


def _seconds(timestamp: str | None) -> float | None:
    try:
        return datetime.fromisoformat(timestamp or "").timestamp()
    except ValueError:
        return None
