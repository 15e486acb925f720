"""Equivalent pods: pods that the scheduler cannot tell apart, and of which one is therefore tried for all.

What rejects one of them in some state of the cluster rejects each of them, with the same message. So when something
happens that may help, only one goes ahead as *probe*; the others rest. If the probe is rejected again, the others need
not move: the rejection holds for them, too. If the probe ends otherwise (a node, an error, a nomination, its deletion,
a change that makes it differ from the others), the next one is tried at once. An event then costs no more for many
equal pods than for one, and pods that could be scheduled are tried.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from math import floor
from typing import TYPE_CHECKING, Generic

from koordsched.queue.backoff import BackoffPolicy
from koordsched.queue.hints import Strategy
from koordsched.queue.item import P, PodShape, QueuedPod

if TYPE_CHECKING:
    from koordsched.queue.hintgroups import HintGroup


@dataclass(frozen=True, eq=False, slots=True)
class Refusal:
    """The outcome of an evaluation that found no node, as it holds for all equivalent pods of the pod; one object
    for each.

    `plugins` rejected the pod, `pending` of them wait for something they started; `message` is what its owner reads,
    None if it is about this pod alone.
    """

    message: str | None
    plugins: frozenset[str]
    pending: frozenset[str]


@dataclass(slots=True, eq=False, repr=False)
class EquivalentPods(Generic[P]):
    """Equivalent pods at rest. They all wait for the plugins of the latest `refusal` of one of them, found at
    `proven_at`.

    While `probe` is out, what woke it (`strategy`, `label`, `flushed`) is owed to the others, too.
    """

    shape: PodShape
    identity: Hashable
    refusal: Refusal
    proven_at: float = 0.0
    group: HintGroup[P] | None = None
    probe: QueuedPod[P] | None = None
    strategy: Strategy = Strategy.SKIP
    label: str = ""
    flushed: bool = False
    # Length of back-off -> pods, in order of arrival: their back-offs end in this order.
    _by_delay: dict[float, OrderedDict[str, QueuedPod[P]]] = field(default_factory=dict)

    def add(self, queued: QueuedPod[P], policy: BackoffPolicy) -> None:
        """An equivalent pod comes to rest."""
        delay = policy.duration(queued.unschedulable_count)
        pods = self._by_delay.get(delay)
        if pods is None:
            pods = self._by_delay[delay] = OrderedDict()
        pods[queued.key] = queued
        queued.equivalents = self

    def remove(self, queued: QueuedPod[P], policy: BackoffPolicy) -> None:
        """It rests no more, and keeps what is known about the plugins it waits for."""
        delay = policy.duration(queued.unschedulable_count)
        pods = self._by_delay[delay]
        del pods[queued.key]
        if not pods:
            del self._by_delay[delay]
        queued.equivalents = None
        queued.rejected_by = self.refusal.plugins
        queued.waits_for = self.refusal.pending

    def send(self, probe: QueuedPod[P], strategy: Strategy, label: str) -> None:
        """This pod, which rests no more, is tried for all."""
        self.probe = probe
        self.strategy = strategy
        self.label = label
        self.flushed = probe.flushed
        probe.probes_for = self

    def renew(self, refusal: Refusal, now: float) -> None:
        """One of them was evaluated and rejected, and nothing that would help happened since: this holds for all."""
        self.refusal = refusal
        self.proven_at = now
        self.probe = None

    def next(self, now: float, policy: BackoffPolicy, exclude_uid: str | None = None) -> QueuedPod[P] | None:
        """Whose turn it is: the one that rests longest of those not backing off, else whose back-off ends first."""
        best: QueuedPod[P] | None = None
        least: tuple[float, float, int] = (0.0, 0.0, 0)
        over = floor(now) - 1.0
        for pods in self._by_delay.values():
            for queued in pods.values():
                if queued.pod.uid != exclude_uid:
                    # Back-offs that are over are all the same.
                    ends = max(policy.expiry(queued) or 0.0, over)
                    order = (ends, queued.timestamp, queued.sequence)
                    if best is None or order < least:
                        best, least = queued, order
                    break
        return best

    @property
    def first(self) -> QueuedPod[P]:
        """One of those at rest; there must be one."""
        return next(iter(next(iter(self._by_delay.values())).values()))

    def __bool__(self) -> bool:
        return bool(self._by_delay)

    def __len__(self) -> int:
        return sum(map(len, self._by_delay.values()))

    def __iter__(self) -> Iterator[QueuedPod[P]]:
        for pods in self._by_delay.values():
            yield from pods.values()
