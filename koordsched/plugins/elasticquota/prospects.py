"""When a pod that its quota refused is worth another attempt because it may now find victims, not because it fits.

Preemption failed because no node had pods of the quota that were less important and held enough of it. A pod that
is bound later does not change that: what its eviction frees was not used before it came. So another attempt is worth it
in three cases: less is missing than at the last attempt, a pod has become preemptible, and the victims of an earlier
preemption are gone but another pod has taken their room.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from weakref import WeakKeyDictionary

from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle
from koordsched.plugins.elasticquota.admission import Admission, Claimant
from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts
from koordsched.plugins.elasticquota.books import QuotaBooks
from koordsched.plugins.elasticquota.members import Group
from koordsched.plugins.elasticquota.victims import QuotaVictims

_ANYTHING: Amounts = {"": 1}
"""What a pod may lack if nothing is known about it."""


class Prospects:
    """Remembers for which pods preemption failed, and decides from the state whether it may succeed now.

    The cost of an answer is that of a quota's less important pods, and only events that are about this quota ask.
    """

    def __init__(self, handle: Handle, books: QuotaBooks, admission: Admission, victims: QuotaVictims) -> None:
        self._cluster = handle.cluster
        self._books = books
        self._admission = admission
        self._victims = victims
        self._lacked: WeakKeyDictionary[Group, Amounts | None] = WeakKeyDictionary()
        """What pods of a group lacked when preemption last failed for one; None: no eviction would have helped."""

    def in_vain(self, pod: Pod) -> Callable[[], None]:
        """Preemption for the pod failed, with what is missing now. What it returns notes that."""
        member, claimant = self._books.member(pod.uid), self._admission.claimant(pod)
        if member is None or claimant is None:
            return _nothing
        return partial(self._lacked.__setitem__, member.group, self._admission.shortage(claimant))

    def preempts(self, pod: Pod) -> Callable[[], None]:
        """Others go for the pod. What it returns notes that: how it failed before counts no more."""
        member = self._books.member(pod.uid)
        return partial(self._forget, member.group) if member is not None else _nothing

    def _forget(self, group: Group) -> None:
        self._lacked.pop(group, None)

    def had_room(self, pod: Pod) -> bool:
        """Whether the quota had room for the pod when preemption last failed for one like it: it waits for nodes.

        One that the quota refused before that was woken by the room which there has been since.
        """
        member = self._books.member(pod.uid)
        return member is not None and self._lacked.get(member.group, _ANYTHING) == {}

    def lacks_less(self, pod: Pod, claimant: Claimant) -> bool:
        """Whether there is a node with enough victims for what is missing now, but not for what was missing before."""
        member = self._books.member(pod.uid)
        if member is None or member.group not in self._lacked or not self._victims.are_sought(pod, claimant.quota):
            return False
        before, now = self._lacked[member.group], self._admission.shortage(claimant)
        if now is None:
            return False
        if before is None:
            return any(_covers(held, now) for held in self._held(pod, claimant).values())
        if not any(now.get(name, 0) < amount for name, amount in before.items()):
            return False
        return any(_covers(held, now) and not _covers(held, before) for held in self._held(pod, claimant).values())

    def can_take_from(self, pod: Pod, claimant: Claimant, victim: Pod) -> bool:
        """Whether with this pod, which may be preempted from now on, its node has enough victims."""
        member = self._books.member(victim.uid)
        if member is None or not self._victims.include(member, pod, claimant.quota):
            return False
        missing = self._admission.shortage(claimant)
        placed = self._cluster.assigned.get(victim.uid)
        return (
            missing is not None
            and placed is not None
            and _covers(self._held(pod, claimant).get(placed.row, {}), missing)
        )

    def waited_in_vain(self, pod: Pod, claimant: Claimant, gone: Pod) -> bool:
        """Whether `gone` was the last victim on the node where the pod waits for some, and there are others.

        Pods that fit by then are placed; this is about those whose room another pod has taken.
        """
        if gone.node != pod.nominated_node or not self._concerns(gone, pod, claimant):
            return False
        row = self._cluster.table.row_of.get(pod.nominated_node)
        if row is None:
            return False
        others = self._cluster.pods_on(row).values()
        if any(other.deleting and self._concerns(other, pod, claimant) for other in others):
            return False
        missing = self._admission.shortage(claimant)
        return missing is not None and any(_covers(held, missing) for held in self._held(pod, claimant).values())

    def _concerns(self, other: Pod, pod: Pod, claimant: Claimant) -> bool:
        return other.priority < pod.priority and self._books.quota_of(other) is claimant.quota

    def _held(self, pod: Pod, claimant: Claimant) -> dict[int, Amounts]:
        return self._victims.held_by_row(pod, claimant.quota)


def _nothing() -> None:
    """There is nothing to note."""


def _covers(held: Amounts, missing: Amounts) -> bool:
    """Whether there are victims, and they hold enough."""
    return bool(held) and all(held.get(name, 0) >= amount for name, amount in missing.items())
