"""All Reservations, the reserve pods made of them, and which pods use which (reservation spec 3.2, 3.3).

One for all profiles. Which Reservation a pod uses is a fact of the pod, read from its annotation: so the order in which
pods and Reservations are seen does not matter. A pod uses one only while both are on the same row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from koordsched.api.quantity import QuantityError
from koordsched.api.selectors import parse_integer
from koordsched.cluster.builtinkinds import PODS
from koordsched.cluster.events import ActionType, ClusterEvent, EventResource
from koordsched.cluster.facts import PodFact
from koordsched.cluster.kinds import Kind
from koordsched.cluster.pod import Pod
from koordsched.cluster.resources import Requests, allocatable_of
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import WARNING, Handle
from koordsched.plugins.reservation import operating
from koordsched.plugins.reservation.annotations import (
    Allocated,
    allocated_text,
    inner_reserved,
    parse_allocated,
    restricted_names,
)
from koordsched.plugins.reservation.info import ReservationInfo, Terms
from koordsched.plugins.reservation.kinds import (
    CURRENT_OWNER,
    NODE_RESERVATION,
    RESERVATION_ALLOCATED,
    RESERVATION_ORDER,
    RESERVATION_OWNERS,
    RESERVATIONS,
    RESIZE_ALLOCATABLE,
    RESTRICTED,
    RESTRICTED_OPTIONS,
    Reservation,
    offer_of,
)
from koordsched.plugins.reservation.malformed import MalformedReservation
from koordsched.plugins.reservation.operating import Operating
from koordsched.plugins.reservation.owners import OwnerIndex, Owners, named_pods
from koordsched.plugins.reservation.reservepod import requests_of, reserve_pod, validate
from koordsched.plugins.reservation.writer import ReservationWriter

_log = logging.getLogger(__name__)

_NATIVE = {"cpu", "memory", "ephemeral-storage"}
"""Resources whose index is never another one's."""

RESERVATION_CHANGED = ClusterEvent(EventResource("Reservation"), ActionType.UPDATE)
"""Owners may use a Reservation that they could not use before: `new` is its `ReservationInfo`."""

RESERVATION_LEFT = ClusterEvent(EventResource("Reservation"), ActionType.DELETE)
"""No owner may use a Reservation any more, or its policy is another one: one that does not go with it may get its node.
`old` is its `ReservationInfo`.
"""


