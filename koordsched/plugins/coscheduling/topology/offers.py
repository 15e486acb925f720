"""How many members of a job have room on each node, one after the other (coscheduling spec 3.5, step 1).

All nodes are tried in lockstep: the first member is judged on every row, then it comes to the rows that accepted it,
the second member is judged on these, and so on. So the loop is over the members that a node takes, whatever the number
of nodes. Members that nothing tells apart share one cycle. Where a filter needs a what-if for every row (volumes), rows
are tried one by one, with the same results.

What plugins give out as single things (devices) is no sum: these plugins say themselves how many members a row serves
(`framework.serving`), except where members may use Reservations.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle
from koordsched.framework.interface import CycleState
from koordsched.framework.serving import ServesSeveral
from koordsched.framework.status import NO_NODE, PASS, Code, Codes
from koordsched.framework.verdicts import PreFiltered
from koordsched.plugins.coscheduling.topology.alike import Alike
from koordsched.plugins.coscheduling.topology.tree import Amounts
from koordsched.plugins.coscheduling.topology.trial import Added, Trial


@dataclass(slots=True, eq=False)
class Counted:
    """`offers`: int64[rows of the table], how many members in a row fit. `codes`: int32[rows], the reason why the next
    one does not, PASS where all fit and on rows that were not asked about. The numbers of reasons are valid as long as
    this object lives.
    """

    offers: Amounts
    codes: Codes
    _held: list[Any] = field(default_factory=list)

    def hold(self, what: Any) -> None:
        """Keeps what holds the numbers of reasons."""
        self._held.append(what)


class Offers:
    """Counts for one profile."""

    def __init__(self, handle: Handle, without: Container[str] = frozenset()) -> None:
        """`without`: PreFilter plugins that are not asked about members."""
        self._handle = handle
        self._without = without
        self._alike = Alike(handle, without)

    def count(self, pods: Sequence[Pod], rows: RowArray) -> Counted:
        """`pods`: the pending members in the order in which they are tried; `rows`: the candidates."""
        table = self._handle.cluster.table
        counted = Counted(np.zeros(table.size, dtype=np.int64), np.zeros(table.size, dtype=np.int32))
        alive = table.alive.data[rows]
        counted.codes[rows[~alive]] = NO_NODE
        left = rows[alive]
        job = frozenset(map(attrgetter("uid"), pods))
        added = Added()
        at = 0
        while at < len(pods) and len(left):
            at, left = self._run(pods, at, left, job, added, counted)
        return counted

    def _run(
        self, pods: Sequence[Pod], at: int, rows: RowArray, job: frozenset[str], added: Added, counted: Counted
    ) -> tuple[int, RowArray]:
        """Tries the members from `at` on that are alike; returns where others begin, and the rows that took all."""
        filtering, key = self._handle.filtering, self._alike.key(pods[at])
        cycle = CycleState(pods[at])
        pre = filtering.prepare(cycle, self._without)
        counted.hold(cycle)
        rows = self._candidates(pre, rows, counted)
        end = at
        if not len(rows):
            return end, rows
        before = counted.offers[rows]
        alike = [True]

        def is_alike(number: int) -> bool:
            """Whether there are more members of this kind to try than `number`."""
            if number and trial.alone:
                return False
            while len(alike) <= number and alike[-1]:
                beyond = at + len(alike)
                alike.append(beyond < len(pods) and self._alike.key(pods[beyond]) == key)
            return number < len(alike) and alike[number]

        with Trial(self._handle, cycle, rows, job, added) as trial:
            left = trial.together
            while len(left) and is_alike(end - at):
                left = _took(left, trial.judge(left, first=end == at), counted)
                if len(left):
                    trial.come(left)
                end += 1
            took_all: list[int] = []
            for row in trial.apart.tolist():
                number, code = trial.one_by_one(row, is_alike)
                counted.offers[row] += number
                counted.codes[row] = code
                if code == PASS:
                    took_all.append(row)
                    end = at + number
        left = np.sort(np.concatenate((left, np.array(took_all, dtype=np.intp))))
        left = self._served(cycle, added, rows, counted.offers[rows] - before, left, counted)
        added.add(pods[at], end - at)
        return end, left

    def _served(
        self, cycle: CycleState, added: Added, rows: RowArray, taken: Amounts, left: RowArray, counted: Counted
    ) -> RowArray:
        """Lowers what rows offer to what they can serve. `taken`: int64[rows], how many members like that of the cycle
        the filters let in; returns those of `left` that can serve all.
        """
        before = [(pod.shape, number) for pod, number in added.kinds]
        for plugin in self._handle.reserved_allocations:
            most = int(taken.max())
            if not most or not isinstance(plugin, ServesSeveral):
                continue
            numbers, codes = plugin.served(before, cycle.pod.shape, rows, most)
            short = np.flatnonzero(numbers < taken)
            if cycle.reservations is not None:
                usable = [bool(cycle.reservations.on(row)) for row in rows[short].tolist()]
                short = short[~np.array(usable, dtype=np.bool_)]
            counted.offers[rows[short]] -= taken[short] - numbers[short]
            counted.codes[rows[short]] = codes[short]
            taken = taken.copy()
            taken[short] = numbers[short]
            left = np.setdiff1d(left, rows[short])
        return left

    def _candidates(self, pre: PreFiltered, rows: RowArray, counted: Counted) -> RowArray:
        """Those that PreFilter left."""
        reasons, table = self._handle.reasons, self._handle.cluster.table
        if not pre.status.ok:
            held = reasons.hold(pre.status.plugin, pre.status.code, *pre.status.reasons)
            counted.hold(held)
            counted.codes[rows] = held.number
            return rows[:0]
        if pre.names is None:
            return rows
        named = np.array([table.row_of[name] for name in pre.names if name in table.row_of], dtype=np.intp)
        allowed = np.isin(rows, named)
        counted.codes[rows[~allowed]] = reasons.intern(
            "", Code.UNRESOLVABLE, f"node(s) didn't satisfy plugin(s) [{' '.join(pre.named_by)}]"
        )
        return rows[allowed]


def _took(rows: RowArray, codes: Codes, counted: Counted) -> RowArray:
    """Notes the verdicts; returns the rows that took the member."""
    passed = codes == PASS
    if passed.all():
        counted.offers[rows] += 1
        return rows
    counted.codes[rows] = codes
    rows = rows[passed]
    counted.offers[rows] += 1
    return rows
