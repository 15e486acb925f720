"""The dry run on many nodes at once.

Every row is a world of its own: in all of them all victims go, and in step k each row gets its k-th victim back and is
filtered again. That is the same as the dry run node by node (`dryrun`). The shape plugins read the live table, in which
room and host ports are stepped; what other filters count of the victims is stepped beside it (`framework.worlds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import Facet, RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.cluster.ports import shape_ports
from koordsched.framework.dryruns import Amounts, ChainDryRun, Tally
from koordsched.framework.filtering import Filtering
from koordsched.framework.interface import CycleState
from koordsched.framework.status import PASS, Codes
from koordsched.plugins.shared.preemption.holdings import WorldHoldings
from koordsched.plugins.shared.preemption.kinds import PodKinds
from koordsched.plugins.shared.preemption.victims import Mask, PotentialVictims

_STEPPED = Facet.RESOURCES | Facet.PORTS
_INDEPENDENT = Facet.LABELS | Facet.TAINTS | Facet.IMAGES | Facet.CONDITIONS | Facet.FEATURES | Facet.ANNOTATIONS
"""Facets that pods leave alone."""


class Outcome(NamedTuple):
    """`codes`: per row the code that refuses the pod even with all potential victims gone, or PASS.

    bool[depth, rows], in the order of the crew: `victims` do not come back; `no_room`: the node would not take the
    preemptor with them, whatever else speaks against them.
    """

    codes: Codes
    victims: Mask
    no_room: Mask


class Lockstep:
    """Dry runs on arrays of rows, for the pod of one cycle.

    `applies`: every filter that takes part can be asked about many worlds at once; otherwise there are none.
    `sets_aside`: not all rows may be asked about together, see `apart`.
    """

    def __init__(self, table: NodeTable, filtering: Filtering, cycle: CycleState) -> None:
        self._table = table
        self._filtering = filtering
        self._cycle = cycle
        self._node_filters = filtering.node_filters(cycle)
        self._chain = filtering.worlds(cycle, ())
        stepped = all(plugin.facets & ~(_STEPPED | _INDEPENDENT) == 0 for plugin in self._node_filters)
        self.applies = stepped and self._chain is not None
        self.sets_aside = self._chain is not None and bool(self._chain.aside)

    def apart(self, potential: PotentialVictims, kinds: PodKinds) -> Mask:
        """bool[rows]: where `on` must not be used, since pods may leave or have been promised room that are more than
        numbers to a filter.
        """
        chain = self._chain
        assert chain is not None, "applies"

        def leaves(tally: Tally) -> Mask:
            there: Mask = (kinds.tallied(tally)[potential.kinds] != 0).any(axis=0)
            return there

        apart = chain.apart(potential.rows, leaves)
        for i, others in self._promised(self._cycle.pod, potential.rows):
            apart[i] |= chain.sets_aside(others)
        return apart

    def on(self, potential: PotentialVictims, kinds: PodKinds, holdings: WorldHoldings | None = None) -> Outcome:
        """The dry run on each row of the crew. The pods nominated to a row are there, and also are not."""
        cycle = self._cycle
        promised = self._promised(cycle.pod, potential.rows)
        chain = self._chain
        if promised:
            chain = self._filtering.worlds(cycle, [other for _, others in promised for other in others])
        assert chain is not None, "applies"
        ports = any(plugin.facets & Facet.PORTS for plugin in self._node_filters)
        room = _Room(self._table, cycle.pod, potential, kinds, ports=ports)
        try:
            room.everybody_leaves()
            for i, others in promised:
                room.comes(i, others)
            worlds = _Stepping(chain, potential, kinds, promised)
            codes = worlds.codes()
            victims, no_room = _put_back(worlds, room, codes == PASS, holdings)
        finally:
            room.restore()
        return Outcome(codes, victims, no_room)

    def _promised(self, pod: Pod, rows: RowArray) -> list[tuple[int, list[Pod]]]:
        """(position, pods nominated there) of the rows promised to others."""
        at = np.flatnonzero(self._filtering.nomination_stamps(pod)[rows])
        nominated = [(i, self._filtering.nominated_on(int(rows[i]), pod)) for i in at.tolist()]
        return [(i, others) for i, others in nominated if others]


def _put_back(worlds: _Stepping, room: _Room, passing: Mask, holdings: WorldHoldings | None) -> tuple[Mask, Mask]:
    potential = worlds.potential
    victims: Mask = np.zeros(potential.kinds.shape, dtype=np.bool_)
    no_room: Mask = np.zeros_like(victims)
    for step in range(len(potential.kinds)):
        active = np.flatnonzero(passing & (potential.counts > step))
        if not len(active):
            break
        room.step(step, active, 1)
        refused = worlds.refuses(step, active)
        no_room[step, active] = refused
        goes = refused
        if holdings is not None:
            goes = refused | ~holdings.spare(step, active)
            holdings.put_back(step, active[~goes])
        away = active[goes]
        if len(away):
            room.step(step, away, -1)
            victims[step, away] = True
        worlds.keep(step, active[~goes])
    return victims, no_room


class _Stepping:
    """The verdicts on the rows of a crew, with what filters count of its pods as far as these are back."""

    def __init__(
        self,
        chain: ChainDryRun,
        potential: PotentialVictims,
        kinds: PodKinds,
        promised: Sequence[tuple[int, list[Pod]]],
    ) -> None:
        self.potential = potential
        self._chain = chain
        self._weights = [kinds.tallied(tally)[potential.kinds] for tally in chain.tallies]
        self._changes: list[Amounts] = [-weights.sum(axis=0) for weights in self._weights]
        # Whether the pod of a step makes a difference to anything but room.
        self._counts: Mask = np.zeros(potential.kinds.shape, dtype=np.bool_)
        for weights in self._weights:
            self._counts |= weights != 0
        self._is_promised: Mask = np.zeros(len(potential.rows), dtype=np.bool_)
        self._is_promised[[i for i, _ in promised]] = True
        self._promised = [np.zeros(len(potential.rows), dtype=np.int64) for _ in chain.tallies]
        for k, amounts in enumerate(chain.tallied([others for _, others in promised])):
            self._promised[k][[i for i, _ in promised]] = amounts

    def codes(self) -> Codes:
        """The verdict on every row now."""
        everywhere = np.arange(len(self.potential.rows))
        codes = self._chain.nodes(self.potential.rows)
        self._refuse(codes, everywhere, self._changes)
        return codes

    def refuses(self, step: int, active: RowArray) -> Mask:
        """Whether these rows, which passed without the pods of this step, are refused with them."""
        codes = self._chain.nodes(self.potential.rows[active], _STEPPED)
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
        together = [change + promised[at] for change, promised in zip(changes, self._promised, strict=True)]
        self._chain.refuse(codes, rows, together)
        again = np.flatnonzero(self._is_promised[at] & (codes == PASS))
        if len(again):
            alone = np.zeros(len(again), dtype=np.int32)
            self._chain.refuse(alone, rows[again], [change[again] for change in changes])
            codes[again] = alone


class _Room:
    """What the pods of a crew take of their nodes, in the live table."""

    def __init__(
        self, table: NodeTable, pod: Pod, potential: PotentialVictims, kinds: PodKinds, *, ports: bool
    ) -> None:
        self._table = table
        self._crew = potential
        self._examples = kinds.examples
        resources = [index for index, _ in pod.requests.amounts if index < len(table.requested)]
        self._resources = resources
        self._columns = [table.pods_count.data] + [table.requested[index].data for index in resources]
        self._weights = [(potential.kinds > 0).astype(np.int64)]
        self._weights += [kinds.amounts(index)[potential.kinds] for index in resources]
        self._before = [column[potential.rows] for column in self._columns]
        self._ports: npt.NDArray[np.bool_] | None = kinds.with_ports[potential.kinds] if ports else None
        self._ports_wanted = ports
        self._ports_done: list[tuple[int, Pod, int]] = []

    def everybody_leaves(self) -> None:
        """All pods of the crew are gone."""
        for column, weights in zip(self._columns, self._weights, strict=True):
            column[self._crew.rows] -= weights.sum(axis=0)
        if self._ports is not None:
            for step, i in np.argwhere(self._ports).tolist():
                self._change_ports(step, i, -1)

    def comes(self, i: int, pods: Sequence[Pod]) -> None:
        """Other pods appear on the row at position i."""
        row = self._crew.rows[i]
        for pod in pods:
            self._columns[0][row] += 1
            for column, index in zip(self._columns[1:], self._resources, strict=True):
                column[row] += pod.requests.get(index)
            if self._ports_wanted and shape_ports(pod.shape):
                self._take_ports(int(row), pod, 1)

    def step(self, step: int, at: RowArray, sign: int) -> None:
        """The pods of a step come back (1) or leave again (-1) at these positions."""
        rows = self._crew.rows[at]
        for column, weights in zip(self._columns, self._weights, strict=True):
            column[rows] += sign * weights[step, at]
        if self._ports is not None:
            for i in at[self._ports[step, at]].tolist():
                self._change_ports(step, i, sign)

    def _change_ports(self, step: int, i: int, sign: int) -> None:
        pod = self._examples[self._crew.kinds[step, i]]
        assert pod is not None, "a kind with ports is a pod"
        self._take_ports(int(self._crew.rows[i]), pod, sign)

    def _take_ports(self, row: int, pod: Pod, sign: int) -> None:
        self._table.ports.add(row, shape_ports(pod.shape), sign)
        self._ports_done.append((row, pod, sign))

    def restore(self) -> None:
        """Everything is as it was."""
        for column, before in zip(self._columns, self._before, strict=True):
            column[self._crew.rows] = before
        while self._ports_done:
            row, pod, sign = self._ports_done.pop()
            self._table.ports.add(row, shape_ports(pod.shape), -sign)
