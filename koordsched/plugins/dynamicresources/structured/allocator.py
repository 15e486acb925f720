"""The allocator: which nodes can serve the claims of a pod, and which devices these get there (dra spec 3.6)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from koordsched.api.resource import AllocationResult, DeviceClass, ResourceClaim
from koordsched.framework.keyed import grouped
from koordsched.plugins.dynamicresources.structured.failures import (
    UNLIMITED,
    AllocationError,
    Deadline,
    InvalidPools,
    SearchExpired,
)
from koordsched.plugins.dynamicresources.structured.features import Features
from koordsched.plugins.dynamicresources.structured.ground import Ground
from koordsched.plugins.dynamicresources.structured.plans import Plan, Planner
from koordsched.plugins.dynamicresources.structured.pools import Condition
from koordsched.plugins.dynamicresources.structured.reasons import RequestReasons, reasons_of
from koordsched.plugins.dynamicresources.structured.requests import MOST_DEVICES, ClassOf, Demand, Prepared
from koordsched.plugins.dynamicresources.structured.results import Pick, ShareId, footprints_of, result_of
from koordsched.plugins.dynamicresources.structured.search import (
    ConstraintViolated,
    Search,
    SelectorFailed,
    Solution,
)
from koordsched.plugins.dynamicresources.structured.selectors import Expressions
from koordsched.plugins.dynamicresources.structured.sliceindex import NodeEntry, SliceIndex
from koordsched.plugins.dynamicresources.structured.slices import PooledDevice
from koordsched.plugins.dynamicresources.structured.verdicts import Answer, AnswerKey, Answers, Outcome, Verdicts

BUDGET = 64 << 20
"""Bytes that prepared demands and their answers may take, the latest not counted."""

_DEMAND_BYTES = 8 << 10
_BYTES_PER_BYTE = 6
"""Of a demand, for each byte of what its claims ask for."""

_Rows = npt.NDArray[np.intp]


class Allocation(NamedTuple):
    """What the claims of a demand get, in order, and the raw score of the node."""

    results: tuple[AllocationResult, ...]
    score: int


class _Known:
    """A prepared demand with all that was found out for it."""

    __slots__ = ("_own_bytes", "answers", "nbytes", "planner", "prepared")

    def __init__(self, prepared: Prepared, planner: Planner, features: Features, written: int = 0) -> None:
        """`written`: bytes of what the claims ask for."""
        self.prepared = prepared
        self.planner = planner
        self.answers = Answers(with_footprints=features.node_allocatable)
        self._own_bytes = self.nbytes = _DEMAND_BYTES + _BYTES_PER_BYTE * written

    def resize(self) -> int:
        """What it takes more than before."""
        before = self.nbytes
        self.nbytes = self._own_bytes + self.answers.nbytes + self.planner.nbytes
        return self.nbytes - before


class Allocator:
    """Answers demands from the slices and nodes of an index. `share_id` makes the id of a share."""

    def __init__(
        self, index: SliceIndex, expressions: Expressions, features: Features, share_id: ShareId, budget: int = BUDGET
    ) -> None:
        self._index = index
        self._expressions = expressions
        self._features = features
        self._share_id = share_id
        self._budget = budget
        self._bytes = 0
        self._known: OrderedDict[object, _Known] = OrderedDict()
        self._keys: dict[Prepared, object] = {}
        self._classes: dict[str, tuple[DeviceClass, bytes]] = {}

    # --- demands -----------------------------------------------------------------------------------------

    def demand(
        self, claims: Sequence[ResourceClaim], class_of: ClassOf, *, lenient: bool = False, best_fit: bool = False
    ) -> Demand:
        """The demand of a pod with these unallocated claims, in pod order. `lenient`: devices and pools that would end
        the attempt with an error are passed over. `best_fit`: small devices first, those that others miss least.
        """
        texts = self._identity_of(claims, class_of)
        key = (texts, lenient, best_fit)
        known = self._known.get(key)
        if known is None:
            prepared = Prepared(claims, class_of, self._features, lenient=lenient, best_fit=best_fit)
            written = sum(len(text) for text, _ in texts)
            known = _Known(prepared, Planner(prepared, self._expressions, self._features), self._features, written)
            self._known[key] = known
            self._keys[prepared] = key
            self._bytes += known.nbytes
        self._known.move_to_end(key)
        self._stay_within_budget()
        return Demand(claims, known.prepared)

    def identity(self, claims: Sequence[ResourceClaim], class_of: ClassOf) -> Hashable:
        """Equal for claims that ask for the same, and therefore share all answers."""
        return self._identity_of(claims, class_of)

    def _identity_of(self, claims: Sequence[ResourceClaim], class_of: ClassOf) -> tuple[tuple[bytes, Hashable], ...]:
        return tuple(self._identity(claim, class_of) for claim in claims)

    def _identity(self, claim: ResourceClaim, class_of: ClassOf) -> tuple[bytes, Hashable]:
        """Equal for claims that ask for the same, with the same selectors behind the names of classes."""
        spec = claim.spec.devices
        names = {request.exactly.device_class_name for request in spec.requests if request.exactly is not None}
        names.update(each.device_class_name for request in spec.requests for each in request.first_available)
        classes = tuple((name, self._class_key(name, class_of(name))) for name in sorted(names))
        return (msgspec.json.encode((spec.requests, spec.constraints)), classes)

    def _class_key(self, name: str, found: DeviceClass | None) -> bytes | None:
        if found is None:
            self._classes.pop(name, None)
            return None
        kept = self._classes.get(name)
        if kept is None or kept[0] is not found:
            kept = self._classes[name] = (found, msgspec.json.encode(found.spec))
        return kept[1]

    def _of(self, demand: Demand) -> _Known:
        """What is known for a demand, which may have been forgotten."""
        prepared = demand.prepared
        key = self._keys.get(prepared)
        known = self._known.get(key) if key is not None else None
        if known is None or known.prepared is not prepared:
            known = _Known(prepared, Planner(prepared, self._expressions, self._features), self._features)
        return known

    def _stay_within_budget(self) -> None:
        while self._bytes > self._budget and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._keys.pop(oldest.prepared, None)
            self._bytes -= oldest.nbytes

    def _resized(self, known: _Known) -> None:
        more = known.resize()
        if known.prepared in self._keys:
            self._bytes += more
        self._stay_within_budget()

    # --- verdicts ----------------------------------------------------------------------------------------

    def verdicts(self, demand: Demand, rows: _Rows, deadline: Deadline = UNLIMITED) -> Verdicts:
        """Which of the rows can serve the demand."""
        index, known = self._index, self._of(demand)
        index.refresh()
        if self._fails_everywhere(demand):
            return Verdicts(np.full(len(rows), Outcome.ERROR, dtype=np.int8), np.zeros(len(rows), dtype=np.int64))
        answers = known.answers
        self._catch_up(answers)
        asked = rows[answers.outcomes[rows] == Outcome.UNKNOWN]
        expired: dict[int, Outcome] = {}
        if len(asked):
            expired = self._ask(known, asked, deadline)
            self._resized(known)
        outcomes, scores = answers.outcomes[rows], answers.scores[rows]
        if expired:
            outcomes[outcomes == Outcome.UNKNOWN] = Outcome.EXPIRED
        taken = answers.taken[rows] if answers.taken is not None else None
        return Verdicts(self._with_foreign(demand, outcomes, rows), scores, taken, answers.footprints)

    def _fails_everywhere(self, demand: Demand) -> bool:
        return bool(self._index.failures) or any(check.error for check in demand.prepared.checks)

    def _catch_up(self, answers: Answers) -> None:
        index = self._index
        changed = index.changed_since(answers.serial) if answers.serial >= 0 else None
        if changed is None or answers.epoch != index.epoch or len(answers.outcomes) != index.capacity:
            answers.forget(index.capacity)
        elif changed:
            answers.outcomes[changed] = Outcome.UNKNOWN
        answers.serial, answers.epoch = index.serial, index.epoch

    def _ask(self, known: _Known, rows: _Rows, deadline: Deadline) -> dict[int, Outcome]:
        """Finds the answers of rows; those whose search expired are returned, and not kept."""
        answers = known.answers
        found: dict[int, Outcome] = {}
        if len(rows) == 1:
            examples, groups = np.zeros(1, dtype=np.intp), np.zeros(1, dtype=np.intp)
        else:
            self._plan(known, rows)
            keys = self._index.keys(rows)
            keys[:, 0] = answers.plans[rows]
            examples, groups = grouped(keys)
        outcomes = np.empty(len(examples), dtype=np.int8)
        scores = np.zeros(len(examples), dtype=np.int64)
        taken = np.zeros(len(examples), dtype=np.int32)
        for at, example in enumerate(rows[examples].tolist()):
            answer = self._answer(known, example, deadline)
            outcomes[at] = answer.outcome
            if answer.solution is not None:
                scores[at] = answer.solution.score
                taken[at] = answer.taken
            elif answer.outcome is Outcome.EXPIRED:
                found[example] = Outcome.EXPIRED
                outcomes[at] = Outcome.UNKNOWN
        answers.outcomes[rows] = outcomes[groups]
        answers.scores[rows] = scores[groups]
        if answers.taken is not None:
            answers.taken[rows] = taken[groups]
        return found

    def _plan(self, known: _Known, rows: _Rows) -> None:
        """Brings the plans of rows up to date: inventories that differ in nothing that is read have the same."""
        answers, inventories = known.answers, self._index.inventories
        stale = rows[answers.planned[rows] != inventories[rows]]
        if not len(stale):
            return
        _, examples, groups = np.unique(inventories[stale], return_index=True, return_inverse=True)
        numbers = np.zeros(len(examples), dtype=np.int64)
        for at, row in enumerate(stale[examples].tolist()):
            entry = self._index.node(row)
            if entry is not None and entry.inventory is not None:
                numbers[at] = known.planner.plan(entry.inventory).number
        answers.plans[stale] = numbers[groups]
        answers.planned[stale] = inventories[stale]

    def _with_foreign(self, demand: Demand, outcomes: npt.NDArray[np.int8], rows: _Rows) -> npt.NDArray[np.int8]:
        """Pools that a node only sees the counters of matter if they are not in order."""
        if demand.prepared.wants_all:
            foreign = self._index.rows_with_foreign((Condition.INCOMPLETE, Condition.INVALID))
            if foreign is not None:
                outcomes[foreign[rows]] = Outcome.ERROR
        foreign = self._index.rows_with_foreign((Condition.INVALID,))
        if foreign is not None:
            outcomes[foreign[rows] & (outcomes == Outcome.NONE)] = Outcome.INVALID
        return outcomes

    # --- one node ----------------------------------------------------------------------------------------

    def _answer(self, known: _Known, row: int, deadline: Deadline) -> Answer:
        entry = self._index.node(row)
        if entry is None or entry.inventory is None:
            return Answer(Outcome.NONE)
        plan = known.planner.plan(entry.inventory)
        _, own, group = self._index.key(row)
        key: AnswerKey = (plan.number, own, group)
        answer = known.answers.by_state.get(key)
        if answer is None:
            answer = self._search(known, plan, entry, deadline)
            if answer.solution is not None and known.answers.taken is not None:
                taken = known.answers.position(footprints_of(known.prepared, plan, answer.solution))
                answer = answer._replace(taken=taken)
            if answer.outcome is not Outcome.EXPIRED:
                known.answers.keep(key, answer)
        return answer

    def _search(self, known: _Known, plan: Plan, entry: NodeEntry, deadline: Deadline) -> Answer:
        deadline.start()
        search = Search(known.prepared, known.planner, plan, Ground(plan, entry.views), deadline.expired)
        try:
            if self._problem(known.prepared, search, plan, entry, with_foreign=False):
                return Answer(Outcome.ERROR)
            solution = search.run()
        except (SelectorFailed, ConstraintViolated):
            return Answer(Outcome.ERROR)
        except SearchExpired:
            return Answer(Outcome.EXPIRED)
        if solution is not None:
            return Answer(Outcome.FITS, solution)
        invalid = any(condition is Condition.INVALID for _, condition in plan.troubles)
        return Answer(Outcome.INVALID if invalid else Outcome.NONE)

    def _problem(
        self, prepared: Prepared, search: Search, plan: Plan, entry: NodeEntry, *, with_foreign: bool
    ) -> tuple[str, int] | None:
        """The first check that fails, in words, with its claim; `{claim}` stands for the claim's name."""
        for check in prepared.checks:
            if check.error:
                return check.error, check.claim
            alternative = check.alternative
            if alternative is not None:
                trouble = "" if prepared.lenient else self._trouble(plan, entry, with_foreign)
                if trouble:
                    asks = f"asks for all devices, but resource pool {trouble}"
                    return f"claim {{claim}}, request {alternative.label}: {asks}", alternative.claim
                search.all_devices(alternative)
            else:
                fewest = _fewest(prepared, search, check.claim)
                if fewest > MOST_DEVICES:
                    text = f"number of requested devices {fewest} exceeds the claim limit of {MOST_DEVICES}"
                    return f"claim {{claim}}: {text}", check.claim
        return None

    def _trouble(self, plan: Plan, entry: NodeEntry, with_foreign: bool) -> str:
        """The first pool of a node that is not in order, and what it is; "" if all are."""
        found = [(entry.views[number].order, condition) for number, condition in plan.troubles]
        if with_foreign:
            found += [((False, pool.key), self._index.foreign_condition(pool)) for pool in self._index.foreign(entry)]
        if not found:
            return ""
        (_, (driver, pool)), condition = min(found)
        return f"{driver}/{pool} is currently {'invalid' if condition is Condition.INVALID else 'being updated'}"

    # --- allocation --------------------------------------------------------------------------------------

    def allocate(self, demand: Demand, row: int, deadline: Deadline = UNLIMITED) -> Allocation | None:
        """What the demand gets on the node of a row; None if there is no solution.

        Raises AllocationError, InvalidPools and SearchExpired.
        """
        index, known = self._index, self._of(demand)
        index.refresh()
        if index.failures:
            raise AllocationError(f"gather pool information: {min(index.failures.values())}")
        entry = index.node(row)
        if entry is None or entry.inventory is None:
            return None
        plan = known.planner.plan(entry.inventory)
        foreign = demand.prepared.wants_all and bool(index.foreign(entry))
        answer = Answer(Outcome.UNKNOWN) if foreign else self._answer(known, row, deadline)
        if answer.outcome is Outcome.EXPIRED:
            raise SearchExpired
        solution = answer.solution
        if answer.outcome in (Outcome.ERROR, Outcome.UNKNOWN):
            solution = self._solve(demand, known, plan, entry, deadline)
        if solution is not None:
            return self._allocation(demand, plan, entry, solution)
        problems = self.invalid_pools(row)
        if problems:
            raise InvalidPools("; ".join(problems))
        return None

    def _solve(
        self, demand: Demand, known: _Known, plan: Plan, entry: NodeEntry, deadline: Deadline
    ) -> Solution | None:
        """Searches with errors in words."""
        deadline.start()
        search = Search(known.prepared, known.planner, plan, Ground(plan, entry.views), deadline.expired)
        try:
            problem = self._problem(known.prepared, search, plan, entry, with_foreign=True)
            if problem is not None:
                raise AllocationError(demand.text(*problem))
            return search.run()
        except SelectorFailed as failure:
            raise AllocationError(demand.text(str(failure), failure.alternative.claim)) from failure
        except ConstraintViolated as failure:
            alternative, device = failure.alternative, _device_at(plan, entry, failure.position)
            driver, pool = device.part.key
            text = f"cannot add device {driver}/{pool}/{device.name} because a claim constraint would not be satisfied"
            raise AllocationError(
                demand.text(f"claim {{claim}}, request {alternative.label}: {text}", alternative.claim)
            ) from failure

    def _allocation(self, demand: Demand, plan: Plan, entry: NodeEntry, solution: Solution) -> Allocation:
        prepared = demand.prepared
        picks: list[list[Pick]] = [[] for _ in prepared.claims]
        for number, position in solution.picks:
            alternative = prepared.alternatives[number]
            picks[alternative.claim].append((alternative, _device_at(plan, entry, position), position))
        results = []
        for claim, devices in enumerate(picks):
            chosen = list(dict.fromkeys(pick[0].number for pick in devices))
            alternatives = [prepared.alternatives[number] for number in chosen]
            results.append(result_of(demand, claim, devices, alternatives, plan, entry.name, self._share_id))
        return Allocation(tuple(results), solution.score)

    # --- why not -----------------------------------------------------------------------------------------

    def invalid_pools(self, row: int) -> list[str]:
        """The invalid pools of a node, each with what is wrong with it."""
        self._index.refresh()
        entry = self._index.node(row)
        if entry is None:
            return []
        found = [(view.pool.key, view.problem) for view in entry.views if view.shape.condition is Condition.INVALID]
        found += [
            (pool.key, pool.condition(pool.counter_parts)[1])
            for pool in self._index.foreign(entry)
            if self._index.foreign_condition(pool) is Condition.INVALID
        ]
        return [f"{driver}/{pool}: {problem}" for (driver, pool), problem in sorted(found)]

    def troubled_pools(self, row: int) -> list[str]:
        """The pools that a node cannot use, each with the reason."""
        self._index.refresh()
        entry = self._index.node(row)
        if entry is None:
            return []
        views = [view for view in entry.views if view.shape.condition is Condition.INCOMPLETE]
        keys = [view.pool.key for view in views]
        keys += [
            pool.key
            for pool in self._index.foreign(entry)
            if self._index.foreign_condition(pool) is Condition.INCOMPLETE
        ]
        incomplete = [f"{driver}/{pool} is incomplete" for driver, pool in sorted(keys)]
        return [*incomplete, *(f"{text} (invalid)" for text in self.invalid_pools(row))]

    def keys(self, rows: _Rows) -> npt.NDArray[np.int64]:
        """int64[rows, 3]: rows with equal keys get equal answers, but for the names of pools."""
        self._index.refresh()
        return self._index.keys(rows)

    def explain(self, demand: Demand, row: int, deadline: Deadline = UNLIMITED) -> tuple[RequestReasons, ...]:
        """For each (sub-)request by itself, how many devices of the node there are and why others are not for it.

        Raises SearchExpired.
        """
        index, known = self._index, self._of(demand)
        index.refresh()
        entry = index.node(row)
        if entry is None or entry.inventory is None:
            return ()
        plan = known.planner.plan(entry.inventory)
        deadline.start()
        return reasons_of(demand, known.planner, plan, Ground(plan, entry.views), deadline.expired)


def _fewest(prepared: Prepared, search: Search, claim: int) -> int:
    total = 0
    for request in prepared.claims[claim].requests:
        numbers = [
            search.all_devices(each).bit_count() if each.everything and not prepared.lenient else each.wanted
            for each in request.alternatives
        ]
        total += min(numbers, default=0)
    return total


def _device_at(plan: Plan, entry: NodeEntry, position: int) -> PooledDevice:
    pool = plan.pool_of(position)
    return entry.views[plan.usable[pool]].devices[position - plan.pools[pool]]
