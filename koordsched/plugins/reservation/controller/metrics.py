"""Metrics of Reservations (reservation spec 5.3): read when they are asked for, so they are never old."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from koordsched.api.quantity import NANO, QuantityError, nano_value
from koordsched.cluster.objects import Store
from koordsched.observability.groupedgauges import Group
from koordsched.observability.instruments import LabelValues
from koordsched.observability.metric_registry import MetricRegistry
from koordsched.plugins.reservation.kinds import AVAILABLE, FAILED, PENDING, SUCCEEDED, Reservation

_PHASES = (PENDING, AVAILABLE, SUCCEEDED, FAILED)
_GIB = 1 << 30


def observe_reservations(metrics: MetricRegistry, store: Store[Reservation], leads: Callable[[], bool]) -> None:
    """Shows phases and resources, in the replica that leads."""

    def of_each(read: Callable[[Reservation], Group]) -> Callable[[], Iterable[Group]]:
        return lambda: map(read, store.as_of_now()) if leads() else ()

    metrics.read_groups(
        "scheduler_reservation_status_phase",
        "Whether a Reservation is in a phase: 1 or 0.",
        of_each(_phases),
        ("name", "phase"),
    )
    metrics.read_groups(
        "scheduler_reservation_resource",
        "What a Reservation has of a resource (allocatable), what its owners use (allocated), and their ratio.",
        of_each(_resources),
        ("type", "name", "resource", "unit"),
    )


def _phases(reservation: Reservation) -> Iterator[tuple[LabelValues, float]]:
    current = reservation.status.phase or PENDING
    for phase in _PHASES:
        yield (reservation.metadata.name, phase), float(phase == current)


def _resources(reservation: Reservation) -> Iterator[tuple[LabelValues, float]]:
    name, status = reservation.metadata.name, reservation.status
    for resource, quantity in status.allocatable.items():
        unit, divisor = {"cpu": ("core", NANO), "memory": ("Gi", NANO * _GIB)}.get(resource, ("raw", NANO))
        has, uses = _amount(quantity), _amount(status.allocated.get(resource, 0))
        if has is None or uses is None:
            continue
        yield ("allocatable", name, resource, unit), has / divisor
        yield ("allocated", name, resource, unit), uses / divisor
        if has > 0:
            yield ("utilization", name, resource, "ratio"), uses / has


def _amount(quantity: object) -> int | None:
    try:
        return nano_value(quantity) if isinstance(quantity, (str, int, float)) else None
    except QuantityError:
        return None
