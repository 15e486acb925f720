"""The binding cycle: from an assumed pod to a binding in the API server, one task per pod (core spec 3.7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import InitVar, dataclass
from typing import Any, Protocol

from koordsched.cluster.events import ASSIGNED_POD_DELETE
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.engine.attempt import internal_error
from koordsched.framework.diagnosis import one_node_error
from koordsched.framework.handle import WriteFailed
from koordsched.framework.interface import PreBind
from koordsched.framework.permit import WaitingPods
from koordsched.framework.podpatch import PodPatch
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.observability.metrics import Metrics
from koordsched.queue.queue import SchedulingQueue
from koordsched.scheduling.bindingannotations import carried
from koordsched.scheduling.failure import SCHEDULER_ERROR, UNSCHEDULABLE, FailedAttempt, FailureHandler
from koordsched.scheduling.inbox import Inbox
from koordsched.scheduling.placement import AssumedPod
from koordsched.scheduling.recording import NOT_RECORDING, Recorder
from koordsched.scheduling.reporter import Reporter
from koordsched.scheduling.waitnotices import WaitNotices

_log = logging.getLogger(__name__)


class BindsFirst(Protocol):
    """Binds pods instead of the Bind plugins: HTTP extenders."""

    def may_bind(self, pod: Pod) -> bool:
        """Whether it is to be asked."""

    async def bind(self, pod: Pod, node: str) -> Status | None:
        """Binds the pod; None leaves it to the plugins."""


PatchMetadata = Callable[[Pod, Mapping[str, Any]], Awaitable[None]]
"""Merges into the metadata of a pod. Raises WriteFailed."""


@dataclass(eq=False, repr=False)
class BindingCycle:
    """Binds placed pods. `in_flight` is the number of bindings under way; `pressing` leaves out those that only wait.

    A pod that waits, on Permit or in PreBind for something else, sends nothing to the API server meanwhile. If such
    pods counted, a gang larger than the limit could never be complete, and volumes that are never provisioned would
    stop all scheduling.

    `patch_metadata` writes what PreBind plugins changed of a pod, unless the binding carries it. `displaced(uid)` hears
    of pods that lost their place. `first` is asked before the Bind plugins; a placement is undone through the inbox, if
    there is one.
    """

    cluster: ClusterState
    queue: SchedulingQueue[Pod]
    waiting: WaitingPods
    failures: FailureHandler
    reporter: Reporter
    notices: WaitNotices
    metrics: Metrics
    clock: Callable[[], float]
    patch_metadata: PatchMetadata
    displaced: Callable[[str], None]
    first: BindsFirst | None = None
    inbox: InitVar[Inbox | None] = None
    recorder: Recorder = NOT_RECORDING

    def __post_init__(self, inbox: Inbox | None) -> None:
        self._inbox = inbox if inbox is not None else Inbox()
        self._tasks: dict[asyncio.Task[None], AssumedPod] = {}
        self._pre_binding: dict[str, asyncio.Task[Status]] = {}
        self._written: dict[str, PodPatch] = {}
        """uid -> what was sent to be written to a pod before its binding failed; the watch may not show it yet."""
        self._idle = 0
        """Bindings under way that wait for a plugin to let them go on, or for what it waits for itself."""
        self._eased = asyncio.Event()
        self._closing = False
        self._running = self.metrics.running("binding")

    @property
    def in_flight(self) -> int:
        """Bindings under way."""
        return len(self._tasks)

    @property
    def pressing(self) -> int:
        """Those of them that wait for an answer of the API server."""
        return len(self._tasks) - self._idle

    @property
    def under_way(self) -> list[AssumedPod]:
        """The placements whose binding is under way, oldest first."""
        return list(self._tasks.values())

    def start(self, placement: AssumedPod) -> None:
        """Starts to bind the placement, in a task that also handles the outcome."""
        task = asyncio.get_running_loop().create_task(self._bind(placement))
        self._tasks[task] = placement
        self._running.value += 1
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._running.value -= 1
        self._eased.set()
        if not task.cancelled() and task.exception() is not None:
            _log.error("a binding cycle ended in an unexpected error", exc_info=task.exception())

    async def pressing_below(self, limit: int) -> None:
        """Waits until fewer than `limit` bindings are under way, those that only wait apart."""
        while self.pressing >= limit:
            await self._relief()

    async def _relief(self) -> None:
        """Returns when a binding has come to its end, or to a point where it waits."""
        self._eased.clear()
        await self._eased.wait()

    @contextmanager
    def _waits(self) -> Iterator[None]:
        """Inside, a binding that is under way only waits."""
        self._idle += 1
        self._eased.set()
        try:
            yield
        finally:
            self._idle -= 1

    async def close(self) -> None:
        """Lets bindings that are on their way to the API server finish.

        Pods that still wait, on Permit or in PreBind, are given up: the next scheduler tries them again.
        """
        self._closing = True
        for waiting in self.waiting:
            waiting.reject("", "the scheduler is shutting down", Code.ERROR)
        for work in self._pre_binding.values():
            work.cancel()
        while self._tasks:
            await self._relief()

    async def abandon(self) -> None:
        """Ends unfinished bindings: the API server knows their outcome, and the next scheduler asks there."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- one pod ---------------------------------------------------------------------------------

    async def _bind(self, placement: AssumedPod) -> None:
        pod, profile = placement.pod, placement.profile
        try:
            status = await self._steps(placement)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            _log.exception("binding %s to %s failed", pod.title, placement.node)
            status = Status(Code.ERROR, (internal_error(error),))
        now = self.clock()
        if not status.ok:
            if self._closing:
                self.release(placement)
            else:
                self._inbox.put(self.undo, placement, status, now)
            return
        queued = placement.queued
        self.recorder.bound(pod.uid)
        self.reporter.scheduled(pod, placement.node)
        self._written.pop(pod.uid, None)
        self.metrics.attempt("scheduled", profile.name, now - placement.started)
        first = queued.initial_attempt_timestamp
        self.metrics.scheduled(queued.attempts, now - first if first is not None else 0.0, queued.flushed)
        profile.run_post_bind(placement.cycle, pod, placement.node)

    async def _steps(self, placement: AssumedPod) -> Status:
        cycle, pod, profile, node = placement.cycle, placement.pod, placement.profile, placement.node
        work: list[PreBind] = []
        for pre_bind in profile.pre_bind_plugins:
            flight = pre_bind.pre_bind_pre_flight(cycle, pod, node)
            if flight.ok:
                work.append(pre_bind)
            elif flight.code is not Code.SKIP:
                return _named(flight, f'running PreBindPreFlight "{pre_bind.name}"')
        lasting = placement.waits or not all(pre_bind.only_patches for pre_bind in work)
        if lasting and pod.nominated_node != node:
            # Others can see where it is going while it takes its time.
            self.reporter.nominate(pod, node)
        if placement.waits:
            status = await self._wait_on_permit(placement)
            if not status.ok:
                return status
        self.recorder.binding(pod.uid)
        self.queue.done(pod.uid)
        for pre_bind in work:
            began = self.clock()
            status = await self._prepare(placement, pre_bind.name, pre_bind.pre_bind(cycle, pod, node))
            self.metrics.extension_point("PreBind", profile.name, status.code.text).observe(self.clock() - began)
            if not status.ok:
                return _named(status, f'running PreBind plugin "{pre_bind.name}"')
        if (work or pod.uid in self._written) and not (status := await self._patch(placement)).ok:
            return _named(status, 'running PreBindExtension plugin "DefaultPreBind"')
        await self.reporter.withdraw(pod)
        if self.first is not None and self.first.may_bind(pod):
            taken = await self.first.bind(pod, node)
            if taken is not None:
                return taken
        for bind in profile.bind_plugins:
            began = self.clock()
            status = await bind.bind(cycle, pod, node)
            if status.code is Code.SKIP:
                continue
            self.metrics.extension_point("Bind", profile.name, status.code.text).observe(self.clock() - began)
            return status if status.ok else _named(status, f'running Bind plugin "{bind.name}"', bind.name)
        return Status(Code.ERROR, ("no bind plugin took the pod",))

    async def _patch(self, placement: AssumedPod) -> Status:
        """Writes what PreBind plugins changed of the pod's metadata, if it does not show that already.

        The binding carries it if it can. After a failed binding, what the pod shows may be older than what was patched
        before: all of it is written again.
        """
        pod = self.failures.newest(placement.pod) or placement.pod
        metadata = pod.wire.metadata if pod.wire is not None else None
        patch, earlier, shown = placement.cycle.patch, self._written.get(pod.uid), metadata
        if earlier is not None and metadata is not None:
            patch, shown = patch.after(earlier, metadata), None
        changes = patch.changes(shown)
        if not changes:
            return SUCCESS
        if metadata is not None and self._binding_carries_annotations(placement):
            annotations = carried(changes, metadata.annotations)
            if annotations is not None:
                placement.cycle.binding_annotations = annotations
                return SUCCESS
        self._written[pod.uid] = patch
        return await self._prepare(placement, "DefaultPreBind", self._send(pod, changes))

    def _binding_carries_annotations(self, placement: AssumedPod) -> bool:
        pod = placement.pod
        if pod.virtual or (self.first is not None and self.first.may_bind(pod)):
            return False
        return all(bind.carries_annotations for bind in placement.profile.bind_plugins)

    async def _send(self, pod: Pod, metadata: Mapping[str, Any]) -> Status:
        try:
            await self.patch_metadata(pod, metadata)
        except WriteFailed as error:
            return Status(Code.ERROR, (str(error),))
        return SUCCESS

    async def _prepare(self, placement: AssumedPod, plugin: str, work: Coroutine[Any, Any, Status]) -> Status:
        """Part of PreBind: what preemption and the end of the scheduler may cancel."""
        uid = placement.pod.uid
        placement.cycle.waiting_for_others = self._waits
        task = asyncio.ensure_future(work)
        self._pre_binding[uid] = task
        message = f"placed on {placement.node}, plugin {plugin} prepares its binding"
        self.notices.begin(placement.pod, plugin, "PreparingBinding", message)
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise  # it is this binding cycle that is being cancelled, not only the plugin's work
            return Status(Code.ERROR, ("preempted by a pod of higher priority",))
        finally:
            self._pre_binding.pop(uid, None)
            self.notices.end(placement.pod, plugin)

    def cancel(self, uid: str) -> bool:
        """Stops the binding of a pod that is in PreBind; False if it is not."""
        task = self._pre_binding.get(uid)
        return task is not None and task.cancel()

    async def _wait_on_permit(self, placement: AssumedPod) -> Status:
        pod = placement.pod
        started = self.clock()
        waiting = self.waiting.get(pod.uid)
        assert waiting is not None, "it waits since it was placed"
        names = ", ".join(placement.waits)
        self.notices.begin(pod, names, "WaitingOnPermit", f"placed on {placement.node}, waiting for plugin {names}")
        try:
            with self._waits():
                status = await waiting.wait()
        finally:
            self.waiting.remove(pod.uid)
            self.notices.end(pod, names)
        self.metrics.permit_wait_duration.labels(status.code.text).observe(self.clock() - started)
        return status

    def release(self, placement: AssumedPod) -> None:
        """Takes back a placement for good: the next scheduler finds the pod where it is."""
        self.recorder.released(placement.pod.uid)
        self._free(placement)

    def _free(self, placement: AssumedPod) -> None:
        self.waiting.remove(placement.pod.uid)
        placement.profile.run_unreserve(placement.cycle, placement.pod, placement.row)
        if self.cluster.forget(placement.pod):
            self.displaced(placement.pod.uid)

    def undo(self, placement: AssumedPod, status: Status, now: float) -> None:
        """Takes back a placement whose binding failed at `now`, seconds of the clock: the pod is tried again."""
        pod, profile = placement.pod, placement.profile
        self.recorder.undone(pod.uid, status)
        gone = copy(pod)  # as it was on its node: hints ask whether the room that is free now is on one
        self._free(placement)
        rejected = status.code.rejects
        self.queue.move_all(ASSIGNED_POD_DELETE, gone, None, exclude_uid=pod.uid if rejected else None)
        self.metrics.attempt("unschedulable" if rejected else "error", profile.name, now - placement.started)
        if rejected:
            failed = FailedAttempt(UNSCHEDULABLE, one_node_error(status), frozenset((status.plugin,)), nominated="")
        else:
            nominated = placement.node if self._keeps_nomination(placement, status) else ""
            failed = FailedAttempt(SCHEDULER_ERROR, status.message, nominated=nominated)
        self.failures.handle(placement.queued, failed)
        known = self.failures.pending.by_uid
        self._written = {uid: patch for uid, patch in self._written.items() if uid in known}

    def _keeps_nomination(self, placement: AssumedPod, status: Status) -> bool:
        """Whether a pod whose binding failed stays nominated to the node.

        If only the binding was rejected, the node is still right. If other pods took the room that was made for the pod
        there, it would preempt pods elsewhere, over and over.
        """
        newest = self.failures.newest(placement.pod)
        shown = newest is not None and newest.nominated_node == placement.node
        return (shown or placement.nominated_here) and any(
            status.plugin == bind.name for bind in placement.profile.bind_plugins
        )


def _named(status: Status, step: str, plugin: str = "") -> Status:
    """Failures after the wait name the step: they back off as errors, whichever `plugin` they come from."""
    return Status(Code.ERROR, (f"{step}: {status.message}",), plugin) if status.code is not Code.SUCCESS else SUCCESS
