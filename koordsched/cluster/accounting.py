"""What plugins count of the pods on each node: their columns follow the pods, in what-ifs too."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import Facet
from koordsched.cluster.columns import Column
from koordsched.cluster.listeners import FailedCall, ListenerErrors
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.cluster.resources import Requests
from koordsched.cluster.shape import PodShape

_log = logging.getLogger(__name__)

Amount = int | npt.NDArray[np.signedinteger[Any]]
"""What a pod adds to its row of a column: a number, or [width] of them."""


class PodAccountant(Protocol):
    """Keeps a plugin's columns in step with the pods on the nodes.

    `facets`: those that a pod's coming or going may change, 0 if none. `pod_removed` must undo `pod_added` exactly:
    what-ifs call one and then the other. Each returns the facets of the row that it changed (0 if none). If one fails,
    it must have changed nothing: a pod that it could not add is added later, and not removed before that.
    """

    @property
    def facets(self) -> int: ...

    def pod_added(self, row: int, pod: Pod) -> int:
        """A pod counts against the node on this row from now on."""

    def pod_removed(self, row: int, pod: Pod) -> int:
        """It does not any more."""


class Concerned(tuple[tuple[PodAccountant, Callable[[PodShape], bool] | None], ...]):
    """All accountants; called: those that pods of a shape may make a difference to. Another one whenever some join."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __call__(self, shape: PodShape) -> tuple[PodAccountant, ...]:
        return tuple([accountant for accountant, concerns in self if concerns is None or _concerns(concerns, shape)])


def _concerns(concerns: Callable[[PodShape], bool], shape: PodShape) -> bool:
    try:
        return concerns(shape)
    except Exception:
        _log.exception("whether an accountant counts pods of a shape is unknown: it gets them")
        return True


@dataclass(slots=True, eq=False)
class _Miscount(FailedCall):
    """What an accountant counts of a pod, and what it should: each a row and the pod, None if not at all.

    `hypothetical`: it failed inside a what-if. `left`: to be called when the pod is not counted any more.
    """

    accountant: PodAccountant
    table: NodeTable
    counted: tuple[int, Pod] | None
    due: tuple[int, Pod] | None
    hypothetical: bool
    may_be_forgotten: ClassVar[bool] = False
    left: Callable[[Pod], None]

    def __call__(self) -> None:
        if self.counted is not None:
            row, pod = self.counted
            facets = self.accountant.pod_removed(row, pod)
            self.counted = None
            self.table.touch(row, facets)
            self.left(pod)
        if self.due is not None:
            row, pod = self.due
            self.table.touch(row, self.accountant.pod_added(row, pod))
            self.counted = self.due

    @property
    def is_right(self) -> bool:
        """Whether it counts what it should."""
        if self.counted is None or self.due is None:
            return self.counted is self.due
        (row, pod), (where, other) = self.counted, self.due
        return row == where and counts_the_same(pod, other) and pod.facts == other.facts


class Accounts:
    """Calls accountants; one that fails keeps neither the pod from its row nor others from counting it.

    `left`: to be called with a pod that an accountant does not count any more, later than the others.
    """

    def __init__(self, table: NodeTable, errors: ListenerErrors, left: Callable[[Pod], None]) -> None:
        self._table = table
        self._errors = errors
        self._left = left

    def count(self, accountant: PodAccountant, row: int, pod: Pod, sign: int) -> int:
        """Has an accountant count a pod (1), or not any more (-1); returns the facets of the row that may differ."""
        if pod.uid in self._errors.owed:
            call = self._errors.find(_Miscount, accountant, pod.uid)
            if call is not None:
                call.due = (row, pod) if sign > 0 else None
                # What-ifs do not touch rows, so they do not make up for what was missed outside of them.
                if self._table.hypothetical and not call.hypothetical:
                    return 0
                if call.is_right:
                    self._errors.forget(call)
                elif not self._table.hypothetical:
                    self._errors.make(call)
                return accountant.facets
        try:
            return accountant.pod_added(row, pod) if sign > 0 else accountant.pod_removed(row, pod)
        except Exception as error:
            return self.failed(accountant, row, pod, sign, error)

    def failed(self, accountant: PodAccountant, row: int, pod: Pod, sign: int, error: Exception) -> int:
        """An accountant failed to do that; returns the facets of the row that may differ."""
        counted, due = (None, (row, pod)) if sign > 0 else ((row, copy(pod)), None)
        inside = bool(self._table.hypothetical)
        call = _Miscount(accountant, pod.uid, pod.title, accountant, self._table, counted, due, inside, self._left)
        self._errors.failed(call, error)
        return accountant.facets

    def row_is_cleared(self, row: int) -> None:
        """The node on a row is taken out: nothing is counted there any more."""
        for calls in tuple(self._errors.owed.values()):
            for call in tuple(calls.values()):
                if isinstance(call, _Miscount) and call.counted is not None and call.counted[0] == row:
                    call.counted = None
                    if call.is_right:
                        self._errors.forget(call)


