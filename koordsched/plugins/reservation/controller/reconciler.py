"""Brings one Reservation up to date with what happened: its use, its end, why it has no node."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from koordsched.cluster.objects import Store
from koordsched.cluster.pod import Pod
from koordsched.cluster.resources import Requests
from koordsched.cluster.state import ClusterState
from koordsched.framework.controller import ControllerHandle
from koordsched.framework.handle import WARNING, WriteFailed
from koordsched.plugins.reservation.cache import ReservationCache
from koordsched.plugins.reservation.controller import expiry, status
from koordsched.plugins.reservation.controller.places import Places
from koordsched.plugins.reservation.controller.release import release
from koordsched.plugins.reservation.kinds import RESERVATIONS, Reservation
from koordsched.plugins.shared.moments import moment_text

_log = logging.getLogger(__name__)

CLEANS = "CleanExpiredReservationAllocated"
"""The feature gate."""

_OWN_WRITE = 3.0
"""Seconds that what was written may take to come back before it is given up."""


class Reconciler:
    """One look at a Reservation, by its uid.

    A status is written on the version that it was derived from; if there is a newer one, the API server refuses, and
    the look is repeated.
    """

    def __init__(
        self, cache: ReservationCache, places: Places, handle: ControllerHandle, later: Callable[[str, float], None]
    ) -> None:
        """`later(uid, wall)`: another look is needed at that time, and not earlier."""
        self._cache = cache
        self._failures = cache.writer.failures
        self._places = places
        self._cluster: ClusterState = handle.cluster
        self._store: Store[Reservation] = handle.cluster.objects.of(RESERVATIONS)
        self._writes = handle.writes
        self._reporter = handle.reporter
        self._wall = handle.clock.wall
        self._later = later
        self._cleans = CLEANS in handle.features
        self._written: dict[str, tuple[str, float]] = {}
        """By uid, the version that was written on, and when: until a newer one is seen there is nothing to compare."""
        self._reported: dict[str, str] = {}

    async def look(self, uid: str) -> None:
        """Writes what is to be written. Raises WriteFailed."""
        name = self._places.name(uid)
        reservation = self._store.get("", name) if name is not None else None
        if reservation is None or reservation.metadata.uid != uid:
            await self._gone(uid)
        elif reservation.terminated:
            self._forget(uid)
        else:
            await self._look_at(reservation)

    async def _look_at(self, reservation: Reservation) -> None:
        uid, version = reservation.metadata.uid, reservation.metadata.resource_version
        self._report(reservation)
        now = self._wall()
        written = self._written.get(uid)
        if written is not None and written[0] == version and now < written[1] + _OWN_WRITE:
            self._later(uid, written[1] + _OWN_WRITE)
            return
        failure = self._failures.get(uid)
        changes = self._changes(reservation, now)
        if changes:
            patch: dict[str, Any] = {"metadata": {"resourceVersion": version}, "status": changes}
            await self._writes.merge(RESERVATIONS, reservation.metadata, patch, subresource="status")
            self._written[uid] = (version, self._wall())
            if "phase" in changes:
                _log.info("reservation %s is over: %s", reservation.metadata.name, changes["phase"])
        if failure is not None and self._failures.get(uid) is failure:
            del self._failures[uid]
        self._later(uid, expiry.deadline(reservation))

    def _changes(self, reservation: Reservation, now: float) -> status.Changes:
        uid, node = reservation.metadata.uid, reservation.status.node_name
        at = moment_text(now)
        if now >= expiry.deadline(reservation) or not self._places.knows_node_of(reservation):
            return status.expired(reservation, at)
        if node:
            users = self._cache.users(uid).values()
            bound = [pod for pod in users if pod.node == node and not self._cluster.is_assumed(pod.uid)]
            use = status.use_of(reservation, bound, self._cluster.table.resource_names, self._requests)
            return status.used(reservation, use, at)
        failure = self._failures.get(uid)
        return status.unschedulable(reservation, failure) if failure is not None else {}

    def _requests(self, pod: Pod) -> Requests:
        return self._cluster.whole(pod).requests

    async def _gone(self, uid: str) -> None:
        self._forget(uid)
        self._reported.pop(uid, None)
        if self._cache.get(uid) is not None:
            return  # a pod that acts as a Reservation
        users = [pod for pod in self._cache.users(uid).values() if not self._cluster.is_assumed(pod.uid)]
        if self._cleans and users:
            if self._store.hidden:
                raise WriteFailed(f"it may still be there: {self._store.hidden}")
            await release(users, self._writes)

    def _forget(self, uid: str) -> None:
        self._written.pop(uid, None)
        self._failures.pop(uid, None)

    def _report(self, reservation: Reservation) -> None:
        meta = reservation.metadata
        problem = expiry.problem(reservation)
        if self._reported.get(meta.uid, "") != problem:
            self._reported[meta.uid] = problem
            if problem:
                self._reporter.event(
                    RESERVATIONS, meta, WARNING, "InvalidReservation", problem, action="Checking", once=True
                )
