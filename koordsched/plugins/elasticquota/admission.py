"""Whether a quota has room for a pod, and what is missing if not (elasticquota spec 3.9)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from koordsched.cluster.pod import Pod
from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts, exceeded, fits, masked
from koordsched.plugins.elasticquota.arithmetic.quota import Quota
from koordsched.plugins.elasticquota.books import QuotaBooks
from koordsched.plugins.elasticquota.members import is_preemptible
from koordsched.plugins.elasticquota.messages import listed


class Bound(Enum):
    """Which bound a pod does not fit."""

    LIMIT = "limit"
    MIN = "min"
    """Pods that cannot be preempted must fit min."""
    ANCESTOR = "ancestor"


class Claimant(NamedTuple):
    """A pod as a quota sees it. `counted`: what it requests of the resources that count there."""

    quota: Quota
    counted: Amounts
    non_preemptible: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """A pod does not fit a bound of `quota`, which is its own or, for Bound.ANCESTOR, one above."""

    claimant: Claimant
    bound: Bound
    quota: Quota
    limit: Amounts
    used: Amounts
    resources: tuple[str, ...]
    """The resources in which it does not fit, sorted."""
    binary: frozenset[str] = frozenset()
    """Those whose limit is shown in powers of 1024."""

    @property
    def missing(self) -> Amounts:
        """By how much it does not fit."""
        requested = self.claimant.counted
        return {name: self.used.get(name, 0) + requested.get(name, 0) - self.limit[name] for name in self.resources}

    @property
    def message(self) -> str:
        """What the user reads."""
        own = self.quota.binary
        dimensions = f"exceedDimensions: [{' '.join(self.resources)}]"
        used = listed(self.used, own)
        request = f"pod's request: {listed(self.claimant.counted, own)}"
        limit = listed(self.limit, self.binary)
        name = self.quota.name
        if self.bound is Bound.MIN:
            return (
                f"Insufficient non-preemptible quotas, quotaName: {name}, min: {limit}, "
                f"nonPreemptibleUsed: {used}, {request}, {dimensions}"
            )
        if self.bound is Bound.LIMIT:
            return f"Insufficient quotas, quotaName: {name}, runtime: {limit}, used: {used}, {request}, {dimensions}"
        path = self.claimant.quota.path()
        names = " ".join(quota.name for quota in path[path.index(self.quota) :])
        return f"Insufficient quotas, quotaNameTopo: [{names}], runtime: {limit}, used: {used}, {request}, {dimensions}"


class Admission:
    """The checks of one profile. `by_runtime`: what a quota may use is its runtime, otherwise its max."""

    def __init__(self, books: QuotaBooks, *, by_runtime: bool, checks_parents: bool) -> None:
        self._books = books
        self.by_runtime = by_runtime
        self.checks_parents = checks_parents

    def limit_of(self, quota: Quota) -> Amounts:
        """What a quota may use. The default and the system quota have no runtime, hence no limit by runtime."""
        return quota.limit if self.by_runtime else quota.max

    def claimant(self, pod: Pod) -> Claimant | None:
        """The pod as its quota sees it; None if it has none."""
        member = self._books.member(pod.uid)
        if member is not None:
            quota = member.quota
            return Claimant(quota, member.counted, member.non_preemptible) if quota is not None else None
        quota = self._books.quota_of(pod)
        if quota is None:
            return None
        return Claimant(quota, self._books.requested(pod).counted_in(quota), not is_preemptible(pod))

    def admits_at_once(self, pod: Pod) -> bool:
        """The usual case, checked at little cost: everything requested of the quota, the pod included, is granted. It
        is within max, too, also in the quotas above. False means unknown.
        """
        member = self._books.member(pod.uid)
        if member is None or member.assigned:
            return False
        tally = member.group.tally
        if tally is None or tally.non_preemptible:
            return False
        quota = tally.quota
        if self.by_runtime and not quota.takes_part:
            return True
        return quota.tree.grants_requests_of(quota, and_above=self.checks_parents)

    def refusal(self, claimant: Claimant) -> Refusal | None:
        """The first bound that the pod does not fit, None if it fits all."""
        quota, counted, non_preemptible = claimant
        limit = self.limit_of(quota)
        if not fits(quota.used, counted, limit):
            resources = tuple(exceeded(quota.used, counted, limit))
            return Refusal(claimant, Bound.LIMIT, quota, limit, quota.used, resources, self._binary(quota))
        if non_preemptible and not fits(quota.non_preemptible_used, counted, quota.min):
            used = quota.non_preemptible_used
            return Refusal(claimant, Bound.MIN, quota, quota.min, used, tuple(exceeded(used, counted, quota.min)))
        if self.checks_parents:
            for ancestor in quota.ancestors():
                # Of what is above, only the resources that the pod asks for matter.
                used = masked(ancestor.used, counted)
                limit = self.limit_of(ancestor)
                if not fits(used, counted, limit):
                    resources = tuple(exceeded(used, counted, limit))
                    bound, binary = Bound.ANCESTOR, self._binary(ancestor)
                    return Refusal(claimant, bound, ancestor, limit, ancestor.used, resources, binary)
        return None

    def shortage(self, claimant: Claimant) -> Amounts | None:
        """How much usage of the quota's own pods would have to go for the pod to fit; None if that would not help.

        Empty if it fits as it is.
        """
        quota, counted = claimant.quota, claimant.counted
        if claimant.non_preemptible and not fits(quota.non_preemptible_used, counted, quota.min):
            return None
        needed = _excess(quota.used, counted, self.limit_of(quota))
        if self.checks_parents:
            for ancestor in quota.ancestors():
                above = _excess(masked(ancestor.used, counted), counted, self.limit_of(ancestor))
                for name, amount in above.items():
                    needed[name] = max(amount, needed.get(name, 0))
        return needed

    def _binary(self, quota: Quota) -> frozenset[str]:
        return frozenset() if self.by_runtime else quota.binary


def _excess(used: Amounts, more: Amounts, limit: Amounts) -> Amounts:
    return {name: used.get(name, 0) + more.get(name, 0) - limit[name] for name in exceeded(used, more, limit)}
