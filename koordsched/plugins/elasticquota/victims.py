"""Which pods of a quota may be evicted for another one of it: placed, preemptible, of lower priority, not our own.

Groups of pods that count alike have one priority, so those that are no less important cost nothing, however many pods
they have. Nearly all pods of a full quota have the priority of the one that waits.
"""

from __future__ import annotations

from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle
from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts, add_to
from koordsched.plugins.elasticquota.arithmetic.quota import Quota
from koordsched.plugins.elasticquota.books import QuotaBooks
from koordsched.plugins.elasticquota.kinds import DEFAULT_QUOTA
from koordsched.plugins.elasticquota.members import Group, Member

Held = tuple[Pod, Amounts]
"""A pod that may be evicted, and what it holds of its quota."""


class QuotaVictims:
    """Finds them. Source: elasticquota spec 3.11."""

    def __init__(self, handle: Handle, books: QuotaBooks, *, spares_default_quota: bool) -> None:
        self._handle = handle
        self._books = books
        self._spares_default_quota = spares_default_quota

    def are_sought(self, pod: Pod, quota: Quota) -> bool:
        """Whether pods of this quota, which is the pod's own, may be evicted for it."""
        spared = self._spares_default_quota and quota.name == DEFAULT_QUOTA
        return not pod.shape.never_preempts and not spared

    def by_row(self, pod: Pod, quota: Quota) -> dict[int, list[Held]]:
        """Row -> who may be evicted there for this pod of the quota."""
        found: dict[int, list[Held]] = {}
        if not self.are_sought(pod, quota):
            return found
        assigned, own = self._handle.cluster.assigned, self._handle.own_replicas
        for group in self._books.groups(quota):
            tally = group.tally
            if tally is None or not tally.placed or not _yields(group, pod):
                continue
            for uid, member in group.members.items():
                if member.assigned:
                    placed = assigned.get(uid)
                    if placed is not None and placed.row >= 0 and placed not in own:
                        found.setdefault(placed.row, []).append((placed, tally.amounts))
        return found

    def held_by_row(self, pod: Pod, quota: Quota) -> dict[int, Amounts]:
        """Row -> what those who may be evicted there for this pod of the quota hold of it together."""
        held: dict[int, Amounts] = {}
        for row, victims in self.by_row(pod, quota).items():
            total = held[row] = {}
            for _, amounts in victims:
                add_to(total, amounts)
        return held

    def include(self, member: Member, pod: Pod, quota: Quota) -> bool:
        """Whether a pod in the books may be evicted for this pod of the quota."""
        return (
            member.assigned
            and member.quota is quota
            and self.are_sought(pod, quota)
            and _yields(member.group, pod)
            and member.pod not in self._handle.own_replicas
        )


def _yields(group: Group, pod: Pod) -> bool:
    return not group.non_preemptible and group.priority < pod.priority
