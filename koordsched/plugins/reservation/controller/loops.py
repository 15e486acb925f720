"""All that runs for the plugin Reservation while this scheduler leads."""

from __future__ import annotations

import asyncio
import logging
import math

from koordsched.cluster.objects import Store
from koordsched.framework.agenda import Agenda
from koordsched.framework.controller import ControllerHandle
from koordsched.framework.handle import WriteFailed
from koordsched.plugins.reservation.args import ReservationArgs
from koordsched.plugins.reservation.controller.collection import Collection
from koordsched.plugins.reservation.controller.metrics import observe_reservations
from koordsched.plugins.reservation.controller.places import Places
from koordsched.plugins.reservation.controller.reconciler import CLEANS, Reconciler
from koordsched.plugins.reservation.kinds import RESERVATIONS, Reservation
from koordsched.plugins.reservation.plugin import Reservation as ReservationPlugin
from koordsched.plugins.shared.workqueue import WorkQueue

_log = logging.getLogger(__name__)

_LONGEST_PAUSE = 15.0
"""Seconds between looks at the earliest deadline: the wall clock may be set, and goes on while the machine sleeps."""

_AT_ONCE = 8
"""Writes that are under way at a time, unless the arguments ask for more: what is left of a Reservation that was used
up is free only once that is written."""

_UNKNOWN = 3.0
"""Seconds until a Reservation that a pod names and that was never seen counts as gone: pods may be seen before."""


class ReservationController:
    """Status, expiry, garbage collection; releases the pods of Reservations that are gone if the feature gate is on."""

    def __init__(self, plugin: ReservationPlugin, args: ReservationArgs | None, handle: ControllerHandle) -> None:
        args = args or ReservationArgs()
        self._cache = plugin.cache
        self._store: Store[Reservation] = handle.cluster.objects.of(RESERVATIONS)
        self._wall = handle.clock.wall
        self._workers = max(_AT_ONCE, args.controller_workers)
        self._cleans = CLEANS in handle.features
        self._places = Places(handle.cluster.table, self._node_gone)
        self._reconciler = Reconciler(self._cache, self._places, handle, self._expect)
        self._collection: Collection | None = None
        if not args.disable_garbage_collection:
            self._collection = Collection(
                self._store,
                self._places,
                handle.writes,
                self._wall,
                duration=float(args.gc_duration_seconds),
                interval=float(args.gc_interval_seconds),
            )
        self._queue: WorkQueue | None = None
        """None while this scheduler does not lead."""
        self._deadlines: Agenda[str] = Agenda()
        self._sooner = asyncio.Event()
        self._cache.on_users(self._users_changed)
        self._cache.writer.on_failure = self._add
        self._store.subscribe(self._changed)
        observe_reservations(handle.metrics, self._store, lambda: self._queue is not None)

    async def run(self) -> None:
        """Works until cancelled."""
        self._queue = queue = WorkQueue()
        try:
            for meta in self._store.metadata():
                queue.add(meta.uid)
            for uid in self._cache.used() if self._cleans else ():
                queue.add(uid)
            async with asyncio.TaskGroup() as loops:
                loops.create_task(self._watch_deadlines(queue), name="reservation deadlines")
                for number in range(self._workers):
                    loops.create_task(self._work(queue), name=f"reservation worker {number}")
                if self._collection is not None:
                    loops.create_task(self._collection.run(), name="reservation collection")
        finally:
            queue.close()
            self._queue = None

    async def _work(self, queue: WorkQueue) -> None:
        while True:
            uid = await queue.take()
            try:
                await self._reconciler.look(uid)
            except WriteFailed as error:
                _log.info("reservation %s not written: %s", self._places.name(uid) or uid, error)
                queue.failed(uid)
            else:
                queue.done(uid)

    async def _watch_deadlines(self, queue: WorkQueue) -> None:
        while True:
            for uid in self._deadlines.take_due(self._wall()):
                queue.add(uid)
            self._sooner.clear()
            earliest = self._deadlines.earliest
            pause = _LONGEST_PAUSE if earliest is None else min(max(earliest - self._wall(), 0.01), _LONGEST_PAUSE)
            try:
                async with asyncio.timeout(pause):
                    await self._sooner.wait()
            except TimeoutError:
                continue

    def _expect(self, uid: str, when: float) -> None:
        if math.isinf(when):
            self._deadlines.clear(uid)
            return
        self._deadlines.set(uid, when)
        if self._deadlines.earliest == when:
            self._sooner.set()

    # --- what happens ------------------------------------------------------------------------------

    def _add(self, uid: str) -> None:
        if self._queue is not None:
            self._queue.add(uid)

    def _users_changed(self, uid: str) -> None:
        if uid in self._places:
            self._add(uid)
        elif self._cleans and self._queue is not None:
            self._queue.add_later(uid, _UNKNOWN)

    def _node_gone(self, uid: str) -> None:
        name = self._places.name(uid)
        found = self._store.get("", name) if name is not None else None
        if found is not None and self._collection is not None:
            self._collection.changed(found)
        self._add(uid)

    def _changed(self, old: Reservation | None, new: Reservation | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            uid = old.metadata.uid
            self._places.remove(uid)
            self._deadlines.clear(uid)
            if self._collection is not None:
                self._collection.gone(uid)
            self._add(uid)
        if new is None:
            return
        self._places.set(new)
        if new.terminated:
            self._deadlines.clear(new.metadata.uid)
        if self._collection is not None:
            self._collection.changed(new)
        self._add(new.metadata.uid)
