"""The verdict on nodes: whether the claims of a pod are, or can be, allocated there (dra spec 3.5)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from koordsched.api.resource import ResourceClaim
from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Clock
from koordsched.framework.status import PASS, Code, Codes, ReasonTable
from koordsched.plugins.dynamicresources.allocatable import NodeAllocatable, TakingFailed
from koordsched.plugins.dynamicresources.allocatable.filtering import Asked, Takings
from koordsched.plugins.dynamicresources.books import DeviceBooks
from koordsched.plugins.dynamicresources.conditions import has_conditions, is_usable
from koordsched.plugins.dynamicresources.cyclestate import DeviceCycle
from koordsched.plugins.dynamicresources.extended import ServedResources, SpecialRequests
from koordsched.plugins.dynamicresources.extended.claim import CANNOT_FIT, CANNOT_SCHEDULE, requesting
from koordsched.plugins.dynamicresources.structured import (
    AllocationError,
    Deadline,
    Demand,
    InvalidPools,
    Outcome,
    SearchExpired,
    Verdicts,
)
from koordsched.plugins.dynamicresources.structured.footprint import UNMEASURED

CANNOT_ALLOCATE = "cannot allocate all claims"
INVALID_POOLS = "invalid resource pools were encountered"
UNAVAILABLE = "resourceclaim not available on the node"
TIMED_OUT = "timed out trying to allocate devices"

TOTAL = 2.0
"""Seconds that the searches of one attempt may take together: meanwhile neither watches nor leases have their turn."""


class DeviceFilter:
    """Judges rows. `timeout`: seconds that the search on one node may take, 0 for no limit; `binding_timeout`: how long
    devices may take to become ready, None if there are no binding conditions; `lenient`: devices and pools that would
    end the attempt with an error are passed over; `best_fit`: small devices are tried first.
    """

    def __init__(
        self,
        plugin: str,
        books: DeviceBooks,
        served: ServedResources | None,
        reasons: ReasonTable,
        clock: Clock,
        timeout: float,
        binding_timeout: float | None,
        *,
        lenient: bool = False,
        best_fit: bool = False,
    ) -> None:
        self._lenient = lenient
        self._best_fit = best_fit
        self._plugin = plugin
        self._books = books
        self._served = served
        self._reasons = reasons
        self._clock = clock
        self._timeout = timeout
        self._binding_timeout = binding_timeout
        none, invalid, unavailable, expired, leftover, unfit = (
            reasons.intern(plugin, Code.UNRESOLVABLE, text)
            for text in (CANNOT_ALLOCATE, INVALID_POOLS, UNAVAILABLE, TIMED_OUT, CANNOT_SCHEDULE, CANNOT_FIT)
        )
        self._unavailable = unavailable
        self._leftover = leftover
        self._unfit = unfit
        self._expired = expired
        self._code_of = np.zeros(max(Outcome) + 1, dtype=np.int32)
        self._code_of[[Outcome.NONE, Outcome.INVALID, Outcome.EXPIRED]] = (none, invalid, expired)

    def verdicts(self, state: DeviceCycle, pod: Pod, table: NodeTable, rows: RowArray) -> Codes | None:
        """A reason per row, PASS where all claims can be had; None if that is so on all rows."""
        if state.leftover:
            return np.full(len(rows), self._leftover, dtype=np.int32)
        codes = np.zeros(len(rows), dtype=np.int32)
        deadline = self.deadline()
        if self._books.allocatable is not None:
            self._search_with_allocatable(self._books.allocatable, state, pod, table, rows, codes, deadline)
        else:
            for at, demand in self._demands(state, pod, table, rows, codes):
                if demand is not None:
                    codes[at] = self._search(state, demand, table, rows[at], deadline)[0]
        self._check_allocated(state, table, rows, codes)
        return codes if codes.any() else None

    def demand_on(self, state: DeviceCycle, pod: Pod, row: int) -> tuple[tuple[ResourceClaim, ...], Demand | None]:
        """The claims to be allocated on one row, and their demand; None if there are none."""
        special = state.requests = self.special_on(state, pod, row)
        claims = self._claims(state, special)
        return claims, self._demand(state, special) if claims else None

    def special_on(self, state: DeviceCycle, pod: Pod, row: int) -> SpecialRequests | None:
        """What the special claim requests on one row; None without one, or if it requests nothing there."""
        if state.special is None or self._served is None:
            return None
        return self._served.on_row(pod.shape, row) or None

    def taken_on(self, state: DeviceCycle, pod: Pod, row: int) -> str:
        """What the claims would take of a row where devices can be had, in words; "" if nothing, or if it does not
        count.
        """
        allocatable = self._books.allocatable
        if allocatable is None:
            return ""
        try:
            taken = [*allocatable.takings_of_allocated(state)]
        except TakingFailed:
            return ""
        _, demand = self.demand_on(state, pod, row)
        if demand is not None:
            found = self._books.allocator.verdicts(demand, np.array([row], dtype=np.intp), self.deadline())
            footprints = found.footprints[found.taken[0]] if found.taken is not None else ()
            if found.outcomes.any() or UNMEASURED in footprints:
                return ""
            if footprints:
                taken += zip((claim.metadata.name for claim in demand.claims), footprints, strict=True)
        return allocatable.in_words(taken, pod)

    def used_by_others(self, state: DeviceCycle, pod: Pod, row: int) -> ResourceClaim | None:
        """A claim that takes something of the row, and that another pod there has; None if there is none."""
        allocatable = self._books.allocatable
        return allocatable.used_by_others(state, pod, row) if allocatable is not None else None

    def deadline(self) -> Deadline:
        """For the searches that begin now."""
        return Deadline(self._clock.monotonic, self._timeout, TOTAL if self._timeout else 0)

    # --- demands -------------------------------------------------------------------------------------

    def _demands(
        self, state: DeviceCycle, pod: Pod, table: NodeTable, rows: RowArray, codes: Codes
    ) -> Iterator[tuple[RowArray, Demand | None]]:
        """(positions in the rows, what the pod demands there); refuses the rows that have nothing of a resource."""
        everywhere = np.arange(len(rows))
        if state.special is None or self._served is None:
            if state.open:
                yield everywhere, self._demand(state, None)
            return
        split = self._served.split(pod.shape, rows)
        fit = np.ones(len(rows), dtype=np.bool_)
        if split.unfit is not None:
            codes[split.unfit] = self._unfit
            fit = ~split.unfit
        for number, special in enumerate(split.groups):
            at = np.flatnonzero((split.group_of == number) & fit)
            if len(at) and self._claims(state, special or None):
                yield at, self._demand(state, special or None)

    @staticmethod
    def _claims(state: DeviceCycle, special: SpecialRequests | None) -> tuple[ResourceClaim, ...]:
        """The claims to be allocated where these are the requests for extended resources, which come last."""
        if special is None or state.special is None:
            return state.open
        return (*state.open, requesting(state.special, special))

    def _demand(self, state: DeviceCycle, special: SpecialRequests | None) -> Demand:
        demand = state.demands.get(special)
        if demand is None:
            claims = self._claims(state, special)
            demand = self._books.allocator.demand(
                claims, self._books.device_class, lenient=self._lenient, best_fit=self._best_fit
            )
            state.demands[special] = demand
        return demand

    # --- what devices take of their nodes --------------------------------------------------------------

    def _search_with_allocatable(
        self,
        allocatable: NodeAllocatable,
        state: DeviceCycle,
        pod: Pod,
        table: NodeTable,
        rows: RowArray,
        codes: Codes,
        deadline: Deadline,
    ) -> None:
        """The verdicts where what devices take of nodes counts: rows are grouped by what they would take there."""
        asked = Asked(self._plugin, self._reasons, state, pod, table)
        groups = list(self._demands(state, pod, table, rows, codes))
        allocatable.refuse_shared(asked, rows, codes)
        try:
            taken = allocatable.takings_of_allocated(state)
        except TakingFailed as failure:
            state.reason = self._reasons.hold(self._plugin, Code.ERROR, str(failure))
            codes[codes == PASS] = state.reason.number
            return

        def judge(at: RowArray, more: Takings) -> None:
            verdicts = allocatable.judge(asked, rows[at], [*taken, *more])
            if verdicts is not None:
                codes[at] = verdicts

        claimed_for = np.zeros(len(rows), dtype=np.bool_)
        for everywhere, demand in groups:
            at = everywhere[codes[everywhere] == PASS]
            if demand is None or not len(at):
                continue
            claimed_for[at] = True
            codes[at], found = self._search(state, demand, table, rows[at], deadline)
            fits = codes[at] == PASS
            if found.taken is None or not fits.any():
                continue
            for number in np.unique(found.taken[fits]).tolist():
                own = at[fits & (found.taken == number)]
                footprints = found.footprints[number]
                if UNMEASURED in footprints:
                    codes[own] = self._error(state, demand, table, int(rows[own[0]]), Outcome.ERROR)
                else:
                    names = (claim.metadata.name for claim in demand.claims)
                    judge(own, list(zip(names, footprints, strict=True)))
        rest = np.flatnonzero(~claimed_for & (codes == PASS))
        if len(rest) and taken:
            judge(rest, ())

    # --- searches ------------------------------------------------------------------------------------

    def _search(
        self, state: DeviceCycle, demand: Demand, table: NodeTable, rows: RowArray, deadline: Deadline
    ) -> tuple[Codes, Verdicts]:
        found = self._books.allocator.verdicts(demand, rows, deadline)
        codes: Codes = self._code_of[found.outcomes]
        if not found.outcomes.any() and not found.scores.any():
            return codes, found
        failed = np.flatnonzero(found.outcomes == Outcome.ERROR)
        if not len(failed) and not (found.outcomes == Outcome.FITS).any():
            # Where no node is known to do, it is not known either that none does.
            failed = np.flatnonzero(found.outcomes == Outcome.EXPIRED)
        if len(failed):
            codes[failed] = self._error(state, demand, table, int(rows[failed[0]]), found.outcomes[failed[0]])
        if found.scores.any():
            if state.scores is None or len(state.scores) != table.size:
                state.scores = np.zeros(table.size, dtype=np.int64)
            state.scores[rows] = found.scores + state.shared_score
        return codes, found

    def _error(self, state: DeviceCycle, demand: Demand, table: NodeTable, row: int, outcome: int) -> int:
        """The number of the Error with the text of one row, which ends the attempt."""
        text = f"node {table.names[row]}: {TIMED_OUT}"
        if outcome == Outcome.ERROR:
            try:
                found = self._books.allocator.allocate(demand, row, self.deadline())
                if found is not None and self._books.allocatable is not None:
                    self._books.allocatable.check(demand.claims, found.results)
            except (AllocationError, TakingFailed) as error:
                text = str(error)
            except (InvalidPools, SearchExpired):
                pass
        state.reason = self._reasons.hold(self._plugin, Code.ERROR, text)
        return state.reason.number

    # --- allocated claims ------------------------------------------------------------------------------

    def _check_allocated(self, state: DeviceCycle, table: NodeTable, rows: RowArray, codes: Codes) -> None:
        """Refuses rows where a claim is out of reach, or will not be ready; failed searches come first."""
        if not state.allocated:
            return
        passing = codes == PASS
        for place, claim, nodes in state.allocated:
            if not self.is_usable_now(claim):
                lacking = passing
            elif nodes is not None:
                lacking = passing & ~nodes.mask(table, rows)
            else:
                continue
            if lacking.any():
                state.unavailable.add(place)
                codes[lacking] = self._unavailable

    def is_usable_now(self, claim: ResourceClaim) -> bool:
        """Whether the devices of an allocated claim are ready, or may still become so."""
        if self._binding_timeout is None or not has_conditions(claim):
            return True
        return is_usable(claim, self._binding_timeout, self._clock.wall())
