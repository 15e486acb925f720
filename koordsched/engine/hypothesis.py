"""What would be if pods were evicted and others placed: asked by plugins that decide about several pods at once.

Everything happens on the live table, step by step, and is taken back at the end; within a transaction, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from types import TracebackType

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.engine.transaction import Checkpoint, Transaction
from koordsched.framework.interface import CycleState
from koordsched.framework.profile import Profile
from koordsched.framework.status import PASS
from koordsched.framework.turns import Turns
from koordsched.queue.nominator import Nomination, Nominator


class Hypothesis:
    """To be used as a context, at the end of which all is as before. Pods are judged by one profile, as members of one
    job; `members`: uids of those that were tried already.
    """

    def __init__(
        self, profile: Profile, cluster: ClusterState, nominator: Nominator[Pod], members: Set[str] = frozenset()
    ) -> None:
        self._profile = profile
        self._cluster = cluster
        self._nominator = nominator
        self._transaction = Transaction(cluster, nominator, nested=cluster.in_transaction)
        self._members = {*members}
        self._withdrawn: list[Nomination[Pod]] = []

    def __enter__(self) -> Hypothesis:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._transaction.__exit__(kind, error, trace)
        finally:
            for nomination in reversed(self._withdrawn):
                self._nominator.reinstate(nomination)

    def withdraw(self, pods: Iterable[Pod]) -> None:
        """The nominations of these pods do not count. To be called first."""
        for pod in pods:
            if (nomination := self._nominator.withdraw(pod.uid)) is not None:
                self._withdrawn.append(nomination)

    def evict(self, pod: Pod) -> None:
        """Takes the pod off its row. Raises ValueError if it is on none."""
        self._transaction.evict(pod)

    def evict_all(self, pods: Iterable[Pod]) -> Turns[None]:
        """The same for many pods, in steps."""
        return self._transaction.evict_all(pods)

    def verdict(self, pod: Pod, row: int, without: frozenset[str] = frozenset()) -> tuple[CycleState, int]:
        """The verdict of PreFilter and Filter on one row, with the cycle to place the pod in; -1 for a pod that
        PreFilter refuses, or does not let go there. The PreFilter plugins in `without` are not asked.
        """
        self._members.add(pod.uid)
        filtering, cycle = self._profile.filtering, CycleState(pod, job_members=self._members)
        pre = filtering.prepare(cycle, without)
        if not pre.status.ok or (pre.names is not None and self._cluster.table.names[row] not in pre.names):
            return cycle, -1
        with filtering.overlaid(cycle):
            return cycle, filtering.dry_run(cycle, row)

    def place(self, pod: Pod, row: int, without: frozenset[str] = frozenset()) -> int:
        """Places the pod on the row if it fits: PASS. Otherwise the verdict, or -1, also if Reserve refuses."""
        cycle, code = self.verdict(pod, row, without)
        if code != PASS:
            return code
        return PASS if self._transaction.place(cycle, self._profile, row).ok else -1

    def checkpoint(self) -> Checkpoint:
        """The point that was reached."""
        return self._transaction.checkpoint()

    def rollback(self, to: Checkpoint) -> None:
        """Takes back what was done since."""
        self._transaction.rollback(to)

    def roll_back(self, to: Checkpoint) -> Turns[None]:
        """The same in steps."""
        return self._transaction.roll_back(to)
