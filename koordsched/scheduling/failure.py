"""What happens to a pod that could not be placed or bound: back to the queue, and a word to its owner.

Source: core spec 3.3 (failure return), 5.1 and 5.2.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from koordsched.cluster.pod import Pod
from koordsched.cluster.podevents import ASSIGNED_DELETE, leaving
from koordsched.queue.equivalence import Refusal
from koordsched.queue.item import NO_PLUGINS, QueuedPod
from koordsched.queue.nominator import NOOP, NominatingInfo, NominatingMode
from koordsched.queue.queue import SchedulingQueue
from koordsched.scheduling.pending import PendingPods
from koordsched.scheduling.recording import NOT_RECORDING, Recorder
from koordsched.scheduling.reporter import Reporter

UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"


class FailureHandler:
    """Takes failed pods back."""

    def __init__(
        self,
        queue: SchedulingQueue[Pod],
        pending: PendingPods,
        reporter: Reporter,
        recorder: Recorder = NOT_RECORDING,
    ) -> None:
        self._queue = queue
        self._pending = pending
        self._reporter = reporter
        self._recorder = recorder

    def newest(self, pod: Pod) -> Pod | None:
        """The newest version of a pod; None if there is nothing to retry."""
        return self._pending.newest(pod)

    def handle(
        self,
        queued: QueuedPod[Pod],
        message: str,
        *,
        reason: str,
        plugins: AbstractSet[str] = NO_PLUGINS,
        pending_plugins: AbstractSet[str] = NO_PLUGINS,
        nominating: NominatingInfo = NOOP,
        refusal: Refusal | None = None,
    ) -> None:
        """`plugins` rejected the pod (none: an error); `nominating` says how its nomination changes.

        `refusal`: the same, if it holds for the pod's equivalent pods.
        """
        self._recorder.refused(queued, message, reason, plugins, pending_plugins, nominating)
        newest = self._pending.newest(queued.pod)
        if newest is None:
            # Deleted meanwhile, or another scheduler gave it a node: nothing to retry.
            self._queue.done(queued.pod.uid)
        else:
            self._queue.add_unschedulable_if_not_present(queued, plugins, pending_plugins, pod=newest, refusal=refusal)
            if nominating.mode is NominatingMode.OVERRIDE:
                nominated = self._queue.nominator.node_of(newest.uid)
                self._queue.nominator.add(newest, nominating)
                if nominated not in ("", nominating.node):
                    self._queue.move_all(
                        ASSIGNED_DELETE,
                        leaving(newest, nominated),
                        None,
                        max_priority=newest.priority,
                        exclude_uid=newest.uid,
                    )
            else:
                # Its status may not yet show a nomination made a moment ago.
                self._queue.nominator.update(newest, newest)
        pod = newest or queued.pod
        self._reporter.failed(pod, message)
        if newest is not None:
            override = nominating.node if nominating.mode is NominatingMode.OVERRIDE else None
            self._reporter.condition(newest, reason, message, override)
