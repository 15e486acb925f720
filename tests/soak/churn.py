"""The load: pods that come and go at a constant rate, nodes that fail, leave and join."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine
from random import Random
from typing import Any

from tests.soak import population
from tests.soak.observer import Known, Observer
from tests.soak.population import FAIL, LIFETIME, PATIENCE, Kind, Planned
from tests.soak.user import User

_IN_FLIGHT = 48
_TICK = 0.02
_EARLY = 0.4
"""Seconds within which some pods are deleted again."""
_CLEAR_AFTER = 5.0
"""Seconds after which finished pods are cleared away."""
_BURY_EVERY = 0.5
_OUTAGE = 6.0
"""Mean seconds that a failing node fails for."""


class Churn:
    """Makes `rate` pods per second from `begin` to `end`; everything that it made goes in the end."""

    def __init__(self, user: User, observer: Observer, rate: float, nodes: int, rng: Random) -> None:
        self._user = user
        self._observer = observer
        self._rate = rate
        self._rng = rng
        self._now = asyncio.get_running_loop().time
        self._nodes = list(range(nodes))
        self._next_node = nodes
        self._gone: set[str] = set()
        self._failing: set[int] = set()
        self._failures: set[asyncio.Task[None]] = set()
        self._due: list[tuple[float, str, bool]] = []
        self._waits: dict[str, Kind] = {}
        """Paths of the pods that have no node yet."""
        self._patient = False
        self._numbers = 0
        self._slots = asyncio.Semaphore(_IN_FLIGHT)
        self._tasks: set[asyncio.Task[None]] = set()
        self._makers: list[asyncio.Task[None]] = []
        self._clearers: list[asyncio.Task[None]] = []
        self.made = self.given_up = 0
        self.flaps = self.replaced = 0
        self._marks = 0
        observer.on_bound = self._bound

    async def prepare(self) -> None:
        """Namespaces, quotas, classes and nodes."""
        for path, thing in population.tenants(self._rate):
            await self._user.create(path, thing)
        for number in self._nodes:
            await self._user.create("/api/v1/nodes", population.node(number))

    def begin(self) -> None:
        """The load begins."""
        self._makers = [asyncio.create_task(work) for work in (self._make(), self._flap(), self._replace())]
        self._clearers = [asyncio.create_task(work) for work in (self._delete(), self._bury())]

    async def end(self) -> None:
        """No more pods are made, none is given up any more that could be bound, and all nodes are well again."""
        self._patient = True
        for task in self._makers:
            task.cancel()
        await self._finished(self._makers)
        if self._failures:
            await asyncio.wait(self._failures)

    async def clear(self) -> None:
        """Deletes all pods and ends."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        for task in self._clearers:
            task.cancel()
        await self._finished(self._clearers)
        for number in range(population.TENANTS):
            await self._user.delete(f"/api/v1/namespaces/soak-{number}/pods", at_once=True)

    async def expire_events(self) -> int:
        """What the API server does by itself: Events do not live for ever.

        Returns the number of a last Event: once the observer has seen its end, it has seen all that went.
        """
        self._marks += 1
        last = population.TENANTS - 1
        await self._user.create(f"/api/v1/namespaces/soak-{last}/events", population.mark(self._marks, f"soak-{last}"))
        for number in range(population.TENANTS):
            await self._user.delete(f"/api/v1/namespaces/soak-{number}/events")
        return self._marks

    def check(self) -> None:
        """Raises what a task of the load has raised."""
        for task in [*self._makers, *self._clearers]:
            if task.done() and not task.cancelled():
                task.result()

    @staticmethod
    async def _finished(tasks: list[asyncio.Task[None]]) -> None:
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._observer.wrong.append(f"the load: {problem}")

    # --- pods ----------------------------------------------------------------------------------------

    async def _make(self) -> None:
        """What should have been made by now is made, also after the server was away."""
        began = self._now()
        while True:
            while self._numbers < (self._now() - began) * self._rate:
                await self._slots.acquire()
                self._spawn(self._make_one(population.pod(self._numbers, self._rng)))
                self._numbers += 1
            await asyncio.sleep(_TICK)

    async def _make_one(self, planned: Planned) -> None:
        self._waits[planned.path] = planned.kind
        try:
            await self._user.create(f"/api/v1/namespaces/{planned.namespace}/pods", planned.manifest)
        finally:
            self._slots.release()
        self.made += 1
        kind = planned.kind
        self._later(self._rng.uniform(0, _EARLY) if kind.leaves_early else PATIENCE, planned.path, waiting=True)
        if kind.gated:
            await asyncio.sleep(1.0)
            await self._user.merge(planned.path, {"spec": {"schedulingGates": None}})

    def _bound(self, pod: Known) -> None:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        kind = self._waits.pop(path, None)
        life = self._rng.uniform(0, 2 * LIFETIME) + (_CLEAR_AFTER if kind is not None and kind.finishes else 0)
        self._later(life, path, waiting=False)

    def _later(self, seconds: float, path: str, *, waiting: bool) -> None:
        """Deletes a pod after some time; only if it still waits for its node then."""
        heapq.heappush(self._due, (self._now() + seconds, path, waiting))

    async def _delete(self) -> None:
        while True:
            while self._due and self._due[0][0] <= self._now():
                _, path, waiting = heapq.heappop(self._due)
                if waiting and not self._gives_up(path):
                    continue
                await self._slots.acquire()
                self._spawn(self._delete_one(path))
            await asyncio.sleep(_TICK)

    def _gives_up(self, path: str) -> bool:
        """Whether the owner of a pod that waits does not want it any more."""
        kind = self._waits.get(path)
        if kind is None or (self._patient and not (kind.never_fits or kind.leaves_early)):
            return False
        if not (kind.never_fits or kind.leaves_early):
            self.given_up += 1
        del self._waits[path]
        return True

    async def _delete_one(self, path: str) -> None:
        try:
            await self._user.delete(path)
        finally:
            self._slots.release()

    # --- nodes ---------------------------------------------------------------------------------------

    async def _flap(self) -> None:
        """About one node in fifty fails at any time."""
        while True:
            await asyncio.sleep(self._rng.expovariate(len(self._nodes) / 50 / _OUTAGE))
            number = self._rng.choice(self._nodes)
            if number not in self._failing:
                self._failing.add(number)
                failure = self._spawn(self._fail(number))
                self._failures.add(failure)
                failure.add_done_callback(self._failures.discard)

    async def _fail(self, number: int) -> None:
        path = f"/api/v1/nodes/node-{number}"
        await self._user.annotate(path, {FAIL: self._rng.choice(("true", "not-ready"))})
        await asyncio.sleep(self._rng.expovariate(1 / _OUTAGE))
        await self._user.annotate(path, {FAIL: None})
        self._failing.discard(number)
        self.flaps += 1

    async def _replace(self) -> None:
        """Every few seconds a node leaves with everything on it, and one that was never there joins."""
        while True:
            await asyncio.sleep(self._rng.uniform(2, 6))
            number = self._rng.choice(self._nodes)
            if number in self._failing:
                continue
            self._nodes.remove(number)
            self._nodes.append(self._next_node)
            self._next_node += 1
            self._spawn(self._replace_one(number, self._nodes[-1]))

    async def _replace_one(self, old: int, new: int) -> None:
        name = f"node-{old}"
        self._gone.add(name)
        await self._user.delete(f"/api/v1/nodes/{name}")
        await self._user.create("/api/v1/nodes", population.node(new))
        self.replaced += 1

    async def _bury(self) -> None:
        """Pods of nodes that are gone: no kubelet would confirm their end. kube-controller-manager's podgc."""
        while True:
            await asyncio.sleep(_BURY_EVERY)
            for pod in [pod for pod in self._observer.pods.values() if pod.node in self._gone]:
                await self._user.delete(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", at_once=True)
