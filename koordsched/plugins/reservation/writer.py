"""What the scheduler writes of a reserve pod goes to the Reservation behind it (reservation spec 3.3, 3.6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from koordsched.api.meta import ObjectMeta
from koordsched.cluster.builtinkinds import PODS
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import WARNING, Handle, WriteFailed
from koordsched.plugins.reservation.annotations import resized_allocatable
from koordsched.plugins.reservation.kinds import (
    AVAILABLE,
    READY_CONDITION,
    RESERVATIONS,
    SCHEDULED_CONDITION,
    Reservation,
    ReservationStatus,
)
from koordsched.plugins.reservation.malformed import MalformedReservation
from koordsched.plugins.reservation.reservepod import requests_of, scheduler_of
from koordsched.plugins.shared.moments import moment_text

_MAX_NOTE = 1024
_CUT = " ..."


class Failure(NamedTuple):
    """Why a Reservation has no node: the message of the last attempt, and when that ended (RFC 3339)."""

    reservation: Reservation
    message: str
    at: str


class ReservationWriter:
    """A `VirtualPodWriter` for all reserve pods.

    `failures`: by uid, conditions that are to be written; the controller does so and takes them out. `on_failure` is
    called with the uid when one was added.
    """

    def __init__(self, handle: Handle, find: Callable[[str], Reservation | None]) -> None:
        """`find`: the newest version of the Reservation of a uid that is not over."""
        self._handle = handle
        self._find = find
        self.failures: dict[str, Failure] = {}
        self._patched: dict[str, tuple[str, str]] = {}
        """By uid, of one on its way to a node: the version that was patched, and the one that it has since."""
        self.on_failure: Callable[[str], None] = lambda uid: None

    def _current(self, pod: Pod) -> Reservation:
        found = self._find(pod.uid)
        if found is None:
            raise WriteFailed("reservation is not active")
        if scheduler_of(found) != pod.shape.scheduler_name:
            raise WriteFailed("schedulerName unmatched")
        if found.metadata.deletion_timestamp is not None:
            raise WriteFailed("pod is being deleted")
        return found

    async def bind(self, pod: Pod, node: str) -> None:
        """The Reservation is available on the node, if it is as it was: it may end, or be ended, meanwhile."""
        before, after = self._patched.pop(pod.uid, ("", ""))
        reservation = self._current(pod)
        if reservation.metadata.resource_version == before:
            meta = replace(reservation.metadata, resource_version=after)
            reservation = replace(reservation, metadata=meta)
        now = moment_text(self._handle.clock.wall())
        conditions = [
            {"type": kind, "status": "True", "reason": reason, "lastProbeTime": now, "lastTransitionTime": now}
            for kind, reason in ((SCHEDULED_CONDITION, "Scheduled"), (READY_CONDITION, "Available"))
        ]
        try:
            allocatable = {**requests_of(reservation), **resized_allocatable(reservation.metadata.annotations)}
        except MalformedReservation as error:
            raise WriteFailed(str(error)) from error
        status = {"phase": AVAILABLE, "nodeName": node, "allocatable": allocatable, "conditions": conditions}
        self.failures.pop(pod.uid, None)
        await self._handle.writes.patch(RESERVATIONS, reservation, {"status": status}, subresource="status")

    def placed(self, pod: Pod, node: str) -> None:
        """In simulations: the Reservation is available, with what the reserve pod was given."""
        reservation, cluster = self._find(pod.uid), self._handle.cluster
        if reservation is None:
            return
        meta = reservation.metadata
        annotations = {**meta.annotations, **cluster.pod_facts.annotations(pod)}
        cluster.objects.of(RESERVATIONS).upsert(
            replace(
                reservation,
                metadata=replace(meta, annotations=annotations, resource_version=f"{meta.resource_version}-placed"),
                status=ReservationStatus(phase=AVAILABLE, node_name=node, allocatable=requests_of(reservation)),
            )
        )

    async def patch(self, pod: Pod, metadata: Mapping[str, Any]) -> None:
        """Merges what PreBind plugins changed into the metadata."""
        self._patched.pop(pod.uid, None)
        before = self._current(pod)
        after = await self._handle.writes.patch(RESERVATIONS, before, {"metadata": dict(metadata)})
        self._patched[pod.uid] = before.metadata.resource_version, after.metadata.resource_version

    async def evict(self, pod: Pod, message: str) -> None:
        """Never asked for: a Reservation is no victim."""
        raise WriteFailed("a reservation is not evicted")

    def condition(self, pod: Pod, reason: str, message: str, nominated: str | None) -> None:
        """It cannot be scheduled. A nomination is kept in memory alone: its API has no field for it."""
        reservation = self._find(pod.uid)
        if reason and reservation is not None:
            self.failures[pod.uid] = Failure(reservation, message, moment_text(self._handle.clock.wall()))
            self.on_failure(pod.uid)

    def event(self, pod: Pod, event_type: str, reason: str, message: str, action: str) -> None:
        """An event on the Reservation; that it is scheduled, on the reserve pod as well, as upstream has it."""
        reservation = self._find(pod.uid)
        if reservation is None:
            return
        events = self._handle.events
        if reason == "Scheduled":
            events.event(
                PODS,
                ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid),
                event_type,
                reason,
                message,
                action=action,
            )
            message = f"Successfully assigned {reservation.metadata.name} to {pod.node}"
        note = message.encode()
        if event_type == WARNING and len(note) > _MAX_NOTE:
            message = note[: _MAX_NOTE - len(_CUT)].decode(errors="ignore") + _CUT
        events.event(RESERVATIONS, reservation.metadata, event_type, reason, message, action=action)
