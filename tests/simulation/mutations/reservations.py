"""Defects of Reservation: who uses what, how it ends, and who is told."""

from koordsched.cluster.events import ASSIGNED_POD_DELETE
from koordsched.framework.status import SKIP, SUCCESS
from koordsched.plugins.reservation import cache
from koordsched.plugins.reservation.cache import ReservationCache
from koordsched.plugins.reservation.controller import expiry, status
from koordsched.plugins.reservation.controller.reconciler import Reconciler
from koordsched.plugins.reservation.fitting import Fitting
from koordsched.plugins.reservation.info import ReservationInfo
from koordsched.plugins.reservation.kinds import RESERVATIONS
from koordsched.plugins.reservation.owners import Owners
from koordsched.plugins.reservation.plugin import Reservation
from koordsched.plugins.reservation.waking import Waking
from koordsched.plugins.reservation.writer import ReservationWriter
from koordsched.plugins.shared.workqueue import WorkQueue
from koordsched.queue.hints import QueueingHint
from koordsched.queue.queue import SchedulingQueue
from tests.simulation.mutations.registry import mutation

WORLD = "reservations"

# --- who uses what -----------------------------------------------------------------------------------


@mutation(ReservationCache, "_joined", world=WORLD)
def owners_not_counted(original):
    return lambda self, uid, row, pod: 0


@mutation(ReservationCache, "_left", world=WORLD)
def room_of_owners_that_leave_not_given_back(original):
    return lambda self, uid, pod: 0


@mutation(ReservationInfo, "matchable", world=WORLD)
def used_once_more(original):
    return property(lambda self: self.available and not self.terms.problem)


@mutation(ReservationCache, "_uses", world=WORLD)
def reservations_told_by_their_names(original):
    def uses(self, pod):
        found = self.allocated.of(pod)
        named = self.named(found.name) if found is not None else None
        return named.uid if named is not None else original(self, pod)

    return uses


@mutation(cache, "parse_allocated", world=WORLD)
def owners_forgotten_by_a_restart(original):
    return lambda text: None


@mutation(Fitting, "exceeds", world=WORLD)
def restricted_policy_not_obeyed(original):
    return lambda self, requests, info, detailed=False: ()


@mutation(Owners, "matches", world=WORLD)
def open_to_all_pods(original):
    return lambda self, pod: True


@mutation(ReservationInfo, "say", world=WORLD)
def closed_reservations_used(original):
    def say(self, reservation, terms):
        original(self, reservation, terms)
        self.unschedulable = False

    return say


# --- what they hold ----------------------------------------------------------------------------------


@mutation(ReservationInfo, "left", world=WORLD)
def what_owners_use_counted_twice(original):
    return lambda self, index: self.allocatable.get(index, 0)


@mutation(ReservationInfo, "_facts_left", world=WORLD)
def devices_of_used_reservations_forgotten(original):
    return lambda self, facts: ()


@mutation(ReservationCache, "_drop", world=WORLD)
def ended_reservations_keep_their_room(original):
    return lambda self, uid: None


@mutation(ReservationCache, "_leave_row", world=WORLD)
def ended_reservations_stay_in_a_table(original):
    return lambda self, row, uid: None


# --- what is written ---------------------------------------------------------------------------------


@mutation(ReservationWriter, "bind", world=WORLD)
def node_written_whatever_happened_meanwhile(original):
    async def bind(self, pod, node):
        writes = self._handle.writes

        async def patch(kind, thing, changes, *, subresource=""):
            await merge(RESERVATIONS, thing.metadata, changes, subresource=subresource)

        merge, was = writes.merge, writes.patch
        writes.patch = patch
        try:
            await original(self, pod, node)
        finally:
            writes.patch = was

    return bind


@mutation(Reservation, "pre_bind", world=WORLD)
def annotation_of_the_reservation_left_out(original):
    async def pre_bind(self, cycle, pod, node):
        return SUCCESS

    return pre_bind


@mutation(Reservation, "pre_bind_pre_flight", world=WORLD)
def reservation_of_an_earlier_attempt_left(original):
    def pre_flight(self, cycle, pod, node):
        return original(self, cycle, pod, node) if pod.virtual or self.name in cycle.state else SKIP

    return pre_flight


@mutation(status, "used", world=WORLD)
def use_not_written(original):
    return lambda reservation, use, now: {}


@mutation(WorkQueue, "failed", world=WORLD)
def writes_that_fail_not_repeated(original):
    return WorkQueue.done


@mutation(ReservationWriter, "condition", world=WORLD)
def why_a_reservation_waits_not_written(original):
    return lambda self, pod, reason, message, nominated: None


@mutation(expiry, "deadline", world=WORLD)
def expiry_ignored(original):
    return lambda reservation: float("inf")


@mutation(Reconciler, "_gone", world=WORLD)
def annotations_of_ended_reservations_left(original):
    async def gone(self, uid):
        self._forget(uid)

    return gone


# --- what wakes pods ---------------------------------------------------------------------------------


@mutation(Waking, "_after_reservation_changed", world=WORLD)
def no_pod_woken_by_reservations(original):
    return lambda self, pod, old, new: QueueingHint.SKIP


@mutation(SchedulingQueue, "move_all", world=WORLD)
def no_pod_woken_by_the_end_of_a_reservation(original):
    def move_all(self, event, old=None, new=None, **more):
        ended = event == ASSIGNED_POD_DELETE and old is not None and old.virtual
        return 0 if ended else original(self, event, old, new, **more)

    return move_all
