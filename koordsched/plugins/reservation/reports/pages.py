"""Pages about Reservations: upstream's, and our own."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from koordsched.framework.declaration import Page
from koordsched.plugins.reservation.plugin import Reservation
from koordsched.plugins.reservation.reports.report import Overview, ReservationReport, overviewing, report_on
from koordsched.plugins.reservation.reports.upstream import node_reservations, selector_index

ALL = "/debug/reservations"
ONE = ALL + "/{name}"
UPSTREAM = "/apis/v1/plugins/Reservation"


def _overview(plugin: Reservation, parameters: Mapping[str, str]) -> Generator[None, None, Overview]:
    """All of them."""
    return overviewing(plugin)


def _report(plugin: Reservation, parameters: Mapping[str, str]) -> ReservationReport:
    """One of them. Raises NotFound for one that is unknown."""
    return report_on(plugin, parameters["name"])


PAGES = (
    Page(ALL, _overview),
    Page(ONE, _report),
    Page(UPSTREAM + "/nodeReservations/{nodeName}", node_reservations),
    Page(UPSTREAM + "/reservationSelectorIndex", selector_index),
)