def counts_the_same(a: Pod, b: Pod) -> bool:
    """Whether two versions of a pod count the same, facts aside."""
    return (
        a.shape is b.shape
        and a.labels is b.labels
        and a.requests is b.requests
        and a.deleting == b.deleting
        and a.start_time == b.start_time
    )


class Sharing(Protocol):
    """Lets pods count less while others, on the same row, use parts of what they hold (`ClusterState.amend`).

    It is called after the accountants, in what-ifs too, but not for what it amends itself. It must do the opposite for
    the opposite change. Each call returns the facets of the row that changed (0 if none).
    """

    def pod_counted(self, row: int, pod: Pod, sign: int) -> int:
        """A pod counts against the row from now on (1), or does not any more (-1)."""

    def facts_changed(self, row: int, pod: Pod) -> int:
        """A pod on the row has other facts, or a newer version of it, the confirmed one maybe, has taken its place."""

    def whole_of(self, pod: Pod) -> tuple[Requests, tuple[object, ...]]:
        """The requests and facts of a pod on a node that counts less at the moment, as if nothing that it holds was in
        use; those of any other pod as they are."""

    def holder_of(self, pod: Pod) -> str | None:
        """The uid of the pod that holds what a pod on a node uses: without the latter, the former counts it."""


class SharingAccount:
    """A Sharing, called as the last accountant."""

    facets = Facet.RESOURCES

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing

    def pod_added(self, row: int, pod: Pod) -> int:
        """See PodAccountant."""
        return self._sharing.pod_counted(row, pod, 1)

    def pod_removed(self, row: int, pod: Pod) -> int:
        """See PodAccountant."""
        return self._sharing.pod_counted(row, pod, -1)


class ColumnAccountant(ABC):
    """An accountant whose columns are sums over the pods of a row.

    A plugin says what one pod adds; preemption can then try all nodes at once (`plugins.shared.preemption.lockstep`).
    A filter that reads one of the `facets` must read nothing else that pods change, other than room and host ports,
    unless `sums_decide` says so.
    """

    facets: int
    """Those that a pod's coming or going changes."""

    @abstractmethod
    def columns(self) -> Sequence[Column]:
        """The columns it adds to, which are its own, of signed integers: always the same, in the same order."""

    @abstractmethod
    def amounts(self, pod: Pod) -> Sequence[Amount] | None:
        """What a pod adds to its row of each column; None if it adds nothing.

        It depends on nothing but the pod's shape, namespace, labels, requests and facts, and whether it is being
        deleted. For a column of several numbers per row: [width], at most as wide as the column, which may be widened
        here first (`Column.widen`).
        """

    def sums_decide(self, shape: PodShape) -> bool:
        """Whether filters judge pods of this shape by the columns alone; preemption tries one node after the other for
        those where they do not. Default: True."""
        return True

    def pod_added(self, row: int, pod: Pod) -> int:
        """See PodAccountant."""
        return self._count(row, pod, 1)

    def pod_removed(self, row: int, pod: Pod) -> int:
        """See PodAccountant."""
        return self._count(row, pod, -1)

    def _count(self, row: int, pod: Pod, sign: int) -> int:
        amounts = self.amounts(pod)
        if amounts is None:
            return 0
        add_amounts(self.columns(), row, amounts, sign)
        return self.facets


def add_amounts(columns: Sequence[Column], row: int, amounts: Sequence[Amount], sign: int = 1) -> None:
    """Adds amounts to one row of each column, or takes them away (-1)."""
    for column, amount in zip(columns, amounts, strict=True):
        if isinstance(amount, np.ndarray):
            column.data[row, : len(amount)] += sign * amount
        else:
            column.data[row] += sign * amount
