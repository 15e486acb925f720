"""The dry run on many nodes at once.

Each row is a dry run of its own: in all of them all victims go, and in step k each row gets its k-th victim back and is
filtered again. That is the same as the dry run node by node (`dryrun`). The shape plugins read the live table, which is
stepped (`room`); what other filters count of the victims is stepped beside it (`framework.dryruns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from koordsched.cluster.accounting import ColumnAccountant
from koordsched.cluster.changelog import Facet, RowArray
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.dryruns import Amounts, ChainDryRun, Tally
from koordsched.framework.filtering import Filtering
from koordsched.framework.interface import CycleState
from koordsched.framework.status import PASS, Codes
from koordsched.plugins.shared.preemption.holdings import DryRunHoldings
from koordsched.plugins.shared.preemption.kinds import PodKinds
from koordsched.plugins.shared.preemption.room import Nominated, Room
from koordsched.plugins.shared.preemption.victims import Mask, PotentialVictims


class Outcome(NamedTuple):
    """`codes`: per row the code that refuses the pod even with all potential victims gone, or PASS.

    bool[depth, rows], in the order of the potential victims: `victims` do not come back; `no_room`: the preemptor would
    not fit on the node with them, whatever other reasons there are.
    """

    codes: Codes
    victims: Mask
    no_room: Mask


class Lockstep:
    """Dry runs on arrays of rows, for the pod of one cycle.

    `applies`: every filter that takes part has dry runs; otherwise none are made. That is so if
    shape plugins read nothing that pods change but room, host ports and the columns of `ColumnAccountant`s whose sums
    decide.
    `any_one_by_one`: some rows may need a what-if each, see `apart`.
    """

    def __init__(self, cluster: ClusterState, filtering: Filtering, cycle: CycleState) -> None:
        self._table = cluster.table
        self._filtering = filtering
        self._cycle = cycle
        self._chain = filtering.chain_dry_run(cycle, ())
        self._read = 0
        for plugin in filtering.node_filters(cycle):
            self._read |= plugin.facets
        accountants = [accountant for accountant in cluster.accountants if accountant.facets & self._read]
        self._accountants = [each for each in accountants if isinstance(each, ColumnAccountant)]
        self.applies = (
            self._chain is not None
            and len(self._accountants) == len(accountants)
            and all(each.sums_decide(cycle.pod.shape) for each in self._accountants)
        )
        self.any_one_by_one = self._chain is not None and bool(self._chain.one_by_one)

    def apart(self, potential: PotentialVictims, kinds: PodKinds) -> Mask:
        """bool[rows]: where `on` must not be used, since pods that may leave or are nominated matter to a filter by
        more than a tally.
        """
        chain = self._chain
        assert chain is not None, "applies"

        def leaves(tally: Tally) -> Mask:
            there: Mask = (kinds.tallied(tally)[potential.kinds] != 0).any(axis=0)
            return there

        apart = chain.apart(potential.rows, leaves)
        for i, others in self._nominated(self._cycle.pod, potential.rows):
            apart[i] |= chain.any_one_by_one(others)
        return apart

    def on(self, potential: PotentialVictims, kinds: PodKinds, holdings: DryRunHoldings | None = None) -> Outcome:
        """The dry run on each row, with the pods nominated to it and without them."""
        cycle = self._cycle
        nominated = self._nominated(cycle.pod, potential.rows)
        chain = self._chain
        if nominated:
            chain = self._filtering.chain_dry_run(cycle, [other for _, others in nominated for other in others])
        assert chain is not None, "applies"
        ports = bool(self._read & Facet.PORTS)
        room = Room(self._table, cycle.pod, potential, kinds, nominated, self._accountants, ports=ports)
        try:
            room.enter()
            stepping = _Stepping(chain, potential, kinds, nominated, room.facets)
            codes = stepping.codes()
            victims, no_room = _put_back(stepping, room, codes == PASS, holdings)
        finally:
            room.restore()
        return Outcome(codes, victims, no_room)

    def _nominated(self, pod: Pod, rows: RowArray) -> Nominated:
        """(position, pods nominated there) of the rows that others are nominated to."""
        at = np.flatnonzero(self._filtering.nomination_stamps(pod)[rows])
        nominated = [(i, self._filtering.nominated_on(int(rows[i]), pod)) for i in at.tolist()]
        return [(i, others) for i, others in nominated if others]


def _put_back(stepping: _Stepping, room: Room, passing: Mask, holdings: DryRunHoldings | None) -> tuple[Mask, Mask]:
    potential = stepping.potential
    victims: Mask = np.zeros(potential.kinds.shape, dtype=np.bool_)
    no_room: Mask = np.zeros_like(victims)
    for step in range(len(potential.kinds)):
        active = np.flatnonzero(passing & (potential.counts > step))
        if not len(active):
            break
        room.step(step, active, 1)
        refused = stepping.refuses(step, active)
        no_room[step, active] = refused
        goes = refused
        if holdings is not None:
            goes = refused | ~holdings.spare(step, active)
            holdings.put_back(step, active[~goes])
        away = active[goes]
        if len(away):
            room.step(step, away, -1)
            victims[step, away] = True
        stepping.keep(step, active[~goes])
    return victims, no_room


class _Stepping:
    """The verdicts on the rows, with what filters count of the potential victims as far as these are back."""

    def __init__(
        self,
        chain: ChainDryRun,
        potential: PotentialVictims,
        kinds: PodKinds,
        nominated: Nominated,
        facets: int,
    ) -> None:
        """`facets`: what the pods of a step change."""
        self.potential = potential
        self._facets = facets
        self._chain = chain
        self._weights = [kinds.tallied(tally)[potential.kinds] for tally in chain.tallies]
        self._changes: list[Amounts] = [-weights.sum(axis=0) for weights in self._weights]
        # Whether the pod of a step makes a difference to anything but room.
        self._counts: Mask = np.zeros(potential.kinds.shape, dtype=np.bool_)
        for weights in self._weights:
            self._counts |= weights != 0
        self._is_nominated: Mask = np.zeros(len(potential.rows), dtype=np.bool_)
        self._is_nominated[[i for i, _ in nominated]] = True
        self._nominated = [np.zeros(len(potential.rows), dtype=np.int64) for _ in chain.tallies]
        for k, amounts in enumerate(chain.tallied([others for _, others in nominated])):
            self._nominated[k][[i for i, _ in nominated]] = amounts

    def codes(self) -> Codes:
        """The verdict on every row now."""
        everywhere = np.arange(len(self.potential.rows))
        codes = self._chain.nodes(self.potential.rows)
        self._refuse(codes, everywhere, self._changes)
        return codes

    def refuses(self, step: int, active: RowArray) -> Mask:
        """Whether these rows, which passed without the pods of this step, are refused with them."""
        codes = self._chain.nodes(self.potential.rows[active], self._facets)
        refused: Mask = codes != PASS
        asked = np.flatnonzero(~refused & self._counts[step, active])
        if len(asked):
            at = active[asked]
            rest = np.zeros(len(at), dtype=np.int32)
            back = [change[at] + w[step, at] for change, w in zip(self._changes, self._weights, strict=True)]
            self._refuse(rest, at, back)
            refused[asked] = rest != PASS
        return refused

    def keep(self, step: int, at: RowArray) -> None:
        """The pods of this step are back."""
        for change, weights in zip(self._changes, self._weights, strict=True):
            change[at] += weights[step, at]

    def _refuse(self, codes: Codes, at: RowArray, changes: Sequence[Amounts]) -> None:
        """Adds what all but the shape plugins say: a row must pass with the pods nominated to it, and without them."""
        rows = self.potential.rows[at]
        together = [change + nominated[at] for change, nominated in zip(changes, self._nominated, strict=True)]
        self._chain.refuse(codes, rows, together)
        again = np.flatnonzero(self._is_nominated[at] & (codes == PASS))
        if len(again):
            alone = np.zeros(len(again), dtype=np.int32)
            self._chain.refuse(alone, rows[again], [change[again] for change in changes])
            codes[again] = alone
