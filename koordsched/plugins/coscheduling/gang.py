"""A gang, and the group of gangs that are placed together: who is pending, placed and bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.plugins.coscheduling.kinds import ONCE_SATISFIED, ONLY_WAITING, WAITING_AND_RUNNING
from koordsched.plugins.coscheduling.options import FROM_POD, FROM_POD_GROUP, GangOptions

_FIRST_QUIET, _LONGEST_QUIET = 60.0, 3600.0
"""Seconds for which no pods are evicted for single members after that was in vain: the first time, and at most."""


class Gang:
    """One gang; pods by uid, in the order in which they came.

    `options`: None until a PodGroup, or a pod with a legal minimum, defines it. `children` are all its pods: those
    `bound` are on nodes, those `waiting` are placed and on their way there, the others are `pending`; `stuck` are the
    uids of pending ones that no scheduler can place now, `rejected` those of waiting ones that are losing their places,
    as they have been told, `alone` those of waiting ones that went on by themselves. `created` is in seconds since the
    epoch.
    """

    __slots__ = (
        "_on_change",
        "_options",
        "alone",
        "bound",
        "children",
        "created",
        "group",
        "id",
        "pending",
        "rejected",
        "stuck",
        "waiting",
    )

    def __init__(self, gang_id: str, group: GangGroup, created: float, on_change: Callable[[Gang], None]) -> None:
        """`on_change`: called when its pods or its options have changed."""
        self._on_change = on_change
        self.id = gang_id
        self.group = group
        self.created = created
        self._options: GangOptions | None = None
        self.children: dict[str, Pod] = {}
        self.pending: dict[str, Pod] = {}
        self.waiting: dict[str, Pod] = {}
        self.bound: dict[str, Pod] = {}
        self.stuck: set[str] = set()
        self.rejected: set[str] = set()
        self.alone: set[str] = set()

    @property
    def options(self) -> GangOptions | None:
        """What it asks for."""
        return self._options

    @options.setter
    def options(self, options: GangOptions | None) -> None:
        self._options = options
        self._on_change(self)

    @property
    def from_crd(self) -> bool:
        """Whether a PodGroup defines it."""
        return self.options is not None and self.options.origin == FROM_POD_GROUP

    @property
    def origin(self) -> str:
        """What defines it, as upstream's summary names it."""
        return self.options.origin if self.options is not None else FROM_POD

    @property
    def lacks_children(self) -> bool:
        """Whether it has fewer pods than have to be placed together."""
        return self.options is not None and len(self.children) < self.options.min

    @property
    def missing(self) -> int:
        """How many more members have to be placed before there are enough, by its match policy (coscheduling spec 3.9);
        of a gang that nothing defines one more than there are.
        """
        options = self.options
        if options is None:
            return len(self.pending) + 1
        if options.match_policy == ONLY_WAITING:
            return options.min - len(self.waiting)
        if options.match_policy == WAITING_AND_RUNNING:
            return options.min - len(self.waiting) - len(self.bound)
        return options.min - len(self.waiting) if not self.group.satisfied else 0

    @property
    def valid(self) -> bool:
        """Whether there are enough members."""
        return self.missing <= 0

    @property
    def goes_on_alone(self) -> bool:
        """Whether its pods are placed one by one as soon as its group is satisfied."""
        return self.options is not None and self.options.match_policy == ONCE_SATISFIED

    def placed(self) -> list[Pod]:
        """Those on nodes or on their way there, in an order that does not depend on which came first: no checkpoint
        says that.
        """
        return sorted((*self.bound.values(), *self.waiting.values()), key=lambda pod: (pod.name, pod.uid))

    def put(self, pod: Pod, where: dict[str, Pod]) -> None:
        """A child is in this one of the three sets now, in this version."""
        uid = pod.uid
        self.children[uid] = pod
        if where is self.pending and (uid in self.waiting or uid in self.bound):
            self.group.kept_out = False
        for each in (self.pending, self.waiting, self.bound):
            if each is not where:
                each.pop(uid, None)
        where[uid] = pod
        if where is not self.waiting:
            if self.rejected:
                self.rejected.discard(uid)
            if self.alone:
                self.alone.discard(uid)
        if where is not self.pending and self.group.representative == uid:
            self.group.representative = ""
        if where is self.pending and is_stuck(pod):
            self.stuck.add(uid)
        elif self.stuck:
            self.stuck.discard(uid)
        self._on_change(self)

    def move(self, uid: str, where: dict[str, Pod]) -> None:
        """The same for the newest version of a child."""
        self.put(self.children[uid], where)

    def remove(self, uid: str) -> None:
        """A child is gone."""
        for each in (self.children, self.pending, self.waiting, self.bound):
            each.pop(uid, None)
        self.stuck.discard(uid)
        self.rejected.discard(uid)
        self.alone.discard(uid)
        self.group.demoted.discard(uid)
        self.group.tried_first.discard(uid)
        self._on_change(self)


def is_stuck(pod: Pod) -> bool:
    """Whether a pending pod cannot be placed by any scheduler now."""
    return pod.deleting or (pod.wire is not None and bool(pod.wire.spec.scheduling_gates))