class ReservationCache:
    """A `Sharing`: a reserve pod counts what its owners leave.

    `unbound`, `bound`: int32[rows], how many Reservations are on a row that pods may use, without and with a policy.
    """

    def __init__(self, cluster: ClusterState, handle: Handle) -> None:
        self._cluster = cluster
        self._handle = handle
        self._infos: dict[str, ReservationInfo] = {}
        self._by_name: dict[str, ReservationInfo] = {}
        self.index = OwnerIndex()
        self._users: dict[str, dict[str, Pod]] = {}
        """By uid of a Reservation, known or not, the pods on nodes that say that they use it."""
        self._used: dict[str, str] = {}
        """uid of such a pod -> uid of its Reservation."""
        self._announced: dict[str, str] = {}
        self.facets = cluster.table.add_facet()
        self.unbound = cluster.table.column(np.int32)
        self.bound = cluster.table.column(np.int32)
        self._places: dict[str, tuple[int, bool]] = {}
        """By uid, where a Reservation that pods may use is counted: row, and whether it is bound to a policy."""
        self._on_row: dict[int, dict[str, ReservationInfo]] = {}
        self.allocated: PodFact[Allocated] = cluster.pod_facts.declare(
            RESERVATION_ALLOCATED, parse_allocated, lambda used: allocated_text(used.name, used.uid)
        )
        self._operating = operating.declare(cluster.pod_facts)
        cluster.pod_facts.declare_references()
        cluster.read_annotations.update((RESERVATION_OWNERS, CURRENT_OWNER))
        self.writer = ReservationWriter(handle, self._newest)
        self._user_listeners: list[Callable[[str], None]] = []
        cluster.read_annotations.update((RESTRICTED_OPTIONS, NODE_RESERVATION, RESIZE_ALLOCATABLE))
        cluster.set_sharing(self)
        cluster.objects.of(RESERVATIONS).subscribe(self._changed)

    # --- reading -----------------------------------------------------------------------------------

    def get(self, uid: str) -> ReservationInfo | None:
        """The Reservation of that uid, if it holds room or waits for it."""
        return self._infos.get(uid)

    def named(self, name: str) -> ReservationInfo | None:
        """The same by name."""
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[ReservationInfo]:
        return iter(self._infos.values())

    def __len__(self) -> int:
        return len(self._infos)

    def __contains__(self, info: object) -> bool:
        return isinstance(info, ReservationInfo) and self._infos.get(info.uid) is info

    def reserve_pod(self, info: ReservationInfo) -> Pod | None:
        """The reserve pod on a node, if only assumed; None while it has none."""
        return self._cluster.assigned.get(info.uid)

    def row_of(self, info: ReservationInfo) -> int:
        """The row where it holds room, -1 if nowhere."""
        pod = self._cluster.assigned.get(info.uid)
        return pod.row if pod is not None else -1

    def on(self, row: int) -> list[ReservationInfo]:
        """Those that hold room on a row, in the order of their creation."""
        return sorted(self._on_row.get(row, {}).values(), key=lambda info: info.key)

    def problem_of(self, reservation: Reservation) -> str:
        """What is wrong with a Reservation, "" if nothing is: no pod may use it, or it is not scheduled at all."""
        return "" if reservation.terminated else self._announced.get(reservation.metadata.uid, "")

    def users(self, uid: str) -> Mapping[str, Pod]:
        """By uid, the pods on nodes that say that they use the Reservation."""
        return self._users.get(uid, {})

    def used(self) -> Iterable[str]:
        """The uids of all Reservations, known or not, that pods on nodes say that they use."""
        return self._users.keys()

    def on_users(self, listener: Callable[[str], None]) -> None:
        """Calls it with the uid of a Reservation, known or not, when its users changed: which pods, or a pod itself."""
        self._user_listeners.append(listener)

    def used_by(self, pod: Pod) -> ReservationInfo | None:
        """The Reservation that a pod on a node uses."""
        uid = self._used.get(pod.uid)
        info = self._infos.get(uid) if uid is not None else None
        return info if info is not None and pod.uid in info.owners else None

    def whole_of(self, pod: Pod) -> tuple[Requests, tuple[object, ...]]:
        """See Sharing."""
        info = self._infos.get(pod.uid)
        return (pod.requests, pod.facts) if info is None else (info.full, info.full_facts)

    # --- objects -----------------------------------------------------------------------------------

    def _changed(self, old: Reservation | None, new: Reservation | None) -> None:
        old, new = _identified(old), _identified(new)
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._announced.pop(old.metadata.uid, None)
            self._drop(old.metadata.uid)
        if new is None:
            return
        if new.terminated:
            self._drop(new.metadata.uid)
            return
        try:
            self._take(new)
        except (MalformedReservation, QuantityError) as error:
            self._report(new, str(error))
            self._drop(new.metadata.uid)

    def _take(self, new: Reservation) -> None:
        problem = validate(new)
        if problem is not None:
            raise MalformedReservation(problem)
        if new.status.node_name and not new.active:
            _log.warning(
                "reservation %s is on node %s in phase %s",
                new.metadata.name,
                new.status.node_name,
                new.status.phase or "Pending",
            )
            return
        pod = self._cluster.pods.build(reserve_pod(new), virtual=RESERVATIONS.title(new.metadata.name))
        terms = self._terms(new, pod)
        uid = new.metadata.uid
        held = self._cluster.assigned.get(uid)
        if held is not None and not pod.node and not self._cluster.is_assumed(uid):
            self._drop(uid)  # its node was taken away from it: it is scheduled anew
            held = None
        info = self._infos.get(uid)
        before = info.reservation if info is not None else None
        was = info is not None and info.matchable
        if info is None:
            info = self._infos[uid] = ReservationInfo(new, pod, terms, self._infos)
        else:
            facts = info.full_facts
            info.renew(new, pod, terms)
            if self._cluster.is_assumed(uid) and not pod.node:
                info.full_facts = facts  # what Reserve gave it is not written yet
        self._by_name[new.metadata.name] = info
        if terms.owners is not None:
            self.index.add(uid, terms.owners)
        else:
            self.index.remove(uid)
        if terms.problem:
            self._report(new, terms.problem)
        else:
            self._announced.pop(uid, None)
        self._join_users(info, held)
        self._handle.virtual_pods.upsert(pod, self.writer)
        self._recount(info)
        if (row := self.row_of(info)) >= 0:
            self._cluster.table.touch(row, self.facets)
        changed = before is None or offer_of(before) != offer_of(new)
        if info.matchable and (changed or not was):
            self._announce(info)
        elif before is not None and changed and not pod.node:
            self._handle.activate([pod])

    def _terms(self, new: Reservation, pod: Pod) -> Terms:
        resources = self._cluster.table.resource_names
        held = new.status.allocatable if new.spec.template is None else requests_of(new)
        # What is listed as 0 is restricted as well: owners get none of it.
        names = frozenset(index for index, _ in pod.requests.amounts) | {
            resources.index[name] for name in held.keys() & _NATIVE
        }
        annotations = new.metadata.annotations
        owners: Owners | None = None
        inner: dict[int, int] = {}
        problem = ""
        try:
            owners = Owners(new.spec.owners)
            inner, _, _ = allocatable_of(inner_reserved(annotations), resources)
            if new.spec.allocate_policy == RESTRICTED:
                chosen = restricted_names(annotations, (resources.names[index] for index in names))
                names = frozenset(resources.index[name] for name in chosen)
        except MalformedReservation as error:
            problem = str(error)
        slots = None
        if "pods" in held:
            _, slots, _ = allocatable_of({"pods": held["pods"]}, resources)
        order = parse_integer(new.metadata.labels.get(RESERVATION_ORDER, ""))
        return Terms(owners, names, inner, slots, order or None, problem)

    def _newest(self, uid: str) -> Reservation | None:
        info = self._infos.get(uid)
        return info.reservation if info is not None else None

    def _drop(self, uid: str) -> None:
        info = self._infos.get(uid)
        if info is None:
            return
        self._handle.virtual_pods.delete(uid)
        del self._infos[uid]
        self._recount(info)
        self.index.remove(uid)
        if self._by_name.get(info.name) is info:
            del self._by_name[info.name]

    def _report(self, reservation: Reservation, problem: str, kind: Kind[Any] = RESERVATIONS) -> None:
        uid = reservation.metadata.uid
        if self._announced.get(uid) != problem:
            self._announced[uid] = problem
            self._handle.events.event(kind, reservation.metadata, WARNING, "InvalidReservation", problem, once=True)

    # --- who uses what -----------------------------------------------------------------------------

    def pod_counted(self, row: int, pod: Pod, sign: int) -> int:
        """See Sharing."""
        if pod.virtual:
            return self._reserve_pod_counted(row, pod, sign)
        if not pod.facts:
            return 0
        acts, changed = self._operating.of(pod), 0
        if acts is not None and sign > 0:
            changed = self._operating_counted(row, pod, acts, sign)
        uid = self._used.get(pod.uid) if sign < 0 else self._uses(pod)
        if uid is not None:
            changed |= self._joined(uid, row, pod) if sign > 0 else self._left(uid, pod)
        if acts is not None and sign < 0:
            changed |= self._operating_counted(row, pod, acts, sign)
        return changed

    def facts_changed(self, row: int, pod: Pod) -> int:
        """See Sharing."""
        if pod.virtual:
            return self._reserve_pod_allocated(pod)
        changed = 0
        if (acts := self._operating.of(pod)) is not None:
            self._renew_whole(pod)
            changed = self._operating_counted(row, pod, acts, 1)
        before, now = self._used.get(pod.uid), self._uses(pod)
        if before is not None and before != now:
            changed |= self._left(before, pod)
            left = self._infos.get(before)
            if left is not None and left.matchable and not self._cluster.table.hypothetical:
                self._cluster.announce(RESERVATION_CHANGED, None, left)
        return changed | (self._joined(now, row, pod) if now is not None else 0)

    def _operating_counted(self, row: int, pod: Pod, acts: Operating, sign: int) -> int:
        """A pod that acts as a Reservation came to a row or changed there, or left it."""
        info = self._infos.get(pod.uid)
        if self._cluster.table.hypothetical:
            if info is not None:
                info.counted = sign > 0
            return 0
        if sign < 0:
            if info is not None:
                info.counted = False
                # Its node may come back: then it is read anew, and counts all that it has, not what owners had left.
                self._cluster.amend(pod, info.full, info.full_facts)
                self._leave_row(row, pod.uid)
                del self._infos[pod.uid]
                self._recount(info)
                self.index.remove(pod.uid)
                self._users_changed(pod.uid)
            return self.facets
        new = operating.reservation_of(pod, acts, self._cluster.table.resource_names.names)
        was = info is not None and info.matchable and offer_of(info.reservation) == offer_of(new)
        if info is None:
            info = self._infos[pod.uid] = ReservationInfo(new, pod, self._terms(new, pod), self._infos)
        else:
            info.say(new, self._terms(new, pod))
        if info.terms.problem:
            self._report(new, info.terms.problem, PODS)
        info.taken = operating.current_owner(acts) is not None
        info.counted = True
        self._on_row.setdefault(row, {})[pod.uid] = info
        if info.terms.owners is not None:
            self.index.add(pod.uid, info.terms.owners)
        self._join_users(info, pod)
        self._recount(info)
        if info.matchable and not was:
            self._announce(info)
        return self._settle(info) | self.facets

    def _announce(self, info: ReservationInfo) -> None:
        """Pods that it names may rest among pods that were equivalent until it named them: they are tried for
        themselves."""
        self._cluster.announce(RESERVATION_CHANGED, None, info)
        if info.terms.owners is not None:
            self._handle.activate(named_pods(info.terms.owners, self._handle.pending))

    def holder_of(self, pod: Pod) -> str | None:
        """See Sharing."""
        info = self.used_by(pod)
        return info.uid if info is not None else None

    def _uses(self, pod: Pod) -> str | None:
        found = self.allocated.of(pod)
        return found.uid if found is not None else None

    def _joined(self, uid: str, row: int, pod: Pod) -> int:
        self._used[pod.uid] = uid
        self._users.setdefault(uid, {})[pod.uid] = pod
        self._users_changed(uid)
        info = self._infos.get(uid)
        if info is None or self.row_of(info) != row:
            return 0
        info.join(pod)
        return self._resettle(info)

    def _left(self, uid: str, pod: Pod) -> int:
        self._used.pop(pod.uid, None)
        users = self._users.get(uid, {})
        users.pop(pod.uid, None)
        if not users:
            self._users.pop(uid, None)
        self._users_changed(uid)
        info = self._infos.get(uid)
        if info is None or info.owners.pop(pod.uid, None) is None:
            return 0
        info.owners_changed()
        return self._resettle(info)

    def _users_changed(self, uid: str) -> None:
        if not self._cluster.table.hypothetical:
            for listener in self._user_listeners:
                listener(uid)

    def _resettle(self, info: ReservationInfo) -> int:
        """Its owners changed, or what they use."""
        changed = self._settle(info)
        if not self._cluster.table.hypothetical:
            self._recount(info)
            return changed or self.facets  # rows with other users are other rows, also where these use nothing
        return changed

    def _reserve_pod_counted(self, row: int, pod: Pod, sign: int) -> int:
        info = self._infos.get(pod.uid)
        if info is None:
            if sign < 0 and not self._cluster.table.hypothetical:
                self._leave_row(row, pod.uid)  # its Reservation ended while it waited to be bound
            return 0
        info.counted = sign > 0
        if self._cluster.table.hypothetical:
            return 0
        if sign > 0:
            self._on_row.setdefault(row, {})[pod.uid] = info
            info.full_facts = pod.facts
            self._join_users(info, pod)
        else:
            self._leave_row(row, pod.uid)
            self._join_users(info, None)
            # One that ends, or that a newer version replaces, stays what it leaves: hints ask for that.
            if pod.uid in self._cluster.assigned:
                self._cluster.amend(pod, info.full, info.full_facts)  # its node went: it comes back with all it has
            elif self._cluster.is_assumed(pod.uid):
                info.full_facts = ()
                self._cluster.amend(pod, info.full, ())  # Reserve is taken back: it waits for all it wants
        self._recount(info)
        return self._settle(info)

    def _leave_row(self, row: int, uid: str) -> None:
        rest = self._on_row.get(row, {})
        rest.pop(uid, None)
        if not rest:
            self._on_row.pop(row, None)

    def _reserve_pod_allocated(self, pod: Pod) -> int:
        """A reserve pod was given devices or the like, or gave them back."""
        info = self._renew_whole(pod)
        return self._settle(info) or self.facets if info is not None else 0

    def _renew_whole(self, pod: Pod) -> ReservationInfo | None:
        """What was given to a reserve pod is the whole, of which it may have given away parts (pre-allocation); what it
        counts of that is no news."""
        info = self._infos.get(pod.uid)
        if info is None:
            return None
        nothing = (None,) * len(self._cluster.pod_facts)
        _, counted = info.remaining(self._cluster.pod_facts)
        whole = tuple(
            full if now == before else now
            for full, before, now in zip(
                info.full_facts or nothing, counted or nothing, pod.facts or nothing, strict=True
            )
        )
        info.full_facts = whole if any(value is not None for value in whole) else ()
        return info

    def _join_users(self, info: ReservationInfo, holds: Pod | None) -> None:
        """The owners are the users on the row of the pod that holds its room; None: it holds none."""
        row = holds.row if holds is not None else -1
        info.owners = {uid: pod for uid, pod in self.users(info.uid).items() if pod.row == row >= 0}
        info.owners_changed()

    def _settle(self, info: ReservationInfo) -> int:
        """The reserve pod counts what is left."""
        pod = self._cluster.assigned.get(info.uid)
        if pod is None:
            return 0
        requests, facts = info.remaining(self._cluster.pod_facts)
        return self._cluster.amend(pod, requests, facts, away=not info.counted)

    def _recount(self, info: ReservationInfo) -> None:
        """Whether pods may use it, and where, as the columns say it."""
        row = self.row_of(info)
        place = (row, info.bound_policy) if row >= 0 and info.matchable else None
        before = self._places.get(info.uid)
        if place == before:
            return
        for at, sign in ((before, -1), (place, 1)):
            if at is not None:
                column = self.bound if at[1] else self.unbound
                column.data[at[0]] += sign
                self._cluster.table.touch(at[0], self.facets)
        if place is None:
            del self._places[info.uid]
        else:
            self._places[info.uid] = place
        if before is not None and (place is None or place[1] != before[1]):
            self._cluster.announce(RESERVATION_LEFT, info, None)


def _identified(reservation: Reservation | None) -> Reservation | None:
    """With a uid, which plain manifests do not have."""
    if reservation is None or reservation.metadata.uid:
        return reservation
    meta = reservation.metadata
    return replace(reservation, metadata=replace(meta, uid=f"reservation-{meta.name}"))
