"""A scheduler that follows a recorded history: it decides nothing; its state follows the recorded decisions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from random import Random

from koordsched.client import clock as clocks
from koordsched.cluster.pod import Pod
from koordsched.engine.transaction import Transaction
from koordsched.framework.handle import Clock
from koordsched.framework.interface import CycleState
from koordsched.framework.profile import PluginFactory
from koordsched.framework.status import Code, Status
from koordsched.journal.header import Setting
from koordsched.journal.records import (
    Activated,
    Attempt,
    Chosen,
    Evicting,
    Header,
    Member,
    Outcome,
    Promised,
    Refused,
    Step,
    Timers,
    Undone,
)
from koordsched.journal.replayedscheduler import ReplayedScheduler
from koordsched.journal.verdict import Verdict, verdict_on
from koordsched.queue.item import Place, QueuedPod
from koordsched.scheduling.placement import AssumedPod
from koordsched.scheduling.recording import Recorder

_log = logging.getLogger(__name__)


class _Onlooker(Recorder):
    """Shows the time of the latest step, and draws no random numbers: of several it takes the first."""

    def __init__(self, header: Header) -> None:
        self._offset = header.wall - header.monotonic
        self.latest = header.monotonic

    def clock(self, clock: Clock, *, of_queue: bool = False) -> Clock:
        return self

    def chance(self, rng: Random) -> Random:
        return Random(0)

    def monotonic(self) -> float:
        return self.latest

    def wall(self) -> float:
        return self.latest + self._offset


class Follower(ReplayedScheduler):
    """Intercepts every attempt, and gives it the recorded outcome."""

    def __init__(
        self, setting: Setting, registry: Mapping[str, PluginFactory], clock: clocks.Clock, header: Header
    ) -> None:
        """Raises ProfileError."""
        self._time = _Onlooker(header)
        super().__init__(setting, registry, clock, self._time)
        self._queued: QueuedPod[Pod] | None = None
        self._job: dict[str, QueuedPod[Pod] | None] = {}
        """uid -> the pods of the attempt: the one taken from the queue, and those placed together with it."""
        self._promises: dict[str, str] = {}
        """uid -> what the pods of the attempt were promised before it."""
        self._uid = ""
        self._deciding = False
        self._steps |= {
            Timers: self._timers,
            Attempt: self._attempt,
            Member: self._member,
            Chosen: self._chosen,
            Evicting: self._evicting,
            Promised: self._promised,
            Refused: self._refused,
            Undone: self._taken_back,
            Activated: lambda record: self.scheduler.evictions.activate(record.uid, None),
        }

    def decides(self, record: Step | Outcome) -> bool:
        """Whether this was decided about the pod that was taken up last."""
        return self._deciding and not (isinstance(record, Refused) and record.uid != self._uid)

    def step(self, record: Step | Outcome) -> None:
        """Carries out what is recorded."""
        self._steps[type(record)](record)

    def verdict(self, uid: str) -> Verdict | None:
        """This configuration's decision on a pending pod now; None if there is no such pod, or no profile for it."""
        pod = self.scheduler.pending_pod(uid)
        if pod is None:
            return None
        return verdict_on(self.scheduler.profiles[pod.shape.scheduler_name], self.scheduler.cluster, pod)

    def _timers(self, record: Timers) -> None:
        self._time.latest = record.at
        self.scheduler.timers.run()

    def _attempt(self, record: Attempt) -> None:
        self._time.latest = record.at
        for queued in self._job.values():
            # One that was not tried, because there were enough without it, went back by itself.
            if queued is not None and queued.place is Place.IN_FLIGHT and queued.pod.uid not in self._placements:
                self._put_back(queued)
        self._job, self._promises = {}, {}
        self._take_up(record.uid)

    def _member(self, record: Member) -> None:
        self._take_up(record.uid)

    def _take_up(self, uid: str) -> None:
        self._uid = uid
        self._deciding = True
        if uid not in self._job:
            pod = self.scheduler.pending_pod(uid)
            self._job[uid] = self.scheduler.queue.pop_pod(pod) if pod is not None else None
            self._promises[uid] = self.scheduler.queue.nominator.node_of(uid)
        self._queued = self._job[uid]

    def _chosen(self, record: Chosen) -> None:
        """Puts the pod on the recorded node, whatever the plugins here decide."""
        self._deciding = False
        cluster = self.scheduler.cluster
        row = cluster.table.row_of.get(record.node)
        queued = self._queued
        if queued is None or row is None or queued.pod.uid in cluster.assigned:
            return
        pod, nominator = queued.pod, self.scheduler.queue.nominator
        profile = self.scheduler.profiles[pod.shape.scheduler_name]
        cycle, nominated = CycleState(pod), nominator.node_of(pod.uid) == record.node
        with Transaction(cluster, nominator) as transaction:
            try:
                status = transaction.place(cycle, profile, row)
            except Exception as error:
                status = Status(Code.ERROR, (str(error),))
            if not status.ok:
                _log.debug("%s cannot be reserved on %s here: %s", pod.title, record.node, status.message)
            transaction.commit()
        if not status.ok:
            nominator.delete(pod.uid)
            cluster.assume(pod, row)
        self._placements[pod.uid] = AssumedPod(
            cycle, profile, queued, row, record.node, {}, self._time.latest, record.feasible, nominated
        )

    def _evicting(self, record: Evicting) -> None:
        pod = self.scheduler.pending_pod(self._uid)
        assigned = self.scheduler.cluster.assigned
        victims = [assigned[uid] for uid, _ in record.victims if uid in assigned]
        if pod is not None and victims:
            self.scheduler.evictions.start(pod, record.node, victims)

    def _promised(self, record: Promised) -> None:
        self._nominate(record.uid, record.node)

    def _nominate(self, uid: str, node: str | None) -> None:
        """None: as its status has it."""
        newest, nominator = self.scheduler.pending_pod(uid), self.scheduler.queue.nominator
        if newest is None:
            return
        if node is None:
            nominator.update(newest, newest)
        else:
            nominator.add(newest, node)

    def _refused(self, record: Refused) -> None:
        if record.uid in self._job:
            self._deciding = False
            self._uid = ""
            for uid, queued in self._job.items():
                self._give_back(uid, queued, record)
            self._job = {}
        if record.uid in self._promises:  # else a binding failed, and what follows from that has been done
            self._nominate(record.uid, record.nominated)

    def _put_back(self, queued: QueuedPod[Pod]) -> None:
        newest, queue = self.scheduler.pending_pod(queued.pod.uid), self.scheduler.queue
        if newest is None:
            queue.done(queued.pod.uid)
        else:
            queue.activate((newest,))
            queue.add_unschedulable_if_not_present(queued, pod=newest)

    def _give_back(self, uid: str, queued: QueuedPod[Pod] | None, record: Refused) -> None:
        placement = self._placements.pop(uid, None)
        if placement is not None:
            placement.profile.run_unreserve(placement.cycle, placement.pod, placement.row)
            self.scheduler.cluster.forget(placement.pod)
        newest, queue = self.scheduler.pending_pod(uid), self.scheduler.queue
        if newest is None or queued is None:
            queue.done(uid)
            return
        plugins, pending = frozenset(record.plugins), frozenset(record.pending_plugins)
        queue.add_unschedulable_if_not_present(queued, plugins, pending, pod=newest)
        self._nominate(uid, self._promises[uid])

    def _taken_back(self, record: Undone) -> None:
        self._job.pop(record.uid, None)
        self._undone(record)
