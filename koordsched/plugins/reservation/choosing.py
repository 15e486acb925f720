"""Which of the Reservations of a row a pod would use, and why it has no room there (reservation spec 3.5, 3.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from koordsched.cluster.pod import Pod
from koordsched.framework.interface import CycleState
from koordsched.framework.reservations import ReservedAllocation
from koordsched.framework.status import Code, Status
from koordsched.plugins.reservation.affinity import ReservationAffinity
from koordsched.plugins.reservation.fitting import (
    NO_PORTS,
    PREFIX,
    Fitting,
    port_conflict,
    shares_resources,
    utilization,
)
from koordsched.plugins.reservation.info import ReservationInfo
from koordsched.plugins.reservation.matched import MatchedReservations

_AS_IT_IS = nullcontext()

NONE_MEETS = "node(s) no reservation(s) to meet the requirements"


class Choosing:
    """`affinity_of`: what a pod says in its annotation reservation-affinity; `allocations`: the plugins that give out
    single things, such as CPUs."""

    def __init__(
        self,
        plugin: str,
        fitting: Fitting,
        affinity_of: Callable[[Pod], ReservationAffinity | None],
        allocations: Sequence[ReservedAllocation],
    ) -> None:
        """`plugin`: the name of ours."""
        self._plugin = plugin
        self._fitting = fitting
        self._affinity_of = affinity_of
        self._allocations = allocations

    def why_not(
        self,
        cycle: CycleState,
        pod: Pod,
        row: int,
        tried: Sequence[ReservationInfo],
        infos: Sequence[ReservationInfo],
        matched: MatchedReservations,
        *,
        required: bool,
    ) -> Status | None:
        """Why the pod has no room on a row with Reservations, None if it has; `tried`: those that may serve it."""
        affinity = self._affinity_of(pod)
        named = affinity.name if affinity is not None else ""
        by_node: dict[str, None] = {}
        by_reservation: list[str] = []
        refused: Status | None = None
        for info in tried:
            if not matched.required and not shares_resources(pod, info):
                continue
            if named and info.name != named:
                continue
            with self._as_used(row, info, matched):
                fit = self._fitting.into(pod, row, info, infos, detailed=bool(named))
            by_node.update(dict.fromkeys(fit.node))
            by_reservation.extend(fit.reservation)
            if not fit.ok:
                continue
            status = self._allocates(cycle, pod, row, info, infos, matched)
            if status is None:
                return None
            refused = refused or Status(status.code, (), status.plugin)
            by_reservation.extend(f"{PREFIX}{text}" for text in status.reasons)
        if required:
            texts = (*(f"Insufficient {name} by node" for name in sorted(by_node)), *by_reservation)
            plugin = refused.plugin if refused is not None and len(by_reservation) == len(texts) else self._plugin
            return Status(Code.UNSCHEDULABLE, texts or (NONE_MEETS,), plugin)
        missing = sorted(by_node) or self._fitting.on_node(pod, row, infos)
        if missing:
            return Status(Code.UNSCHEDULABLE, tuple(f"Insufficient {name} by node" for name in missing))
        return self._allocates(cycle, pod, row, None, infos, matched)

    @staticmethod
    def _as_used(row: int, info: ReservationInfo, matched: MatchedReservations) -> AbstractContextManager[None]:
        """Inside, it is used by all that use it as long as they stay."""
        if matched.stayers is None:
            return _AS_IT_IS
        return info.used_by(matched.owners_that_stay(row, info))

    def _allocates(
        self,
        cycle: CycleState,
        pod: Pod,
        row: int,
        info: ReservationInfo | None,
        infos: Sequence[ReservationInfo],
        matched: MatchedReservations,
    ) -> Status | None:
        """The refusal of the first plugin that could not give the pod what it asks for if it used the Reservation, or
        none (None). `infos`: all of the row that it may use."""
        if port_conflict(pod, infos, info):
            return Status(Code.UNSCHEDULABLE, (NO_PORTS,), self._plugin)
        if (
            matched.stayers is not None
            and (refusal := matched.stayers.refusal(row, matched.taken_with(info))) is not None
        ):
            return refusal
        asked = [plugin for plugin in self._allocations if plugin.concerns(pod.shape, row)]
        if not asked:
            return None
        reserved = matched.reserved(info) if info is not None else None
        if info is not None and reserved is None:
            return None
        with matched.alone(row, reserved):
            for plugin in asked:
                status = plugin.allocates_from(cycle, pod, row, reserved)
                if not status.ok:
                    return Status(status.code, status.reasons, plugin.name)
        return None

    def choose(
        self, cycle: CycleState, row: int, infos: Sequence[ReservationInfo], matched: MatchedReservations
    ) -> ReservationInfo | None:
        """The one that the pod of the cycle would use on a row; None: it goes there without."""
        affinity = self._affinity_of(cycle.pod)
        named = affinity.name if affinity is not None else ""
        fitting = [info for info in infos if self._serves(cycle, row, info, infos, matched, named)]
        if len(fitting) < 2:
            return fitting[0] if fitting else None
        ordered = [info for info in fitting if info.terms.order is not None]
        if ordered:
            return min(ordered, key=lambda info: (info.terms.order or 0, info.key))
        scores = self._scores_of(cycle, row, fitting, matched)
        return min(fitting, key=lambda info: (-scores[info.uid], info.key))

    def _serves(
        self,
        cycle: CycleState,
        row: int,
        info: ReservationInfo,
        infos: Sequence[ReservationInfo],
        matched: MatchedReservations,
        named: str,
    ) -> bool:
        """Whether the pod could use this one of the Reservations of a row: what `why_not` says, without the reasons."""
        pod = cycle.pod
        if (named and info.name != named) or not (matched.required or shares_resources(pod, info)):
            return False
        with self._as_used(row, info, matched):
            if (info.once and info.owners) or not self._fitting.fits(pod, row, info, infos):
                return False
        return self._allocates(cycle, pod, row, info, infos, matched) is None

    def _scores_of(
        self, cycle: CycleState, row: int, infos: Sequence[ReservationInfo], matched: MatchedReservations
    ) -> dict[str, int]:
        """By uid, the sum of what this plugin and those with allocations give each."""
        totals = {info.uid: utilization(cycle.pod, info) for info in infos}
        for plugin in self._allocations:
            raw: dict[str, int] = {}
            for info in infos:
                if (reserved := matched.reserved(info)) is not None:
                    with matched.alone(row, reserved):
                        raw[info.uid] = plugin.score_reserved(cycle, cycle.pod, row, reserved)
            highest = max(raw.values(), default=0)
            for uid, score in raw.items():
                totals[uid] += 100 * score // highest if highest else 0
        return totals
