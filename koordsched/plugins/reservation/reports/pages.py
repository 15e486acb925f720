"""Pages about Reservations: upstream's, and our own."""

from __future__ import annotations

from koordsched.framework.declaration import Page, report_pages
from koordsched.plugins.reservation.reports.report import overviewing, report_on
from koordsched.plugins.reservation.reports.upstream import node_reservations, selector_index

ALL = "/debug/reservations"
ONE = ALL + "/{name}"
UPSTREAM = "/apis/v1/plugins/Reservation"


PAGES = (
    *report_pages(ALL, overviewing, report_on),
    Page(UPSTREAM + "/nodeReservations/{nodeName}", node_reservations),
    Page(UPSTREAM + "/reservationSelectorIndex", selector_index),
)
