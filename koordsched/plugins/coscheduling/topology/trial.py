"""Members of one kind, tried on rows to which other members of the job have come already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType

import numpy as np
import numpy.typing as npt

from koordsched.cluster.accounting import Amount, ColumnAccountant
from koordsched.cluster.changelog import Facet, RowArray
from koordsched.cluster.columns import ABSENT
from koordsched.cluster.nodetable import ALL_FACETS
from koordsched.cluster.pod import Pod
from koordsched.framework.dryruns import Amounts, ChainDryRun
from koordsched.framework.handle import Handle
from koordsched.framework.interface import CycleState, PreFilter
from koordsched.framework.status import PASS, Code, Codes, Status
from koordsched.plugins.coscheduling.topology.room import Room


class Added:
    """The members that came to all rows that are left: one of each kind, and how many, in order."""

    def __init__(self) -> None:
        self.kinds: list[tuple[Pod, int]] = []

    def add(self, pod: Pod, number: int) -> None:
        """So many members like this one came after the others."""
        if number:
            self.kinds.append((pod, number))


class Trial:
    """A context: inside, the table reads as the pod of the cycle has it read, with what came before.

    `together`: the rows that are judged in lockstep; `apart`: those that take a what-if each. `alone`: once a member of
    this kind has come, other filters take part, so the next one takes a trial of its own.
    """

    def __init__(self, handle: Handle, cycle: CycleState, rows: RowArray, job: frozenset[str], added: Added) -> None:
        """`cycle`: of one of the members, prepared. `job`: uids of the members, whose nominations do not count.

        `rows` are in ascending order.
        """
        self._handle = handle
        self._cycle = cycle
        self._pod = cycle.pod
        self._job = job
        self._added = added
        self._contexts = ExitStack()
        self._chain: ChainDryRun | None = None
        self.alone = False
        self.together = rows
        self.apart = rows[:0]

    def __enter__(self) -> Trial:
        filtering = self._handle.filtering
        accountants = self._accountants()
        self._room = room = Room(self._handle.cluster.table, self._pod, accountants or ())
        # Amounts before anything else, for columns may be widened.
        self._amounts = room.amounts(self._pod)
        before = [(room.amounts(pod), number) for pod, number in self._added.kinds]
        nominated = {row: others for row in self._nominated_rows() if (others := self._nominated_on(row))}
        of_nominated = [(row, other, room.amounts(other)) for row, others in nominated.items() for other in others]
        with ExitStack() as contexts:
            contexts.enter_context(filtering.overlaid(self._cycle))
            # A what-if, though nothing is added through it: no plugin may keep what it finds out about these rows.
            contexts.enter_context(self._handle.cluster.what_if())
            self._wake()
            if accountants is not None:
                coming = [pod for pod, _ in self._added.kinds]
                coming += [self._pod, *(other for _, other, _ in of_nominated)]
                self._chain = filtering.chain_dry_run(self._cycle, coming)
            self._part(nominated)
            contexts.callback(room.restore)
            self._load(before, [each for each in of_nominated if each[0] not in self._apart_rows])
            self._tally(nominated)
            self._contexts = contexts.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._contexts.close()

    # --- what is known before the first verdict --------------------------------------------------------

    def _accountants(self) -> list[ColumnAccountant] | None:
        """Those whose columns the filters read; None if these read more of pods than sums."""
        read = 0
        for plugin in self._handle.filtering.node_filters(self._cycle):
            read |= plugin.facets
        concerned = [each for each in self._handle.cluster.accountants if each.facets & read]
        found = [each for each in concerned if isinstance(each, ColumnAccountant)]
        self._facets: int = Facet.RESOURCES
        for accountant in found:
            self._facets |= accountant.facets
        decided = len(found) == len(concerned) and all(each.sums_decide(self._pod.shape) for each in found)
        return found if decided else None

    def _wake(self) -> None:
        """Filters that skip the pod as things are may have something against it once members are on its node."""
        asleep = self._handle.filtering.asleep(self._cycle)
        if not asleep:
            return
        there = [pod for pod, _ in self._added.kinds]
        rows = self._rows_of_all_keys()
        woken = self._minding(asleep, rows, there) if there else frozenset()
        self._cycle.skipped = self._cycle.skipped - woken
        left = [plugin for plugin in asleep if plugin.name not in woken]
        self.alone = bool(self._minding(left, rows, [*there, self._pod]))

    def _minding(self, plugins: Sequence[PreFilter], rows: Sequence[int], there: Sequence[Pod]) -> frozenset[str]:
        """The names of those that do not skip the pod if these members are on one of the rows."""
        found: set[str] = set()
        for row in rows if plugins else ():
            with self._handle.cluster.what_if(add=[(row, other) for other in there]):
                for plugin in plugins:
                    answer = plugin.pre_filter(CycleState(self._pod), self._pod)
                    if not isinstance(answer, Status) or answer.code is not Code.SKIP:
                        found.add(plugin.name)
        return frozenset(found)

    def _rows_of_all_keys(self) -> list[int]:
        """A few of the rows, which have all label keys among them that there are on any: where pods count may depend
        on the keys of a node, but not on its values.
        """
        table, rows = self._handle.cluster.table, self.together
        found: dict[int, None] = {int(rows[0]): None}
        for key in table.label_keys:
            there = table.label_column(key).ids.data[rows] != ABSENT
            first = int(there.argmax())
            if there[first] and not any(table.label_column(key).ids.data[row] != ABSENT for row in found):
                found[int(rows[first])] = None
        return list(found)

    def _nominated_rows(self) -> list[int]:
        stamps = self._handle.filtering.nomination_stamps(self._pod)
        found: list[int] = self.together[np.flatnonzero(stamps[self.together])].tolist()
        return found

    def _nominated_on(self, row: int) -> list[Pod]:
        """The pods nominated to a row that are not of the job."""
        others = self._handle.filtering.nominated_on(row, self._pod)
        return [other for other in others if other.uid not in self._job]

    def _part(self, nominated: dict[int, list[Pod]]) -> None:
        chain, rows = self._chain, self.together
        members = [pod for pod, _ in self._added.kinds]
        if chain is None or chain.any_one_by_one([*members, self._pod]):
            self.together, self.apart = rows[:0], rows
        elif chain.one_by_one:
            apart = [row for row, others in nominated.items() if chain.any_one_by_one(others)]
            is_apart = np.isin(rows, np.array(apart, dtype=np.intp))
            self.together, self.apart = rows[~is_apart], rows[is_apart]
        self._apart_rows = frozenset(self.apart.tolist())

    def _load(
        self, before: Sequence[tuple[Sequence[Amount], int]], nominated: Sequence[tuple[int, Pod, Sequence[Amount]]]
    ) -> None:
        """The pods nominated to rows, and the members that came before, are there."""
        room, rows = self._room, self.together
        self._saved = bool(before)
        if nominated:
            room.save(np.array(sorted({row for row, _, _ in nominated}), dtype=np.intp))
        for row, other, amounts in nominated:
            room.add(np.array([row], dtype=np.intp), amounts)
            room.add_ports(row, other)
        if before:
            room.save(rows)
            for amounts, number in before:
                room.add(rows, amounts, number)
        for pod, _ in self._added.kinds:
            room.note_ports(pod)

    def _tally(self, nominated: dict[int, list[Pod]]) -> None:
        """What filters count of these pods: `_totals` of members on each row, `_beside` of nominated pods per row."""
        tallies = self._chain.tallies if self._chain is not None else ()
        self._filters = bool(self._handle.filtering.pod_filters(self._cycle))
        self._own = [tally.of(self._pod) for tally in tallies]
        self._totals = [sum(tally.of(pod) * number for pod, number in self._added.kinds) for tally in tallies]
        self._beside: list[Amounts] = [np.zeros(len(self.together), dtype=np.int64) for _ in tallies]
        self._is_nominated: npt.NDArray[np.bool_] = np.zeros(len(self.together), dtype=np.bool_)
        some = [(row, others) for row, others in nominated.items() if row not in self._apart_rows]
        if some and self._chain is not None:
            at = np.searchsorted(self.together, [row for row, _ in some])
            self._is_nominated[at] = True
            for amounts, sums in zip(self._beside, self._chain.tallied([others for _, others in some]), strict=True):
                amounts[at] = sums

    # --- in lockstep -----------------------------------------------------------------------------------

    def judge(self, rows: RowArray, *, first: bool) -> Codes:
        """The verdict on the next member on each of the rows, which all took those before it.

        `first`: it is the first of its kind. Of later ones the shape plugins are asked that read what pods change.
        """
        chain = self._chain
        assert chain is not None, "rows are together"
        facets = ALL_FACETS if first else self._facets
        if self._room.ports_clash():
            self._room.show_ports(rows)
            facets |= Facet.PORTS
        codes = chain.nodes(rows, facets)
        if not self._filters:
            return codes
        at = np.searchsorted(self.together, rows)
        own = [np.full(len(rows), total, dtype=np.int64) for total in self._totals]
        chain.refuse(codes, rows, [mine + beside[at] for mine, beside in zip(own, self._beside, strict=True)])
        again = np.flatnonzero(self._is_nominated[at] & (codes == PASS))
        if len(again):
            # Where others are nominated, the member has to fit without them, too: shape plugins only mind them more.
            alone = np.zeros(len(again), dtype=np.int32)
            chain.refuse(alone, rows[again], [amounts[again] for amounts in own])
            codes[again] = alone
        return codes

    def come(self, rows: RowArray) -> None:
        """A member of this kind has come to each of these rows, the only ones that are judged from now on."""
        if not self._saved:
            self._room.save(rows)
            self._saved = True
        self._room.add(rows, self._amounts)
        self._room.note_ports(self._pod)
        self._totals = [total + own for total, own in zip(self._totals, self._own, strict=True)]

    # --- one by one ------------------------------------------------------------------------------------

    def one_by_one(self, row: int, is_alike: Callable[[int], bool]) -> tuple[int, int]:
        """(how many members of this kind fit on a row that is apart, the reason why not more or PASS).

        `is_alike(k)`: whether there are more than k members of this kind.
        """
        filtering, cycle, pod = self._handle.filtering, self._cycle, self._pod
        filters = filtering.pod_filters(cycle)
        there: list[Pod] = []
        nominated = self._nominated_on(row)
        number, code = 0, PASS
        with self._handle.cluster.what_if() as hypothesis:

            def come(other: Pod) -> None:
                hypothesis.add(other, row)
                for plugin in filters:
                    plugin.add_pod(cycle, pod, other, row)
                there.append(other)

            try:
                for member, count in self._added.kinds:
                    for _ in range(count):
                        come(member)
                while code == PASS and is_alike(number):
                    code = self._with(row, nominated) if nominated else PASS
                    if code == PASS:
                        code = int(filtering.on_rows(cycle, np.array([row], dtype=np.intp))[0])
                    if code == PASS:
                        number += 1
                        come(pod)
            finally:
                for other in reversed(there):
                    for plugin in filters:
                        plugin.remove_pod(cycle, pod, other, row)
        return number, code

    def _with(self, row: int, nominated: list[Pod]) -> int:
        """The verdict on a row as if these pods were there as well."""
        filtering, cycle = self._handle.filtering, self._cycle
        filters = filtering.pod_filters(cycle)
        with self._handle.cluster.what_if(add=[(row, other) for other in nominated]):
            for plugin in filters:
                for other in nominated:
                    plugin.add_pod(cycle, self._pod, other, row)
            try:
                return int(filtering.on_rows(cycle, np.array([row], dtype=np.intp))[0])
            finally:
                for plugin in filters:
                    for other in nominated:
                        plugin.remove_pod(cycle, self._pod, other, row)
