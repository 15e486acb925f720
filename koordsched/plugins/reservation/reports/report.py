"""Reservations, in a line each, and one of them with its owners, as values."""

from __future__ import annotations

from collections.abc import Generator

import msgspec

from koordsched.cluster.ports import shape_ports
from koordsched.framework.declaration import NotFound, finished
from koordsched.plugins.reservation.controller.expiry import deadline
from koordsched.plugins.reservation.info import ReservationInfo
from koordsched.plugins.reservation.kinds import PENDING, SCHEDULED_CONDITION, Reservation
from koordsched.plugins.reservation.plugin import Reservation as ReservationPlugin
from koordsched.plugins.reservation.reports.upstream import quantity
from koordsched.plugins.shared.moments import moment_text

_AT_ONCE = 200


class ResourceReport(msgspec.Struct, rename="camel"):
    """What a Reservation holds of a resource, what its owners use of it, and what they can still get."""

    resource: str
    has: str
    used: str
    left: str


class ReservationLine(msgspec.Struct, rename="camel"):
    """One Reservation. `node`: "" while it has none. `expires`: RFC 3339, "" if never. `problem`: why no pod may use
    it, or why it has no node."""

    name: str
    phase: str
    node: str
    policy: str
    allocate_once: bool
    owners: int
    resources: list[ResourceReport]
    expires: str = ""
    problem: str = ""


class OwnerReport(msgspec.Struct, rename="camel"):
    """A pod that uses a Reservation, with what it requests."""

    pod: str
    uid: str
    requests: dict[str, str]
    host_ports: list[int]


class ReservationReport(msgspec.Struct, rename="camel"):
    """One Reservation. `may_use`: `spec.owners` as written. `users_elsewhere`: pods on other nodes that name it."""

    reservation: ReservationLine
    may_use: object
    users: list[OwnerReport]
    users_elsewhere: list[str]


class Overview(msgspec.Struct):
    """All Reservations, by name."""

    reservations: list[ReservationLine]


def overviewing(plugin: ReservationPlugin) -> Generator[None, None, Overview]:
    """All of them; pauses now and then."""
    lines: list[ReservationLine] = []
    for number, reservation in enumerate(plugin.reservations.as_of_now()):
        if number % _AT_ONCE == 0:
            yield
        lines.append(_line(plugin, reservation))
    return Overview(sorted(lines, key=lambda line: line.name))


def overview(plugin: ReservationPlugin) -> Overview:
    """The same at once."""
    return finished(overviewing(plugin))


def report_on(plugin: ReservationPlugin, name: str) -> ReservationReport:
    """One of them. Raises NotFound."""
    reservation = plugin.reservations.get("", name)
    if reservation is None:
        raise NotFound(f"there is no Reservation {name}")
    info = plugin.cache.get(reservation.metadata.uid)
    names = plugin.table.resource_names.names
    owners = sorted(info.owners.values(), key=lambda pod: pod.key) if info is not None else []
    others = plugin.cache.users(reservation.metadata.uid).values()
    return ReservationReport(
        _line(plugin, reservation),
        reservation.spec.owners,
        [
            OwnerReport(
                pod.key,
                pod.uid,
                {names[index]: quantity(index, amount) for index, amount in pod.requests.amounts},
                [port for _, _, port in shape_ports(pod.shape)],
            )
            for pod in owners
        ],
        sorted(pod.key for pod in others if pod not in owners),
    )


def _line(plugin: ReservationPlugin, reservation: Reservation) -> ReservationLine:
    info = plugin.cache.get(reservation.metadata.uid)
    status = reservation.status
    until = deadline(reservation)
    problem = plugin.cache.problem_of(reservation)
    failed = status.condition(SCHEDULED_CONDITION)
    if not problem and failed is not None and failed.status == "False":
        problem = failed.message
    return ReservationLine(
        reservation.metadata.name,
        status.phase or PENDING,
        status.node_name,
        reservation.spec.allocate_policy or "Default",
        reservation.spec.once,
        len(info.owners) if info is not None else len(status.current_owners),
        _resources(info, plugin.table.resource_names.names) if info is not None else [],
        moment_text(until) if until < float("inf") and not reservation.terminated else "",
        problem,
    )


def _resources(info: ReservationInfo, names: list[str]) -> list[ResourceReport]:
    return [
        ResourceReport(
            names[index],
            quantity(index, held),
            quantity(index, info.allocated.get(index, 0)),
            quantity(index, info.available_to_owners(index)),
        )
        for index, held in info.allocatable.items()
    ]
