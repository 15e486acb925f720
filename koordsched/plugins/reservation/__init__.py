"""Reservation: room on nodes that is kept for the pods that it was made for (reservation spec).

* `args` the plugin's arguments; `kinds` the objects, labels and annotations; `annotations`, `malformed` their reading.
* `owners` says which pods may use a Reservation, `affinity` which one a pod asks for; `matching` finds them.
* `reservepod` makes the pod that is scheduled in place of a Reservation; `writer` writes what is decided about it.
* `info` is what one holds and what is in use; `cache` has all of them, and lets reserve pods count what is left.
* `fitting` says whether a pod fits into one, `choosing` which one it would use; `preallocation` which running pods
  one may take over, which `takeover` does; `stayers` are the pods whose place it does not take. `judging` is Filter on
  the rows of all these; `plugin` is all of it at the extension points.
* `messages` are for pods that stay pending; `selectorindex` finds Reservations by labels.
* `controller` keeps the status, ends Reservations, and deletes those that are over; `reports` shows them.
* `webhook` has the rules of admission.
"""

from koordsched.config.catalog import ArgsKind, entry
from koordsched.framework.declaration import Declaration
from koordsched.plugins.reservation.args import ReservationArgs, validate, with_defaults
from koordsched.plugins.reservation.controller.loops import ReservationController
from koordsched.plugins.reservation.plugin import Reservation
from koordsched.plugins.reservation.reports.pages import PAGES
from koordsched.plugins.reservation.reports.tables import VIEW

DECLARATION = Declaration(
    name=Reservation.name,
    factory=Reservation,
    entry=entry(
        "preFilter filter postFilter preScore score reserve preBind bind",
        ArgsKind(ReservationArgs, with_defaults, validate, by_constructor=True),
    ),
    controller=ReservationController,
    pages=PAGES,
    views=(VIEW,),
)
