"""Applies the records of a journal to a scheduler without an API server.

It is the real scheduler: queue, cycle, plugins, preemption. But it has no watches, sends no writes, and runs nothing in
the background: all input comes from the journal, step by step.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, TypeVar

import msgspec

from koordsched.api import podstates
from koordsched.api.meta import HasMetadata
from koordsched.client.clock import Clock
from koordsched.client.errors import NotSent
from koordsched.client.inmemory import InMemoryTransport
from koordsched.client.lanes import Lanes
from koordsched.client.sink import ObjectKey
from koordsched.cluster.pod import Pod
from koordsched.framework.profile import PluginFactory
from koordsched.framework.status import Code, Status
from koordsched.journal.checkpoint import restore
from koordsched.journal.header import Setting
from koordsched.journal.objects import PODS
from koordsched.journal.records import (
    Activated,
    Attempt,
    BadRecord,
    Binding,
    Bound,
    Checkpoint,
    Deleted,
    Evicted,
    Leading,
    Read,
    Released,
    Step,
    Timers,
    Undone,
    Unreadable,
    Upsert,
)
from koordsched.journal.repeating import Repeater
from koordsched.observability.metrics import Metrics
from koordsched.plugins import KINDS
from koordsched.queue.item import QueuedPod
from koordsched.scheduling.placement import AssumedPod
from koordsched.scheduling.recording import Recorder
from koordsched.scheduling.reporter import Reporter
from koordsched.scheduling.scheduler import Scheduler

_log = logging.getLogger(__name__)

T = TypeVar("T")

_decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {
    **{kind.path: msgspec.msgpack.Decoder(kind.type) for kind in KINDS.values()},
    PODS: msgspec.msgpack.Decoder(podstates.Pod),
}


def _decoded(record: Upsert) -> Any:
    """The object. Raises BadRecord if it is not as this version knows it."""
    try:
        return _decoders[record.path].decode(record.object)
    except msgspec.MsgspecError as error:
        raise BadRecord(f"an object of {record.path} that cannot be understood: {error}") from None


def _code(name: str) -> Code:
    try:
        return Code[name]
    except KeyError:
        raise BadRecord(f"a binding that failed with the unknown status {name!r}") from None


async def _unreachable(*request: object) -> Any:
    raise NotSent("a replay sends nothing")


def _leave(work: Coroutine[Any, Any, None]) -> None:
    """The outcome of an eviction is in the journal."""
    work.close()


def _finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError("something is waited for that is not in the journal")


class ReplayedScheduler:
    """A scheduler in the state after the records applied so far: the cluster, bindings, evictions."""

    def __init__(
        self, setting: Setting, registry: Mapping[str, PluginFactory], clock: Clock, recorder: Recorder
    ) -> None:
        """To be built where an event loop runs, though it never gets anything to do. `clock` times, for metrics.

        Raises ProfileError if the profiles cannot be built.
        """
        rng = Random(0)  # for back-offs of requests, which are not made
        transport = InMemoryTransport(_unreachable)
        self.scheduler = Scheduler(
            setting.resolved,
            registry,
            transport=transport,
            lanes=Lanes(transport, clock, rng),
            clock=clock,
            rng=rng,
            metrics=Metrics(process_metrics=False),
            hostname="",
            max_unschedulable=setting.max_unschedulable,
            fair_namespaces=setting.fair_namespaces,
            own_pod=setting.own_pod,
            recorder=recorder,
            reporter=Reporter(),
            launch=_leave,
        )
        self._sinks = self.scheduler.watches.sinks
        self._placements: dict[str, AssumedPod] = {}
        """Pods whose binding is under way."""
        self._steps: dict[type[Any], Callable[[Any], None]] = {
            Upsert: self._upsert,
            Deleted: self._deleted,
            Unreadable: self._unreadable,
            Binding: self._binding,
            Bound: self._bound,
            Undone: self._undone,
            Released: self._released,
            Evicted: lambda record: self.scheduler.evictions.over(record.uid),
            Leading: lambda record: None,
            Read: lambda record: self.scheduler.plugin_states.repeat(record.plugin),
        }

    def restore(self, checkpoint: Checkpoint, objects: Mapping[str, list[Upsert]]) -> None:
        """Begins with a checkpoint; `objects` by path."""
        present = {path: [*map(_decoded, records)] for path, records in objects.items() if path in self._sinks}
        departed: dict[str, list[HasMetadata]] = {}
        for record in (*checkpoint.departed, *(pod for pod, _ in checkpoint.abandoned)):
            if record.path in self._sinks:
                departed.setdefault(record.path, []).append(_decoded(record))
        self._placements = restore(self.scheduler, checkpoint, present, departed)

    # --- changes of the cluster ----------------------------------------------------------------------

    def _upsert(self, record: Upsert) -> None:
        sink = self._sinks.get(record.path)
        if sink is None:
            return  # what only controllers read, or plugins that are not enabled here
        self._apply(partial(sink.upsert, anew=record.anew), _decoded(record))

    def _deleted(self, record: Deleted) -> None:
        if (sink := self._sinks.get(record.path)) is not None:
            self._apply(sink.delete_key, ObjectKey(record.namespace, record.name, record.uid))

    def _unreadable(self, record: Unreadable) -> None:
        if record.reason:
            self.scheduler.unreadable.refused(record.path, record.reason)
        else:
            self.scheduler.unreadable.readable(record.path)

    @staticmethod
    def _apply(change: Callable[[Any], None], what: Any) -> None:
        try:
            change(what)
        except Exception:
            # As where it was recorded: an object that cannot be taken in is left out.
            _log.debug("a recorded change cannot be taken in", exc_info=True)

    # --- outcomes of bindings --------------------------------------------------------------------------------

    def _binding(self, record: Binding) -> None:
        self.scheduler.waiting.remove(record.uid)
        self.scheduler.queue.done(record.uid)

    def _bound(self, record: Bound) -> None:
        placement = self._placements.pop(record.uid, None)
        if placement is not None:
            placement.profile.run_post_bind(placement.cycle, placement.pod, placement.node)

    def _undone(self, record: Undone) -> None:
        placement = self._placements.pop(record.uid, None)
        if placement is not None:
            status = Status(_code(record.code), record.reasons, record.plugin)
            self.scheduler.binding.undo(placement, status, placement.started)

    def _released(self, record: Released) -> None:
        placement = self._placements.pop(record.uid, None)
        if placement is not None:
            self.scheduler.binding.release(placement)


class RepeatingScheduler(ReplayedScheduler):
    """A replayed scheduler that makes the decisions itself."""

    def __init__(
        self, setting: Setting, registry: Mapping[str, PluginFactory], clock: Clock, repeater: Repeater
    ) -> None:
        """Raises ProfileError."""
        super().__init__(setting, registry, clock, repeater)
        self._repeater = repeater
        self._steps |= {Timers: self._timers, Attempt: self._attempt, Activated: self._activated}

    def restore(self, checkpoint: Checkpoint, objects: Mapping[str, list[Upsert]]) -> None:
        """Begins with a checkpoint."""
        with self._repeater.unrecorded_questions():
            super().restore(checkpoint, objects)
        self._repeater.lenient = True

    def step(self, record: Step) -> None:
        """Carries out the record, and compares the outcome."""
        self._steps[type(record)](record)
        self._repeater.step_over()

    def _timers(self, record: Timers) -> None:
        self._repeater.at(record.at)
        self.scheduler.run_timers()

    def _attempt(self, record: Attempt) -> None:
        self._repeater.at(record.at)
        queued = self._pop(record.uid)
        if queued is None or queued.pod.uid != record.uid:
            now = queued.pod.title if queued is not None else "none"
            self._repeater.differ(f"the next pod is {record.pod}", f"the next pod is {now}")
            return
        for placement in self._schedule(queued):
            self._placements[placement.pod.uid] = placement

    def _schedule(self, queued: QueuedPod[Pod]) -> Sequence[AssumedPod]:
        try:
            return _finished(self.scheduler.schedule(queued))
        except asyncio.CancelledError as ended:
            if isinstance(ended.__cause__, BadRecord):
                raise ended.__cause__ from None
            return ()

    def _undone(self, record: Undone) -> None:
        known = record.uid in self._placements
        super()._undone(record)
        if not known:
            self._repeater.leave_out_refusal(record.uid)

    def _pop(self, uid: str) -> QueuedPod[Pod] | None:
        """The next pod; after a checkpoint the one that was next then."""
        queue = self.scheduler.queue
        if not self._repeater.lenient:
            return queue.pop()
        pod = self.scheduler.pending_pod(uid)
        return queue.pop_pod(pod) if pod is not None else None

    def _activated(self, record: Activated) -> None:
        self.scheduler.evictions.activate(record.uid, self.scheduler.pending_pod(record.uid))
