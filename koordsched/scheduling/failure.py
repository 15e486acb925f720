"""What happens to a pod that could not be placed or bound: it returns to the queue, and its status says why.

Source: core spec 3.3 (failure return), 5.1 and 5.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from koordsched.cluster.events import ASSIGNED_POD_DELETE
from koordsched.cluster.pod import Pod
from koordsched.cluster.podevents import leaving
from koordsched.queue.equivalence import Refusal
from koordsched.queue.item import NO_PLUGINS, QueuedPod
from koordsched.queue.queue import SchedulingQueue
from koordsched.scheduling.decisions import Decisions
from koordsched.scheduling.pending import PendingPods
from koordsched.scheduling.recording import NOT_RECORDING, Recorder
from koordsched.scheduling.reporter import Reporter

UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """Why a pod was not placed, or not bound. `reason` and `message` are what its owner reads.

    `plugins` rejected the pod (none: an error), `pending` of them wait for something that they started. `nominated`:
    the node to which it is nominated from now on, "" for none, None for no change. `refusal`: the same, if it holds for
    the pod's equivalent pods. `through_backoff`: it waits for no event, but for the end of its back-off.
    """

    reason: str
    message: str
    plugins: frozenset[str] = NO_PLUGINS
    pending: frozenset[str] = NO_PLUGINS
    nominated: str | None = None
    refusal: Refusal | None = None
    through_backoff: bool = False


@dataclass(eq=False, repr=False)
class FailureHandler:
    """Takes failed pods back."""

    queue: SchedulingQueue[Pod]
    pending: PendingPods
    reporter: Reporter
    decisions: Decisions
    recorder: Recorder = NOT_RECORDING

    def newest(self, pod: Pod) -> Pod | None:
        """The newest version of a pod; None if there is nothing to retry."""
        return self.pending.newest(pod)

    def handle(self, queued: QueuedPod[Pod], failed: FailedAttempt, rest: float = 0.0) -> None:
        """The pod goes back to the queue, and its owner reads why. `rest`: seconds until it may be tried again."""
        self.recorder.refused(queued.pod.uid, failed)
        self.decisions.refused(
            queued.pod, failed.reason, failed.message, failed.plugins, queued.attempts, failed.nominated or ""
        )
        newest = self.pending.newest(queued.pod)
        if newest is None:
            # Deleted meanwhile, or another scheduler gave it a node: nothing to retry.
            self.queue.done(queued.pod.uid)
        else:
            self.queue.add_unschedulable_if_not_present(
                queued,
                failed.plugins,
                failed.pending,
                pod=newest,
                refusal=failed.refusal,
                through_backoff=failed.through_backoff,
                rest=rest,
            )
            if failed.nominated is not None:
                self._nominate(newest, failed.nominated)
            else:
                # Its status may not yet show a nomination made a moment ago.
                self.queue.nominator.update(newest, newest)
        self.reporter.failed(newest or queued.pod, failed.message)
        if newest is not None:
            self.reporter.condition(newest, failed.reason, failed.message, failed.nominated)

    def put_back(self, queued: QueuedPod[Pod], plugin: str) -> None:
        """The pod was not tried, and will be at once; `plugin` is why it was not."""
        newest = self.pending.newest(queued.pod)
        if newest is None:
            self.queue.done(queued.pod.uid)
            return
        self.queue.activate((newest,))
        self.queue.add_unschedulable_if_not_present(queued, frozenset((plugin,)), pod=newest)

    def tell(self, pod: Pod, reason: str, message: str, nominated: str | None, plugin: str) -> None:
        """A pod that stays where it waits in the queue cannot be placed, as its owner reads; see `FailedAttempt`."""
        newest = self.pending.newest(pod)
        queued = self.queue.get(pod.key)
        if newest is None or queued is None:
            return
        self.decisions.refused(newest, reason, message, frozenset((plugin,)), queued.attempts, nominated or "")
        if nominated is not None:
            self._promise(newest, nominated)
        self.reporter.failed(newest, message)
        self.reporter.condition(newest, reason, message, nominated)

    def renounce(self, pod: Pod) -> None:
        """The pod is promised no node any more, as long as it is not tried again."""
        newest = self.pending.newest(pod)
        if newest is not None and self.queue.nominator.is_promised(pod.uid):
            self._promise(newest, "")
            self.reporter.nominate(newest, "")

    def _promise(self, pod: Pod, node: str) -> None:
        """A pod that stays in the queue is promised this node, "" for none."""
        self.recorder.promised(pod.uid, node)
        self._nominate(pod, node)

    def _nominate(self, pod: Pod, node: str) -> None:
        """The pod is promised this node, "" for none; the room that it was promised before is free for others."""
        before = self.queue.nominator.node_of(pod.uid)
        self.queue.nominator.add(pod, node)
        if before not in ("", node):
            gone = leaving(pod, before)
            self.queue.move_all(ASSIGNED_POD_DELETE, gone, None, max_priority=pod.priority, exclude_uid=pod.uid)
