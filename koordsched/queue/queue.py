"""The scheduling queue: which pod is tried next, and when the others get their next chance.

A pod is in exactly one place: *active* (to be tried, in the order of QueueSort), *backoff* (failed a moment ago),
*unschedulable* (nothing has happened that could change the verdict), *gated* (a PreEnqueue plugin keeps it out), or *in
flight* (popped, and not done). Semantics: core spec 3.3 (`backend/queue/scheduling_queue.go`).

The queue belongs to the scheduler's event loop: it takes no locks, starts no timers and never blocks. Times are seconds
of the injected clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Generic

from koordsched.cluster.events import (
    FORCE_ACTIVATE,
    SCHEDULE_ATTEMPT_FAILURE,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_UPDATE,
    ClusterEvent,
)
from koordsched.queue.active import SortKey
from koordsched.queue.backoff import BackoffPolicy
from koordsched.queue.equivalence import Refusal
from koordsched.queue.gating import Gate, PreEnqueue
from koordsched.queue.hints import HintTable, Strategy
from koordsched.queue.inflight import InFlight, InFlightPod
from koordsched.queue.item import NO_PLUGINS, P, Place, QueuedPod
from koordsched.queue.nominatedpods import concerned_nominated, drop_waiting_nominated
from koordsched.queue.nominator import Nominator
from koordsched.queue.queues import Queues
from koordsched.queue.timers import MAX_UNSCHEDULABLE, QueueTimers
from koordsched.queue.unschedulable import EquivalenceKey

#: Seconds for which a refusal is taken over by equivalent pods that come after it.
REFUSAL_HOLDS = 1.0


@dataclass(frozen=True)
class QueueProfile(Generic[P]):
    """What a profile provides: its hints, its PreEnqueue plugins by name in configured order, and which pods are
    equivalent. `admitted`: plugins that hear of pods that are let in; `gated`: by name, those that hear of pods that
    another one keeps out.
    """

    hints: HintTable[P]
    pre_enqueue: Mapping[str, PreEnqueue[P]] = field(default_factory=dict)
    equivalence_key: EquivalenceKey[P] = lambda pod: None
    admitted: Sequence[Callable[[P], None]] = ()
    gated: Mapping[str, Callable[[P], None]] = field(default_factory=dict)


class SchedulingQueue(Generic[P]):
    """The pending pods of all profiles.

    `profiles` by scheduler name; `sort_key` is the QueueSort plugin, one for all profiles; `is_pending` tells the
    nominator whether a pod still exists and has no node. `fair_namespaces`: among pods of equal priority, namespaces
    take turns.
    """

    def __init__(
        self,
        profiles: Mapping[str, QueueProfile[P]],
        *,
        clock: Callable[[], float],
        sort_key: SortKey,
        is_pending: Callable[[P], bool],
        backoff: BackoffPolicy | None = None,
        max_unschedulable: float = MAX_UNSCHEDULABLE,
        fair_namespaces: bool = False,
    ) -> None:
        self._clock = clock
        self._tables: dict[str, HintTable[P]] = {}
        self._gates: dict[str, Gate[P]] = {}
        self._equivalence_keys: dict[str, EquivalenceKey[P]] = {}
        self._nonempty = asyncio.Event()
        self._queues: Queues[P] = Queues(
            gates=self._gates,
            tables=self._tables,
            equivalence_keys=self._equivalence_keys,
            policy=backoff or BackoffPolicy(),
            sort_key=sort_key,
            clock=clock,
            on_arrival=self._nonempty.set,
            fair=fair_namespaces,
        )
        self._equivalents = self._queues.unschedulable.equivalents
        self._in_flight: InFlight[P] = InFlight()
        self._sequence = 0
        self._interesting: dict[ClusterEvent, bool] = {}
        for name, profile in profiles.items():
            self.add_profile(name, profile)
        self.nominator: Nominator[P] = Nominator(is_pending)
        #: What time does to the pods; `run` is to be called every whole second.
        self.timers = QueueTimers(self._queues, self._in_flight, clock, max_unschedulable)
        self.counters = self._queues.counters
        #: Number of pods popped so far.
        self.scheduling_cycle = 0

    def add_profile(self, name: str, profile: QueueProfile[P]) -> None:
        """Takes pods of this scheduler name, too. To be called before there are any."""
        self._tables[name] = profile.hints
        self._gates[name] = Gate(profile.pre_enqueue, profile.admitted, profile.gated)
        self._equivalence_keys[name] = profile.equivalence_key
        self._interesting.clear()

    # Watch events of pending pods

    def add(self, pod: P) -> Place:
        """A pending pod appeared. Returns where it went: NOWHERE if no profile is responsible for it."""
        return self._enter(pod, UNSCHEDULABLE_POD_ADD.label)

    def update(self, old: P, new: P, events: Sequence[ClusterEvent] = ()) -> Place:
        """A pending pod changed; `events` are its change events. Returns where it is now.

        It stays where it is unless it is unschedulable and one of the events helps it.
        """
        flight = self._in_flight.get(new.uid)
        if flight is not None:
            flight.latest = new
            for event in events:
                self._in_flight.record_own(flight, event, old, new)
            return Place.IN_FLIGHT
        queued = self._queues.find(new)
        if queued is None:
            return self._enter(new, UNSCHEDULABLE_POD_UPDATE.label)
        self.nominator.update(old, new)
        self._queues.renew(queued, new)
        if queued.place in (Place.UNSCHEDULABLE, Place.GATED):
            self._wake_by_own_change(queued, events, old)
        return queued.place

    def delete(self, pod: P) -> None:
        """A pending pod is gone, or got a node. One in flight will not come back."""
        self.nominator.delete(pod.uid)
        flight = self._in_flight.get(pod.uid)
        if flight is not None:
            flight.gone = True
        queued = self._queues.find(pod)
        if queued is not None:
            self._queues.drop(queued)

    def returns(self, pod: P) -> bool:
        """A pod that was gone is there again; one in flight will come back. Returns whether it is one."""
        flight = self._in_flight.get(pod.uid)
        if flight is None:
            return False
        flight.latest, flight.gone = pod, False
        return True

    def _enter(self, pod: P, label: str) -> Place:
        """Take in a pod that is in no queue, or replace what is left of an earlier pod of the same name."""
        key = pod.key
        present = self._queues.get(key)
        if present is not None:
            if present.pod.uid == pod.uid:
                return self.update(present.pod, pod)
            self.nominator.delete(present.pod.uid)
            self._queues.drop(present)
        if pod.shape.scheduler_name not in self._tables:
            return Place.NOWHERE
        if self.returns(pod):
            return Place.IN_FLIGHT
        # Also for a pod that turns out gated: after a restart the nominations must be those from before it.
        if pod.nominated_node:
            self.nominator.add(pod)
        self._sequence += 1
        return self._queues.enter(QueuedPod(pod, key, self._clock(), self._sequence), label)

    def _wake_by_own_change(self, queued: QueuedPod[P], events: Sequence[ClusterEvent], old: P | None) -> None:
        table = self._tables[queued.profile]
        for event in events:
            strategy = table.strategy(queued, event, old, queued.pod, own=True)
            if strategy and self._queues.wake(queued, strategy, event.label) is not Place.GATED:
                return

    # The scheduling cycle

    def pop(self) -> QueuedPod[P] | None:
        """The pod to try now, None if there is none; it is in flight until `done` or its return.

        If nothing is active, a rejected pod is taken before its back-off ends; one that met an error is not.
        """
        queued = self._queues.pop()
        return None if queued is None else self._start_attempt(queued)

    def pop_pod(self, pod: P) -> QueuedPod[P] | None:
        """Pop this pod out of turn, wherever it waits; None if it is in no queue. Its nomination stays.

        For plugins that decide themselves what comes next (gangs).
        """
        queued = self._queues.find(pod)
        if queued is None:
            return None
        self._queues.take(queued)
        if queued.initial_attempt_timestamp is None:
            queued.initial_attempt_timestamp = self._clock()
        return self._start_attempt(queued)

    def candidate(self, pod: P, plugins: Container[str]) -> P | None:
        """The newest version of a pod that waits in a queue and may be tried; None if it is in no queue, or if a
        PreEnqueue plugin other than these keeps it out.
        """
        queued = self._queues.find(pod)
        if queued is None or self.is_refused(queued, plugins):
            return None
        return queued.pod

    def is_refused(self, queued: QueuedPod[P], but_for: Container[str]) -> bool:
        """Whether a PreEnqueue plugin other than these would keep a pod out, wherever it is."""
        return self._gates[queued.profile].refuses(queued, but_for)

    def met_error(self, pod: P) -> bool:
        """Whether the last attempt at a pod that waits in a queue ended in an error."""
        queued = self._queues.find(pod)
        return queued is not None and queued.consecutive_errors > 0

    def ask_again(self, pods: Iterable[P], gated_by: Container[str]) -> None:
        """Ask the PreEnqueue plugins about waiting pods again, but for those that others than `gated_by` keep out.

        For pods that were not tried because a plugin keeps them out by now, whose events wake them from then on, or
        because they rest. Those that it lets in again are tried after their back-off.
        """
        for pod in pods:
            queued = self._queues.find(pod)
            if queued is None or (queued.gating_plugin and queued.gating_plugin not in gated_by):
                continue
            if queued.place in (Place.UNSCHEDULABLE, Place.GATED):
                self._queues.wake(queued, Strategy.AFTER_BACKOFF, FORCE_ACTIVATE.label)

    async def wait_nonempty(self) -> None:
        """Wait until `pop` would return a pod."""
        while not self._queues.poppable:
            self._nonempty.clear()
            await self._nonempty.wait()

    def _start_attempt(self, queued: QueuedPod[P]) -> QueuedPod[P]:
        if queued.rejected_by:
            self.counters.released(queued.profile, queued.rejected_by)
            queued.rejected_by = queued.waits_for = NO_PLUGINS
        queued.gating_plugin = queued.gating_reason = ""
        queued.attempts += 1
        queued.place = Place.IN_FLIGHT
        self.scheduling_cycle += 1
        self._in_flight.start(queued)
        return queued

    def done(self, uid: str) -> None:
        """The pod needs no replay of events any more. Unknown pods are ignored."""
        flight = self._in_flight.done(uid)
        if flight is not None:
            flight.queued.place = Place.NOWHERE
            if flight.queued.probes_for is not None:
                self._queues.relieve(flight.queued)

    def refusal_of_equivalent(self, queued: QueuedPod[P]) -> Refusal | None:
        """How a popped pod would be rejected, if that is certain: an equivalent pod was rejected a moment ago, and
        rests.

        Events that may help would have woken the equivalent pod. Hints may still have missed something, so this
        holds for `REFUSAL_HOLDS` seconds, and never for a pod that is retried because it waited for too long. Nor
        for one that is nominated to a node, even if its status does not say so yet.
        """
        equivalents = self._equivalents.get(queued.pod.shape)
        if equivalents is None or queued.flushed or self.nominator.node_of(queued.pod.uid):
            return None
        return self._queues.unschedulable.refusal_of(queued.pod, equivalents, self._clock() - REFUSAL_HOLDS)

    def placed(self, queued: QueuedPod[P]) -> None:
        """A popped pod has found a node: an equivalent pod may, too."""
        if queued.probes_for is not None:
            self._queues.relieve(queued)

    def add_unschedulable_if_not_present(
        self,
        queued: QueuedPod[P],
        unschedulable_plugins: AbstractSet[str] = NO_PLUGINS,
        pending_plugins: AbstractSet[str] = NO_PLUGINS,
        *,
        pod: P | None = None,
        refusal: Refusal | None = None,
        through_backoff: bool = False,
        rest: float = 0.0,
    ) -> Place:
        """The attempt failed: take the pod back and call `done` for it. Returns where it is now.

        `unschedulable_plugins` rejected it, `pending_plugins` (counted among them) wait for something of their own;
        none of either means an error. `pod` is its newest version, if the caller knows a newer one than the queue.
        `refusal`: the same for equivalent pods, if what refused the pod would refuse them: a new object after an
        evaluation, that of `refusal_of_equivalent` if there was none. `through_backoff`: it is tried again after its
        back-off, which is waited out, and waits for no event. `rest`: seconds in which nothing has it tried again.
        Events since it was popped are replayed. A pod deleted meanwhile is dropped; if the queue holds one of its
        name already, that one is left alone.
        """
        flight = self._in_flight.get(queued.pod.uid)
        present = self._queues.get(queued.key)
        if present is not None or (flight is not None and flight.gone):
            self.done(queued.pod.uid)
            return queued.place
        if pod is None and flight is not None:
            pod = flight.latest
        if pod is not None and pod is not queued.pod:
            queued.pod = pod
            refusal = None  # it was another version that was evaluated
        if refusal is not None and self.nominator.node_of(queued.pod.uid):
            refusal = None
        rejecting = frozenset(unschedulable_plugins) | frozenset(pending_plugins)
        if rejecting:
            queued.unschedulable_count += 1
            queued.consecutive_errors = 0
        else:
            queued.consecutive_errors += 1
        queued.rejected_by = rejecting
        queued.waits_for = frozenset(pending_plugins)
        queued.waits_for_node = self.nominator.node_of(queued.pod.uid)
        queued.timestamp = self._clock()
        queued.backoff_expiry = None
        queued.flushed = False
        self.counters.rejected(queued.profile, rejecting)
        queued.rest = rest
        queued.waits_out = through_backoff or rest > 0
        strategy = Strategy.AFTER_BACKOFF if through_backoff else self._replay(queued, flight)
        if flight is not None:
            # Of a pod that came anew after `done`, another attempt may be under way: this ends that one, too.
            flight.queued.place = Place.NOWHERE
        self._in_flight.done(queued.pod.uid)
        place = self._queues.requeue(queued, strategy, SCHEDULE_ATTEMPT_FAILURE, refusal)
        if place in (Place.UNSCHEDULABLE, Place.GATED):
            self.counters.incoming["unschedulable", SCHEDULE_ATTEMPT_FAILURE] += 1
        self._queues.relieve(queued)
        return place

    def _replay(self, queued: QueuedPod[P], flight: InFlightPod[P] | None) -> Strategy:
        """What the events since the pod was popped are worth to it."""
        events = self._in_flight.events_since(flight) if flight is not None else None
        if flight is None or events is None or not queued.rejected_by:
            return Strategy.AFTER_BACKOFF
        table = self._tables[queued.profile]
        most = Strategy.IMMEDIATELY if queued.waits_for else Strategy.AFTER_BACKOFF
        best = Strategy.SKIP
        nominated = queued.waits_for_node
        for own, recorded in ((True, flight.own_events), (False, events)):
            for event, old, new in recorded:
                best = max(best, table.strategy(queued, event, old, new, own=own, nominated=nominated))
                if best is most:
                    return best
        return best

    # Events that may wake pods

    def move_all(
        self,
        event: ClusterEvent,
        old: Any = None,
        new: Any = None,
        *,
        max_priority: int | None = None,
        exclude_uid: str | None = None,
    ) -> int:
        """Something in the cluster changed: give the pods it may help another chance. Returns how many that were.

        `max_priority` leaves pods of a higher priority alone, `exclude_uid` one pod; both hold for pods that wait, not
        for those in flight. An event that no plugin registered costs one dictionary lookup.
        """
        interesting = self._interesting.get(event)
        if interesting is None:
            interesting = event.is_wildcard or any(table.awaits(event) for table in self._tables.values())
            self._interesting[event] = interesting
        if not interesting:
            return 0
        chosen = self._queues.unschedulable.concerned(event, old, new, self._clock(), exclude_uid)
        if len(self.nominator):
            where = self._tables, self.nominator
            chosen = drop_waiting_nominated(chosen, event, old, new, *where) if chosen else chosen
            chosen = concerned_nominated(event, old, new, *where, self._queues.find) | chosen
        if max_priority is not None or exclude_uid is not None:
            chosen = {
                queued: strategy
                for queued, strategy in chosen.items()
                if (max_priority is None or queued.pod.priority <= max_priority) and queued.pod.uid != exclude_uid
            }
        if chosen:
            self._queues.move(chosen, event.label)
        self._in_flight.record(event, old, new)
        return len(chosen)

    def activate(self, pods: Iterable[P]) -> None:
        """Try these pods at once, those that met an error after their back-off; PreEnqueue plugins may still refuse
        them.

        One in flight is retried if it comes back; others are ignored.
        """
        for pod in pods:
            queued = self._queues.find(pod)
            if queued is None:
                flight = self._in_flight.get(pod.uid)
                if flight is not None:
                    self._in_flight.record_own(flight, FORCE_ACTIVATE, None, pod)
            else:
                self._queues.activate(queued, FORCE_ACTIVATE.label)

    # Looking

    def get(self, key: str) -> QueuedPod[P] | None:
        """The pod of this `namespace/name` in any of the queues."""
        return self._queues.get(key)

    def pending(self) -> dict[str, int]:
        """Metric pending_pods: pods by queue."""
        queues = self._queues
        return {
            "active": len(queues.active),
            "backoff": len(queues.backoff),
            "unschedulable": queues.unschedulable.waiting,
            "gated": queues.unschedulable.gated,
        }

    def in_flight_events(self) -> dict[str, int]:
        """Metric inflight_events: recorded events by label, and `PodPopped`."""
        return self._in_flight.event_counts()

    def in_flight_pods(self) -> list[P]:
        """The popped pods that are not done, in the order they were popped."""
        return self._in_flight.pods()

    def summary(self) -> str:
        """The lengths of the queues, as in kube-scheduler's debug dump."""
        queues = self._queues
        return (
            f"activeQ:{len(queues.active)}; backoffQ:{len(queues.backoff)}; "
            f"unschedulablePods:{len(queues.unschedulable)}"
        )

    def __iter__(self) -> Iterator[QueuedPod[P]]:
        """The pods in all queues: active in order, backing off by expiry, then the unschedulable and the gated."""
        return iter(self._queues)

    def __len__(self) -> int:
        return len(self._queues)
