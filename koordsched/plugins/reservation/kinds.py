"""Reservation: room on a node that is kept for those pods that it was made for. Labels and annotations.

Template and owners stay JSON values here: users write them, and one that is malformed must harm its Reservation alone
(reservation spec 2.1, 2.2).
"""

from __future__ import annotations

from typing import Any

from koordsched.api.core import Quantities, Taint
from koordsched.api.meta import ObjectMeta, Wire
from koordsched.cluster.kinds import Kind, Need, every_pod

_DOMAIN = "scheduling.koordinator.sh/"

# Annotations of pods.
RESERVATION_ALLOCATED = _DOMAIN + "reservation-allocated"
RESERVATION_AFFINITY = _DOMAIN + "reservation-affinity"
EXACT_MATCH = _DOMAIN + "exact-match-reservation"
RESERVATION_OWNERS = _DOMAIN + "reservation-owners"
CURRENT_OWNER = _DOMAIN + "reservation-current-owner"
PRE_ALLOCATABLE_PRIORITY = "pod.koordinator.sh/pre-allocatable-priority"

# Labels of pods.
RESERVATION_IGNORED = _DOMAIN + "reservation-ignored"
OPERATING_MODE = _DOMAIN + "operating-mode"
DISABLE_PREEMPTIBLE = _DOMAIN + "disable-preemptible"
PRE_ALLOCATABLE = "pod.koordinator.sh/is-pre-allocatable"

# Labels of Reservations.
RESERVATION_ORDER = _DOMAIN + "reservation-order"
PRE_ALLOCATION_REQUIRED = _DOMAIN + "pre-allocation-required"
PRIORITY = "koordinator.sh/priority"

# Annotations of Reservations.
RESTRICTED_OPTIONS = _DOMAIN + "reservation-restricted-options"
NODE_RESERVATION = "node.koordinator.sh/reservation"
RESIZE_ALLOCATABLE = _DOMAIN + "reservation-resize-allocatable"

# Annotations of reserve pods, which exist in memory only.
RESERVE_POD = _DOMAIN + "reserve-pod"
RESERVATION_NAME = _DOMAIN + "reservation-name"
RESERVATION_NODE = _DOMAIN + "reservation-node"
IS_PRE_ALLOCATION = _DOMAIN + "is-pre-allocation"

PENDING = "Pending"
AVAILABLE = "Available"
WAITING = "Waiting"
SUCCEEDED = "Succeeded"
FAILED = "Failed"

SCHEDULED_CONDITION = "Scheduled"
READY_CONDITION = "Ready"

ALIGNED = "Aligned"
RESTRICTED = "Restricted"


class PreAllocationPolicy(Wire, frozen=True):
    """How running pods are chosen whose resources the Reservation takes over."""

    mode: str = "Default"
    enable_multiple: bool = False


class ReservationSpec(Wire, frozen=True):
    """What is reserved, for which pods, for how long. `ttl` is a Go duration."""

    template: Any = None
    owners: Any = None
    ttl: str | None = None
    expires: str | None = None
    pre_allocation: bool = False
    pre_allocation_policy: PreAllocationPolicy | None = None
    allocate_once: bool | None = None
    allocate_policy: str = ""
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()

    @property
    def once(self) -> bool:
        """Whether the Reservation is consumed as a whole by the first pod; the default."""
        return self.allocate_once is not False


class ReservationCondition(Wire, frozen=True):
    """A condition, of type Scheduled or Ready."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_probe_time: str | None = None
    last_transition_time: str | None = None


class CurrentOwner(Wire, frozen=True):
    """A pod that uses the Reservation."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class ReservationStatus(Wire, frozen=True):
    """Where it is, and what its owners use of it."""

    phase: str = ""
    node_name: str = ""
    allocatable: Quantities = {}
    allocated: Quantities = {}
    current_owners: tuple[CurrentOwner, ...] = ()
    conditions: tuple[ReservationCondition, ...] = ()

    def condition(self, kind: str) -> ReservationCondition | None:
        """The condition of a type."""
        return next((each for each in self.conditions if each.type == kind), None)


class Reservation(Wire, frozen=True):
    """Room on a node, kept for its owners."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReservationSpec = ReservationSpec()
    status: ReservationStatus = ReservationStatus()

    @property
    def active(self) -> bool:
        """Whether owners may use what it holds on a node."""
        return self.status.phase in (AVAILABLE, WAITING)

    @property
    def terminated(self) -> bool:
        """Whether it is over: it holds nothing any more, and never will."""
        return self.status.phase in (SUCCEEDED, FAILED)


RESERVATIONS = Kind(
    "scheduling.koordinator.sh/v1alpha1",
    "reservations",
    Reservation,
    namespaced=False,
    verbs={"": ("get", "patch", "delete"), "status": ("patch",)},
    need=Need(("Reservation",), every_pod, "pods of profiles with Reservation wait"),
    scheduled=True,
)


def offer_of(reservation: Reservation) -> tuple[object, ...]:
    """What users say about it, and how much it has: all that decides which pods may use it, but for its owners.

    Defaults that the API server fills in later make no difference.
    """
    meta, spec = reservation.metadata, reservation.spec
    return (
        spec.template,
        spec.owners,
        spec.once,
        spec.allocate_policy,
        spec.unschedulable,
        spec.taints,
        spec.pre_allocation,
        spec.pre_allocation_policy or PreAllocationPolicy(),
        reservation.status.allocatable,
        meta.labels,
        meta.annotations,
        meta.deletion_timestamp,
    )