class GangGroup:
    """The gangs that are placed together; mostly one alone.

    `gang_ids`: all that belong to it, sorted, as given; `gangs`: by id, those that exist and say so. A gang that does
    not name itself has a group of its own, which waits for those it names and is no part of theirs. `satisfied`: a pod
    of one of them was bound. `representative`: uid of the pod that is in the queue for all, "" if none is; `at_rest`:
    it waits for an event there, and so may others, the first of which to be woken takes over. `binding_members`: uids
    of the pods that were placed together and are being bound. `held`: it may not be tried, as was known when that was
    last asked; `lacks`: how many of the gangs that it names have each shortcoming, and `shortcomings` how that reads,
    None after it changed. `lacking`: where in `named` the gang is of which too few members have been placed, as far as
    is known. `kept_out`: other plugins keep all its pending pods out of the queue, as was found when all were asked.
    `demoted`: uids of members that had no place, where others may do without them;
    they and those like them are tried last. `tried_first`: uids of members that had no place when others had been
    promised theirs: they come first from then on, so that no pods are evicted for others in vain again. `in_vain`: how
    often pods were, since members were placed last; none is evicted for single members until `quiet_until`, in
    monotonic seconds. `order`: the pending members in the order in which they are placed, and `told` what those that
    were not tried show, both None after something changed.
    """

    __slots__ = (
        "at_rest",
        "binding_members",
        "demoted",
        "gang_ids",
        "gangs",
        "held",
        "id",
        "in_vain",
        "kept_out",
        "lacking",
        "lacks",
        "named",
        "order",
        "quiet_until",
        "representative",
        "satisfied",
        "shortcomings",
        "told",
        "tried_first",
    )

    def __init__(self, gang_ids: tuple[str, ...]) -> None:
        self.id = ",".join(gang_ids)
        self.gang_ids = gang_ids
        self.named = tuple(dict.fromkeys(gang_ids))
        """The same, each once."""
        self.gangs: dict[str, Gang] = {}
        self.satisfied = False
        self.representative = ""
        self.at_rest = False
        self.binding_members: frozenset[str] = frozenset()
        self.held = False
        self.kept_out = False
        self.lacks: list[int] = []
        self.shortcomings: str | None = None
        self.lacking = 0
        self.demoted: set[str] = set()
        self.tried_first: set[str] = set()
        self.in_vain = 0
        self.quiet_until = 0.0
        self.order: Sequence[Pod] | None = None
        self.told: tuple[int, str] | None = None

    def changed(self) -> None:
        """There are other pending members, or they are other than they were."""
        self.order = self.told = None

    @property
    def waiting_gangs(self) -> set[str]:
        """Ids of the gangs with placed members that are not being bound yet."""
        return {gang.id for gang in self.gangs.values() if gang.waiting.keys() - self.binding_members - gang.alone}

    @property
    def representative_key(self) -> str:
        """`namespace/name` of the representative, "" if there is none."""
        found = (gang.children.get(self.representative) for gang in self.gangs.values())
        return next((pod.key for pod in found if pod is not None), "")

    @property
    def represented(self) -> bool:
        """Whether a pod is in the queue for all, and is going to be tried."""
        return bool(self.representative) and not self.at_rest

    def pending(self) -> Iterator[Pod]:
        """The pending pods that are placed in one attempt: of all gangs but those whose pods are placed one by one."""
        for gang in self.gangs.values():
            if not self.admits_singly(gang):
                yield from gang.pending.values()

    def together(self) -> list[Pod]:
        """The placed pods of all gangs, but for those that went on alone."""
        return [pod for gang in self.gangs.values() for uid, pod in gang.waiting.items() if uid not in gang.alone]

    @property
    def has_surplus(self) -> bool:
        """Whether more pods wait than are needed."""
        return any(len(gang.pending) > gang.missing for gang in self.gangs.values() if not self.admits_singly(gang))

    def demoted_shapes(self) -> set[PodShape]:
        """The shapes of the members that are tried last."""
        children = (gang.children for gang in self.gangs.values())
        return {pods[uid].shape for pods in children for uid in self.demoted if uid in pods}

    def evicted_in_vain(self, trigger: Pod, now: float) -> None:
        """Members give up what they were promised, because this one has no place."""
        self.quiet_until = now + min(_FIRST_QUIET * 2.0 ** min(self.in_vain, 16), _LONGEST_QUIET)
        self.in_vain += 1
        self.tried_first.add(trigger.uid)
        self.changed()

    def succeeded(self) -> None:
        """Members were placed: what was in vain before counts no more."""
        self.in_vain, self.quiet_until = 0, 0.0
        self.tried_first.clear()

    def end_binding(self) -> None:
        """Those that were placed together are bound, or have lost their places, if none waits any more."""
        if self.binding_members and not any(gang.waiting for gang in self.gangs.values()):
            self.binding_members = frozenset()

    def admits_singly(self, gang: Gang) -> bool:
        """Whether pods of this gang of the group are placed one by one: once satisfied, if its policy says so."""
        return self.satisfied and gang.goes_on_alone
