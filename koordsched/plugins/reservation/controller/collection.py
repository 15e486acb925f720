"""Reservations that are over are deleted: at once if the node is gone, else after some time (reservation spec 3.9)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

from koordsched.cluster.objects import Store
from koordsched.framework.agenda import Agenda
from koordsched.framework.controller import ObjectWrites
from koordsched.framework.handle import WriteFailed
from koordsched.plugins.reservation.controller.expiry import kept_until
from koordsched.plugins.reservation.controller.places import Places
from koordsched.plugins.reservation.kinds import RESERVATIONS, Reservation

_log = logging.getLogger(__name__)

_AT_ONCE = 0.0
"""Due whatever the clock says, which may be set back."""


@dataclass(eq=False, repr=False)
class Collection:
    """Looks every `interval` seconds at those that are due; `wall`: seconds since the epoch."""

    store: Store[Reservation]
    places: Places
    writes: ObjectWrites
    wall: Callable[[], float]
    _: KW_ONLY
    duration: float
    interval: float
    _due: Agenda[str] = field(init=False, default_factory=Agenda)
    """By uid, those that are over."""

    def changed(self, reservation: Reservation) -> None:
        """A Reservation is new, has changed, or its node is gone."""
        uid = reservation.metadata.uid
        until = kept_until(reservation, self.duration)
        if until is None or reservation.metadata.deletion_timestamp is not None:
            self._due.clear(uid)
        else:
            self._due.set(uid, until if self.places.knows_node_of(reservation) else _AT_ONCE)

    def gone(self, uid: str) -> None:
        """A Reservation is no more."""
        self._due.clear(uid)

    async def run(self) -> None:
        """Collects until cancelled."""
        while True:
            await self.collect()
            await asyncio.sleep(self.interval)

    async def collect(self) -> None:
        """Deletes what is due; what fails is tried again the next time."""
        now = self.wall()
        for uid in self._due.take_due(now):
            name = self.places.name(uid)
            found = self.store.get("", name) if name is not None else None
            if found is None or found.metadata.uid != uid:
                continue
            self.changed(found)
            if (until := kept_until(found, self.duration)) is None:
                continue
            if until > now and self.places.knows_node_of(found):
                continue  # its node is back
            try:
                await self.writes.delete(RESERVATIONS, found.metadata)
            except WriteFailed as error:
                _log.warning("reservation %s not deleted: %s", found.metadata.name, error)
