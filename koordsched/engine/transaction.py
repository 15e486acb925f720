"""A transaction: pods placed and evicted on the live table, step by step, and taken back or kept as a whole.

Placing a pod is assume, then Reserve, in this order everywhere: accountants and observers see the pod on its row before
Reserve plugins decide what it gets there. After a rollback, tables, nominations and the accounting of plugins are as
before; the change log has advanced, so that cached verdicts are refreshed.

Legal on the live table because nothing else changes it meanwhile: watch events wait (`ClusterState.in_transaction`),
and what plugins announce is held back until the commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.interface import CycleState
from koordsched.framework.profile import Profile
from koordsched.framework.status import SUCCESS, Status
from koordsched.framework.turns import STEP, Turns
from koordsched.queue.nominator import Nomination, Nominator


class Placed(NamedTuple):
    """A pod that the transaction placed. `nominated`: the node it had been nominated to, "" if none."""

    cycle: CycleState
    profile: Profile
    row: int
    nominated: str
    nomination: Nomination[Pod] | None

    @property
    def pod(self) -> Pod:
        """The assumed pod."""
        return self.cycle.pod


class _Evicted(NamedTuple):
    pod: Pod
    row: int
    order: tuple[str, ...]


class Checkpoint(NamedTuple):
    """A point to roll back to."""

    steps: int
    announced: int


def take_back(placed: Placed, cluster: ClusterState, nominator: Nominator[Pod]) -> None:
    """Undoes a placement that is not confirmed: committed ones in reverse order."""
    placed.profile.run_unreserve(placed.cycle, placed.pod, placed.row)
    cluster.forget(placed.pod)
    if placed.nomination is not None:
        nominator.reinstate(placed.nomination)


class Transaction:
    """To be used as a context: leaving it without `commit` rolls everything back.

    An eviction is hypothetical: it shows what would fit without a pod. The API server still has the pod, so a
    transaction with evictions in force cannot be committed.
    """

    __slots__ = ("_announced", "_cluster", "_nested", "_nominator", "_open", "_steps")

    def __init__(self, cluster: ClusterState, nominator: Nominator[Pod], *, nested: bool = False) -> None:
        """`nested`: a part of the transaction that is under way, which is taken back at its end.

        Raises RuntimeError inside another transaction if it is not nested.
        """
        if not nested:
            cluster.begin()
        self._announced = cluster.announced()
        self._nested = nested
        self._cluster = cluster
        self._nominator = nominator
        self._steps: list[Placed | _Evicted] = []
        self._open = True

    def place(self, cycle: CycleState, profile: Profile, row: int) -> Status:
        """Assumes the pod of the cycle on the row, then runs Reserve; if that fails, undoes both.

        SUCCESS, or what the Reserve plugin says that refuses. Raises ValueError for a pod that has a node, and whatever
        a Reserve plugin raises.
        """
        cluster, nominator, pod = self._cluster, self._nominator, cycle.pod
        nominated = nominator.node_of(pod.uid)
        cluster.assume(pod, row)
        step = Placed(cycle, profile, row, nominated, nominator.withdraw(pod.uid) if nominated else None)
        before = self.checkpoint() if profile.reserve_plugins else None
        self._steps.append(step)
        if before is None:
            return SUCCESS
        try:
            status = profile.run_reserve(cycle, pod, row)
        except BaseException:
            self.rollback(before)
            raise
        if not status.ok:
            self.rollback(before)
        return status

    def evict(self, pod: Pod) -> None:
        """Takes the pod off its row. Raises ValueError if it is on none."""
        row = pod.row
        self._steps.append(_Evicted(pod, row, self._cluster.evict(pod)))

    def evict_all(self, pods: Iterable[Pod]) -> Turns[None]:
        """The same for many pods, in steps."""
        for number, pod in enumerate(pods, start=1):
            self.evict(pod)
            if not number % STEP:
                yield

    def checkpoint(self) -> Checkpoint:
        """The point that was reached."""
        return Checkpoint(len(self._steps), self._cluster.announced())

    def rollback(self, to: Checkpoint | None = None) -> None:
        """Takes back what was done since the checkpoint, last step first; everything if none is given."""
        steps, announced = to or Checkpoint(0, self._announced)
        while len(self._steps) > steps:
            self._undo_last()
        self._cluster.withdraw(announced)

    def roll_back(self, to: Checkpoint | None = None) -> Turns[None]:
        """`rollback` in steps."""
        steps = to.steps if to is not None else 0
        while len(self._steps) > steps:
            self._undo_last()
            if not len(self._steps) % STEP:
                yield
        self.rollback(to)

    def _undo_last(self) -> None:
        step = self._steps.pop()
        if isinstance(step, Placed):
            take_back(step, self._cluster, self._nominator)
        else:
            self._cluster.restore(step.pod, step.row, step.order)

    def commit(self) -> list[Placed]:
        """Ends the transaction; the pods stay assumed. Returns them in the order in which they were placed.

        Raises ValueError if an eviction is in force, or if it is nested.
        """
        if self._nested:
            raise ValueError("a part of a transaction is not committed by itself")
        placed: list[Placed] = []
        for step in self._steps:
            if not isinstance(step, Placed):
                raise ValueError("an evicted pod leaves by the API server's word: roll back, then evict it there")
            placed.append(step)
        self._open = False
        self._cluster.end()
        return placed

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            try:
                self.rollback()
            finally:
                if not self._nested:
                    self._cluster.end()
