"""What plugins count of the pods on each node: their columns follow the pods, in what-ifs too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from koordsched.cluster.columns import Column
from koordsched.cluster.pod import Pod
from koordsched.cluster.resources import Requests
from koordsched.cluster.shape import PodShape

Amount = int | npt.NDArray[np.signedinteger[Any]]
"""What a pod adds to its row of a column: a number, or [width] of them."""


class PodAccountant(Protocol):
    """Keeps a plugin's columns in step with the pods on the nodes.

    `facets`: those that a pod's coming or going may change, 0 if none. `pod_removed` must undo `pod_added` exactly:
    what-ifs call one and then the other. Each returns the facets of the row that it changed (0 if none).
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
        return tuple([accountant for accountant, concerns in self if concerns is None or concerns(shape)])


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
