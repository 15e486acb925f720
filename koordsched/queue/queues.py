"""The three queues as one: a pod is in exactly one of them, and moves between them by the same rules everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic

from koordsched.cluster.events import POP_FROM_BACKOFF_Q
from koordsched.queue.active import ActiveQueue, SortKey
from koordsched.queue.backoff import BackoffPolicy, BackoffQueue
from koordsched.queue.counters import QueueCounters
from koordsched.queue.equivalence import Refusal
from koordsched.queue.fair import FairActiveQueue
from koordsched.queue.gating import Gate
from koordsched.queue.hints import HintTable, Strategy
from koordsched.queue.item import P, Place, QueuedPod
from koordsched.queue.unschedulable import EquivalenceKey, UnschedulablePods


class Queues(Generic[P]):
    """activeQ, backoffQ and the unschedulable pods; PreEnqueue and back-off decide where a pod goes.

    Every arrival is counted by queue and event label; `on_arrival` is called when a pod became poppable. `fair`: among
    pods of equal priority namespaces take turns.
    """

    def __init__(
        self,
        gates: Mapping[str, Gate[P]],
        tables: Mapping[str, HintTable[P]],
        equivalence_keys: Mapping[str, EquivalenceKey[P]],
        policy: BackoffPolicy,
        sort_key: SortKey,
        clock: Callable[[], float],
        on_arrival: Callable[[], None],
        *,
        fair: bool,
    ) -> None:
        self._gates = gates
        self._policy = policy
        self._clock = clock
        self._on_arrival = on_arrival
        self.active: ActiveQueue[P] | FairActiveQueue[P] = FairActiveQueue(sort_key) if fair else ActiveQueue(sort_key)
        self.backoff: BackoffQueue[P] = BackoffQueue(sort_key)
        self.counters = QueueCounters()
        self.unschedulable: UnschedulablePods[P] = UnschedulablePods(tables, equivalence_keys, policy, self.counters)
        self._by_key: dict[str, QueuedPod[P]] = {}

    # Looking

    def get(self, key: str) -> QueuedPod[P] | None:
        """The pod of this `namespace/name`."""
        return self._by_key.get(key)

    def find(self, pod: P) -> QueuedPod[P] | None:
        """This very pod; None if there is none, or another of the same name."""
        queued = self._by_key.get(pod.key)
        return queued if queued is not None and queued.pod.uid == pod.uid else None

    @property
    def poppable(self) -> bool:
        """Whether `pop` would return a pod."""
        return bool(self.active) or self.backoff.poppable

    def __iter__(self) -> Iterator[QueuedPod[P]]:
        yield from self.active
        yield from self.backoff
        yield from self.unschedulable

    def __len__(self) -> int:
        return len(self._by_key)

    # Moving

    def enter(self, queued: QueuedPod[P], label: str) -> Place:
        """A new pod: active, unless a PreEnqueue plugin refuses it."""
        if not self._admit(queued):
            self._keep(queued)
            self.counters.incoming["unschedulable", label] += 1
            self._tell_gated((queued,))
            return queued.place
        queued.initial_attempt_timestamp = queued.timestamp
        self.active.add(queued)
        self._by_key[queued.key] = queued
        self.counters.incoming["active", label] += 1
        self._on_arrival()
        return Place.ACTIVE

    def pop(self) -> QueuedPod[P] | None:
        """The head of active, else the rejected pod next to finish its back-off, else None."""
        queued = self.active.pop()
        if queued is None:
            queued = self.backoff.pop_early()
            if queued is None:
                return None
            self.counters.incoming["active", POP_FROM_BACKOFF_Q] += 1
        del self._by_key[queued.key]
        return queued

    def renew(self, queued: QueuedPod[P], pod: P) -> None:
        """A pod has a new version; it stays where it is, unless it rested while an equivalent pod was tried for it."""
        if queued.place in (Place.UNSCHEDULABLE, Place.GATED):
            left = self.unschedulable.replace_pod(queued, pod)
            if left is not None and left.probe is not None:
                self.move({queued: left.strategy}, left.label)
            return
        if queued.place is Place.ACTIVE:
            self.active.remove(queued)
            queued.pod = pod
            self.active.add(queued)
        else:
            self.backoff.remove(queued)
            queued.pod = pod
            self.backoff.add_all([queued])
        self.relieve(queued)

    def requeue(self, queued: QueuedPod[P], strategy: Strategy, label: str, refusal: Refusal | None = None) -> Place:
        """Put a pod that is in no queue where an event of this worth sends it; arrivals in active and backoff count.

        `refusal`: how its attempt ended, if that holds for its equivalent pods, too.
        """
        if not strategy:
            self._keep(queued, refusal)
        elif not self._admit(queued):
            self._keep(queued, refusal)
            self._tell_gated((queued,))
        else:
            self._let_in(queued, strategy, label)
        return queued.place

    def wake(self, queued: QueuedPod[P], strategy: Strategy, label: str) -> Place:
        """The same for a pod that is unschedulable or gated."""
        if queued.place is not Place.GATED:
            self.take(queued)
            return self.requeue(queued, strategy, label)
        if self._stays_gated(queued):
            self._tell_gated((queued,))
        else:
            self.take(queued)
            self._let_in(queued, strategy, label)
        return queued.place

    def _let_in(self, queued: QueuedPod[P], strategy: Strategy, label: str) -> None:
        if _waits(queued, strategy) and self._policy.is_backing_off(queued, self._clock()):
            self._back_off_all([queued], label)
        else:
            self.activate_all([queued], label)

    def move(self, chosen: Mapping[QueuedPod[P], Strategy], label: str) -> None:
        """Move unschedulable pods by what an event is worth to each; one of equivalent pods becomes their probe."""
        now = self._clock()
        policy = self._policy
        activated: list[QueuedPod[P]] = []
        backing_off: list[QueuedPod[P]] = []
        gated: list[QueuedPod[P]] = []
        moving = list(chosen.items())
        for queued, strategy in moving:
            equivalents = queued.equivalents
            if queued.place is Place.GATED:
                refused = self._stays_gated(queued)
                if not refused:
                    self.unschedulable.remove(queued)
            else:
                self.unschedulable.remove(queued)
                if equivalents is not None and equivalents.probe is None:
                    equivalents.send(queued, strategy, label)
                refused = not self._admit(queued)
                if refused:
                    self._keep(queued)
            if refused:
                self.counters.incoming["unschedulable", label] += 1
                gated.append(queued)
                moving.extend(self._relief(queued))
            elif _waits(queued, strategy) and policy.is_backing_off(queued, now):
                backing_off.append(queued)
            else:
                activated.append(queued)
        self.activate_all(activated, label)
        self._back_off_all(backing_off, label)
        self._tell_gated(gated)

    def relieve(self, probe: QueuedPod[P]) -> None:
        """The outcome of a probe says nothing about the equivalent pods it was tried for, if there are any: try the
        next one."""
        if probe.probes_for is not None:
            label = probe.probes_for.label
            self.move(dict(self._relief(probe)), label)

    def _relief(self, probe: QueuedPod[P]) -> list[tuple[QueuedPod[P], Strategy]]:
        """The next of the equivalent pods to go, as one item of `move`; nothing if the probe is not the one they
        wait for."""
        equivalents, probe.probes_for = probe.probes_for, None
        if equivalents is None or equivalents.probe is not probe:
            return []
        equivalents.probe = None
        follower = self.unschedulable.next_of(equivalents, self._clock())
        if follower is None:
            return []
        follower.flushed = equivalents.flushed
        return [(follower, equivalents.strategy)]

    def activate(self, queued: QueuedPod[P], label: str) -> None:
        """Make a pod active, unless a PreEnqueue plugin refuses it; back-off after a rejection ends."""
        if queued.place is Place.ACTIVE:
            return
        if queued.place in (Place.BACKOFF, Place.ERROR_BACKOFF):
            if not _waits(queued, Strategy.IMMEDIATELY):
                self.take(queued)
                self.activate_all([queued], label)
        else:
            self.wake(queued, Strategy.IMMEDIATELY, label)

    def activate_all(self, batch: Sequence[QueuedPod[P]], label: str) -> None:
        """Make pods active that are in no queue and that PreEnqueue plugins let in."""
        if not batch:
            return
        now = self._clock()
        for queued in batch:
            if queued.initial_attempt_timestamp is None:
                queued.initial_attempt_timestamp = now
            self._by_key[queued.key] = queued
        self.active.add_all(batch)
        self.counters.incoming["active", label] += len(batch)
        self._on_arrival()

    def _back_off_all(self, batch: Sequence[QueuedPod[P]], label: str) -> None:
        if not batch:
            return
        for queued in batch:
            self._by_key[queued.key] = queued
        self.backoff.add_all(batch)
        self.counters.incoming["backoff", label] += len(batch)
        self._on_arrival()

    def _keep(self, queued: QueuedPod[P], refusal: Refusal | None = None) -> None:
        self.unschedulable.add(queued, refusal)
        self._by_key[queued.key] = queued

    def take(self, queued: QueuedPod[P]) -> None:
        """Remove a pod from the queue it is in."""
        del self._by_key[queued.key]
        if queued.place is Place.ACTIVE:
            self.active.remove(queued)
        elif queued.place in (Place.BACKOFF, Place.ERROR_BACKOFF):
            self.backoff.remove(queued)
        else:
            self.unschedulable.remove(queued)

    def drop(self, queued: QueuedPod[P]) -> None:
        """The pod is gone for good."""
        self.take(queued)
        queued.place = Place.NOWHERE
        self.counters.released(queued.profile, queued.rejected_by)
        self.relieve(queued)

    def _admit(self, queued: QueuedPod[P]) -> bool:
        """Ask the PreEnqueue plugins, and note which one refuses the pod. The pod must be in no queue, or gated."""
        refusal = self._gates[queued.profile].refusal(queued)
        if refusal is None:
            queued.gating_plugin = queued.gating_reason = ""
            return True
        plugin, queued.gating_reason = refusal
        queued.gating_plugin = plugin
        if plugin not in queued.rejected_by:
            queued.rejected_by |= {plugin}
            self.counters.rejected(queued.profile, (plugin,))
        return False

    def _stays_gated(self, queued: QueuedPod[P]) -> bool:
        """Ask about a gated pod. While the same plugins keep it out it stays filed, whose keys may be thousands."""
        before = queued.gating_plugin, queued.rejected_by
        if self._admit(queued):
            return False
        if (queued.gating_plugin, queued.rejected_by) != before:
            self.unschedulable.remove(queued)
            self.unschedulable.add(queued)
        return True

    def _tell_gated(self, refused: Sequence[QueuedPod[P]]) -> None:
        """Plugins hear of the pods that others keep out. These may activate pods, so every pod must be in its place."""
        for queued in refused:
            gate = self._gates[queued.profile]
            if gate.gated and queued.place is Place.GATED:
                gate.tell_gated(queued)


def _waits(queued: QueuedPod[P], strategy: Strategy) -> bool:
    """Whether the event does not cut its back-off short. That of an error never is: what failed once fails again, and
    pods that wake each other would be tried without a rest.
    """
    return strategy is Strategy.AFTER_BACKOFF or queued.rest > 0 or queued.consecutive_errors > 0
