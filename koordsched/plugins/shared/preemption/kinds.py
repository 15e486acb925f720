"""Pods that count alike, numbered, so that what a dry run needs of thousands of pods is looked up in arrays."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from koordsched.cluster.accounting import ColumnAccountant, add_amounts
from koordsched.cluster.columns import Column
from koordsched.cluster.pod import Pod
from koordsched.cluster.ports import shape_ports
from koordsched.framework.dryruns import Amounts, Tally
from koordsched.plugins.shared.matching.lookup import Lookup

KindArray = npt.NDArray[np.int32]

_TALLIES_KEPT = 128


class ColumnAmounts:
    """What the pods of each kind add to the columns of an accountant.

    `tables`: per column an array [kinds] or [kinds, width] of the column's type and width, perhaps with room for more
    kinds; `counts`: bool[kinds], whether they add anything.
    """

    def __init__(self, accountant: ColumnAccountant, examples: Sequence[Pod | None]) -> None:
        self.accountant = accountant
        self._examples = examples
        self._known = 0
        self._tables = [Column(0, c.data.dtype, width=_width(c)) for c in accountant.columns()]
        self._counts = Column(0, np.bool_)

    def refresh(self) -> ColumnAmounts:
        """Asks about the kinds that came since the last call, and is as wide as the columns again."""
        ask = self.accountant.amounts
        found = [None if pod is None else ask(pod) for pod in self._examples[self._known :]]
        missing = len(self._examples) > len(self._counts.data)
        for column in (*self._tables, self._counts) if missing else ():
            column.grow(2 * len(self._examples))
        for table, column in zip(self._tables, self.accountant.columns(), strict=True):
            if width := _width(column):
                table.widen(width)
        for number, amounts in enumerate(found, self._known):
            if amounts is not None:
                add_amounts(self._tables, number, amounts)
                self._counts.data[number] = True
        self._known = len(self._examples)
        return self

    @property
    def tables(self) -> list[npt.NDArray[Any]]:
        return [table.data for table in self._tables]

    @property
    def counts(self) -> npt.NDArray[np.bool_]:
        return self._counts.data


def _width(column: Column) -> int:
    """0 for a column of one number per row."""
    return column.data.shape[1] if column.data.ndim == 2 else 0


class PodKinds:
    """Numbers from 1; 0 is no pod. Pods of a kind have the same shape, namespace, labels, requests and facts, and all
    are being deleted or none is. `examples[number]` is one of them.
    """

    def __init__(self) -> None:
        self.examples: list[Pod | None] = [None]
        self.nbytes = 0
        """What the examples keep: their shapes, each counted for every kind of it."""
        self._numbers: dict[tuple[object, ...], int] = {}
        self._priorities = self.lookup(lambda pod: pod.priority)
        self._ones = self.lookup(lambda pod: 1)
        self._with_ports = self.lookup(lambda pod: bool(shape_ports(pod.shape)), np.bool_)
        self._amounts: dict[int, Lookup[Pod | None]] = {}
        self._column_amounts: dict[ColumnAccountant, ColumnAmounts] = {}
        self._tallied: OrderedDict[Hashable, Lookup[Pod | None]] = OrderedDict()

    def of(self, pod: Pod) -> int:
        """The number of a pod's kind."""
        resized = None if pod.requests is pod.shape.requests else pod.requests
        identity = (pod.shape, pod.labels, pod.namespace, pod.deleting, resized, pod.facts)
        number = self._numbers.get(identity)
        if number is None:
            number = self._numbers[identity] = len(self.examples)
            example = pod
            if pod.wire is not None:
                example = copy(pod)
                example.wire = None  # may be large, and examples stay
            self.examples.append(example)
            self.nbytes += pod.shape.nbytes
        return number

    def lookup(self, judge: Callable[[Pod], int], dtype: npt.DTypeLike = np.int64) -> Lookup[Pod | None]:
        """A judgement per kind; no pod is judged 0."""
        return Lookup(self.examples, lambda pod: 0 if pod is None else judge(pod), dtype)

    @property
    def priorities(self) -> Amounts:
        """By kind."""
        return _current(self._priorities)

    @property
    def ones(self) -> Amounts:
        """By kind: 1."""
        return _current(self._ones)

    @property
    def with_ports(self) -> npt.NDArray[np.bool_]:
        """By kind, whether it holds host ports."""
        return _current(self._with_ports)

    def amounts(self, resource: int) -> Amounts:
        """By kind, what it requests of a resource."""
        found = self._amounts.get(resource)
        if found is None:
            found = self._amounts[resource] = self.lookup(lambda pod: pod.requests.get(resource))
        return _current(found)

    def column_amounts(self, accountant: ColumnAccountant) -> ColumnAmounts:
        """By kind, what it adds to the columns of an accountant."""
        found = self._column_amounts.get(accountant)
        if found is None:
            found = self._column_amounts[accountant] = ColumnAmounts(accountant, self.examples)
        return found.refresh()

    def tallied(self, tally: Tally) -> Amounts:
        """By kind, how much it adds to a tally."""
        found = self._tallied.get(tally.identity)
        if found is None:
            found = self._tallied[tally.identity] = self.lookup(tally.of)
            if len(self._tallied) > _TALLIES_KEPT:
                self._tallied.popitem(last=False)
        else:
            self._tallied.move_to_end(tally.identity)
        return _current(found)

    def __len__(self) -> int:
        return len(self._numbers)


def _current(lookup: Lookup[Pod | None]) -> npt.NDArray[Any]:
    lookup.refresh()
    return lookup.verdicts
