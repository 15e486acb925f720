"""Evicting the victims of preemption, in the background (core spec 3.8, actuation)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass
from datetime import UTC, datetime

from koordsched.client.clock import Clock
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Launch, OnBehalf, WriteFailed
from koordsched.framework.permit import WaitingPods
from koordsched.framework.status import Code
from koordsched.observability.metrics import Metrics
from koordsched.queue.queue import SchedulingQueue
from koordsched.scheduling.apiwrites import ApiWrites
from koordsched.scheduling.background import Background
from koordsched.scheduling.recording import NOT_RECORDING, Recorder
from koordsched.scheduling.reporter import Reporter

_log = logging.getLogger(__name__)

REASON = "preempting to accommodate a higher priority pod"

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 10.0
"""Seconds before a preemptor is activated for which the API server keeps refusing to evict; the first time none."""

_FEW_EVICTIONS = 64


@dataclass(eq=False, repr=False)
class PreemptionEvictions:
    """Evicts victims in parallel, the last one alone at the end: its deletion is what wakes the preemptor.

    A victim whose eviction was started is not evicted again for another preemptor that wants its room, too, nor for the
    same one if something wakes that too early. A preemptor that counts on a victim tries again when its eviction fails.
    """

    queue: SchedulingQueue[Pod]
    waiting: WaitingPods
    writes: ApiWrites
    reporter: Reporter
    metrics: Metrics
    clock: Clock
    cancel_binding: Callable[[str], bool]
    placed: Callable[[str], Pod | None]
    recorder: Recorder = NOT_RECORDING
    launch: InitVar[Launch | None] = None

    def __post_init__(self, launch: Launch | None) -> None:
        """`cancel_binding(uid)` stops a pod in PreBind and returns whether it was; `placed(uid)`: the pod if it is
        on a node, as far as the scheduler has heard. `launch`: None has evictions done by tasks.
        """
        self._background = Background()
        self._launch = launch or self._background.start
        self._running: set[str] = set()
        self._failures: dict[str, int] = {}
        """namespace/name of a preemptor -> evictions for it that failed, one after the other."""
        self._evictions: dict[str, _Eviction] = {}
        """By the victim's uid; those of victims that are known to be going are forgotten now and then."""
        self._most_evictions = _FEW_EVICTIONS

    def running_for(self, uid: str) -> bool:
        """Whether victims of this preemptor are still being evicted."""
        return uid in self._running

    def evicting(self, uid: str) -> bool:
        """Whether the eviction of this pod was started, though the API server may not say so yet."""
        eviction = self._evictions.get(uid)
        if eviction is None:
            return False
        pod = self.placed(uid)
        if pod is None or pod.deleting:
            return False
        # One that was not bound yet only lost its place; it may be on its way to the next.
        return pod is eviction.victim or (eviction.victim.wire is None and pod.node == eviction.victim.node)

    def displaced(self, uid: str) -> None:
        """This pod lost its place before it was bound: its eviction does not hold for the next node it gets."""
        self._evictions.pop(uid, None)

    @property
    def running(self) -> tuple[str, ...]:
        """The uids of preemptors whose victims are still being evicted, in the order of uids."""
        return tuple(sorted(self._running))

    @property
    def victims(self) -> tuple[tuple[str, str], ...]:
        """(victim, preemptor), by uid, of the victims whose eviction was started and that are not known to be going."""
        return tuple((uid, eviction.preemptor) for uid, eviction in self._evictions.items() if self.evicting(uid))

    def resume(self, preemptors: Iterable[str], victims: Iterable[tuple[Pod, str]]) -> None:
        """Evictions for these preemptors (uids) are running; `victims`: with the uid of the preemptor."""
        self._running.update(preemptors)
        self._evictions.update((victim.uid, _Eviction(victim, preemptor)) for victim, preemptor in victims)

    def start(
        self,
        preemptor: Pod,
        node: str,
        victims: Sequence[Pod],
        *,
        reason: str = REASON,
        behalf: OnBehalf | None = None,
    ) -> None:
        """Evicts those victims that are not on their way out already; nothing happens if all are."""
        self.recorder.evicting(preemptor, node, victims)
        self.metrics.preemption_victims.observe(len(victims))
        remaining = [victim for victim in victims if not victim.deleting]
        if not remaining:
            return
        for other in list(self.queue.nominator.nominated_on(node)):
            if other.priority < preemptor.priority:
                # The room they were waiting for goes to a pod of higher priority.
                self.queue.nominator.delete(other.uid)
                self.reporter.nominate(other, "")
        counted_on = [self._evictions[victim.uid] for victim in remaining if self.evicting(victim.uid)]
        new = [
            _Eviction(victim, preemptor.uid, reason, behalf) for victim in remaining if not self.evicting(victim.uid)
        ]
        self._evictions.update((eviction.victim.uid, eviction) for eviction in new)
        if len(self._evictions) > self._most_evictions:
            self._evictions = {uid: eviction for uid, eviction in self._evictions.items() if self.evicting(uid)}
            self._most_evictions = 2 * len(self._evictions) + _FEW_EVICTIONS
        if new:
            self._running.add(preemptor.uid)
        self._launch(self._evict_all(preemptor, node, new, counted_on))

    def over(self, uid: str) -> None:
        """From here on the preemptor may enter the queue."""
        if uid in self._running:
            self.recorder.evicted(uid)
            self._running.discard(uid)

    def activate(self, uid: str, preemptor: Pod | None) -> None:
        """The preemptor of this uid is to be tried now, if it is still there, and may evict its victims again.

        So may others that are nominated to where victims of it stayed: they wait for these, too.
        """
        self.recorder.activated(uid)
        stayed = {e.victim.node: None for v, e in self._evictions.items() if e.preemptor == uid and self.evicting(v)}
        self._evictions = {
            victim: eviction for victim, eviction in self._evictions.items() if eviction.preemptor != uid
        }
        others = (other for node in stayed for other in list(self.queue.nominator.nominated_on(node)))
        self.queue.activate(
            [*([preemptor] if preemptor is not None else []), *(other for other in others if other.uid != uid)]
        )

    async def close(self) -> None:
        """Lets evictions under way finish."""
        await self._background.close()

    async def abandon(self) -> None:
        """Ends evictions under way."""
        await self._background.abandon()

    async def _evict_all(
        self, preemptor: Pod, node: str, victims: Sequence[_Eviction], counted_on: Sequence[_Eviction]
    ) -> None:
        """`counted_on`: victims whose eviction another preemptor started."""
        started = self.clock.monotonic()
        try:
            await self._evict_in_turn(preemptor, node, victims, counted_on)
            self._failures.pop(preemptor.key, None)
            outcome = "success"
        except WriteFailed as error:
            _log.warning("preemption for %s on %s failed: %s", preemptor.key, node, error)
            self.over(preemptor.uid)
            self._try_again(preemptor)
            outcome = "error"
        finally:
            self.over(preemptor.uid)
            for eviction in victims:
                eviction.finish(WriteFailed(f"{eviction.victim.key} was not evicted"))
        self.metrics.preemption_goroutines_duration.labels(outcome).observe(self.clock.monotonic() - started)
        self.metrics.preemption_goroutines_execution.labels(outcome).value += 1

    async def _evict_in_turn(
        self, preemptor: Pod, node: str, victims: Sequence[_Eviction], counted_on: Sequence[_Eviction]
    ) -> None:
        results = await asyncio.gather(
            *(self._evict(eviction, preemptor, node) for eviction in victims[:-1]),
            *(eviction.succeeds() for eviction in counted_on),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        if not victims:
            return
        # The deletion of the last victim will bring the preemptor to the queue.
        self.over(preemptor.uid)
        last = victims[-1]
        if self.placed(last.victim.uid) is not None:
            await self._evict(last, preemptor, node)
        else:
            # It ended by itself before the preemptor could enter the queue: nothing else would bring the preemptor in.
            last.finish(None)
            self.activate(preemptor.uid, preemptor)

    def _try_again(self, preemptor: Pod) -> None:
        """Activates the preemptor: at once, unless evictions for it failed before.

        It would choose the same victims again, so a server that refuses for good (an admission webhook, say) must not
        be asked as fast as it answers. Meanwhile the preemptor waits for events like any other pod.
        """
        before = self._failures.get(preemptor.key, 0)
        waiting = {key: count for key, count in self._failures.items() if self.queue.get(key) is not None}
        self._failures = {**waiting, preemptor.key: before + 1}
        if not before:
            self.activate(preemptor.uid, preemptor)
            return
        pause = min(_FIRST_PAUSE * 2.0 ** min(before - 1, 8), _LONGEST_PAUSE)
        asyncio.get_running_loop().call_later(pause, self.activate, preemptor.uid, preemptor)

    async def _evict(self, eviction: _Eviction, preemptor: Pod, node: str) -> None:
        victim = eviction.victim
        try:
            deleted = await self._make_go(eviction, preemptor)
        except WriteFailed as error:
            eviction.finish(error)
            raise
        eviction.finish(None)
        self.reporter.preempted(victim, preemptor, node, deleted=deleted, behalf=eviction.behalf)

    async def _make_go(self, eviction: _Eviction, preemptor: Pod) -> bool:
        """Returns whether the victim was deleted; one that was not bound yet only loses its place."""
        victim = eviction.victim
        waiting = self.waiting.get(victim.uid)
        gives_up = waiting is not None and waiting.reject("DefaultPreemption", "preempted", Code.ERROR)
        gives_up = gives_up or self.cancel_binding(victim.uid)
        # Another scheduler may have bound it while it waited here, and then only its end makes room.
        is_bound = (self.placed(victim.uid) or victim).wire is None
        if gives_up and not is_bound:
            return False
        now = datetime.fromtimestamp(self.clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        await self.writes.evict(victim, f"{preemptor.shape.scheduler_name}: {eviction.reason}", now)
        return True


class _Eviction:
    """The eviction of a victim, for the preemptor of that uid, with what its condition says, and its outcome."""

    __slots__ = ("_finished", "_outcome", "behalf", "preemptor", "reason", "victim")

    def __init__(self, victim: Pod, preemptor: str, reason: str = REASON, behalf: OnBehalf | None = None) -> None:
        self.reason = reason
        self.behalf = behalf
        self.victim = victim
        self.preemptor = preemptor
        self._finished = asyncio.Event()
        self._outcome: WriteFailed | None = None

    def finish(self, outcome: WriteFailed | None) -> None:
        """Sets the outcome, None for success; the first one counts."""
        if not self._finished.is_set():
            self._outcome = outcome
            self._finished.set()

    async def succeeds(self) -> None:
        """Returns when the victim goes. Raises WriteFailed if it does not."""
        await self._finished.wait()
        if self._outcome is not None:
            raise self._outcome
