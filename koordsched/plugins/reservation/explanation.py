"""Which Reservations a pod may use, which not, and why: what `explain` says of each whose owners match it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.framework.interface import CycleState
from koordsched.framework.status import Status
from koordsched.plugins.reservation.cache import ReservationCache
from koordsched.plugins.reservation.info import ReservationInfo
from koordsched.plugins.reservation.matched import Diagnosis
from koordsched.plugins.reservation.matching import Matching

_MOST = 20

WhyNot = Callable[[CycleState, int, ReservationInfo], Status | None]
"""Why the pod of a cycle has no room in a Reservation that it may use, None if it has."""


class Explaining:
    """Makes the lines. Changes nothing."""

    def __init__(self, cache: ReservationCache, matching: Matching, table: NodeTable, why_not: WhyNot) -> None:
        self._cache = cache
        self._matching = matching
        self._table = table
        self._why_not = why_not

    def lines(self, cycle: CycleState) -> list[str]:
        """Of the pod of a cycle whose nodes were filtered. Those that it may use come first, then by name."""
        pod = cycle.pod
        terms = self._matching.terms(pod)
        if pod.virtual or terms.ignored or terms.problem:
            return []
        found = sorted((bad, info.name, text) for info, (bad, text) in self._verdicts(cycle, pod))
        lines = [f"{name}: {text}" for _, name, text in found]
        named = terms.affinity.name if terms.affinity is not None else ""
        if named and all(name != named for _, name, _ in found):
            lines.insert(0, self._unmatched(named))
        if len(lines) > _MOST:
            lines[_MOST:] = [f"and {len(lines) - _MOST} more whose owners match"]
        return lines

    def _unmatched(self, name: str) -> str:
        info = self._cache.named(name)
        if info is None:
            return f"{name}: the pod asks for it by name, and there is none, or it is over"
        problem = self._cache.problem_of(info.reservation)
        return f"{name}: {problem}" if problem else f"{name}: the pod asks for it by name, but its owners do not match"

    def _verdicts(self, cycle: CycleState, pod: Pod) -> Iterator[tuple[ReservationInfo, tuple[bool, str]]]:
        for uid in self._cache.index.candidates(pod):
            info = self._cache.get(uid)
            if info is not None and info.terms.owners is not None and info.terms.owners.matches(pod):
                yield info, self._verdict(cycle, pod, info)

    def _verdict(self, cycle: CycleState, pod: Pod, info: ReservationInfo) -> tuple[bool, str]:
        """Whether something speaks against it, and what."""
        row = self._cache.row_of(info)
        if info.terms.problem:
            return True, info.terms.problem
        if row < 0:
            return True, "has no node yet"
        where = f"on {self._table.names[row]}"
        if not info.matchable:
            used = ", ".join(sorted(owner.key for owner in info.owners.values()))
            return True, f"{where}: used up by {used} (allocateOnce)" if used else f"{where}: not available"
        if not self._matching.terms(pod).nodes.matches_row(self._table, row):
            return True, f"{where}: the pod does not select this node"
        if refusal := _refusal(self._matching.diagnose(pod, info, row)):
            return True, f"{where}: {refusal}"
        status = self._why_not(cycle, row, info)
        if status is not None:
            return True, f"{where}: {', '.join(status.reasons)}"
        return False, f"{where}: the pod may use it"


def _refusal(found: Diagnosis) -> str:
    if found.name_unmatched:
        return "the pod asks for another one by name"
    if found.unschedulable:
        return "it takes no new owners: it is unschedulable, or is being deleted"
    if found.taints:
        return f"the pod does not tolerate its taint {next(iter(found.taints))}"
    if found.affinity_unmatched:
        return "the pod's reservation-affinity does not select it"
    return "it does not have exactly what the pod requests" if found.not_exact else ""
