"""Reservations on the command line."""

from __future__ import annotations

from collections.abc import Iterator

from koordsched.framework.declaration import Detail, View
from koordsched.framework.display import Line, Table
from koordsched.plugins.reservation.reports.pages import ALL, ONE
from koordsched.plugins.reservation.reports.report import (
    Overview,
    ReservationLine,
    ReservationReport,
    overview,
    report_on,
)


def overview_tables(shown: Overview) -> Iterator[Line | Table]:
    """A line per Reservation, then what is wrong with any."""
    header = ("NAME", "PHASE", "NODE", "POLICY", "ONCE", "OWNERS", "LEFT", "EXPIRES")
    rows = [
        (
            line.name,
            line.phase,
            line.node or "-",
            line.policy,
            "yes" if line.allocate_once else "no",
            str(line.owners),
            _left(line),
            line.expires or "-",
        )
        for line in shown.reservations
    ]
    yield Table(header, rows, numbers=("OWNERS",))
    for line in shown.reservations:
        if line.problem:
            yield Line(f"{line.name}: {line.problem}")


def tables(shown: ReservationReport) -> Iterator[Line | Table]:
    """The Reservation, its resources, and the pods that use it."""
    line = shown.reservation
    said = [f"Reservation {line.name}", line.phase]
    said += [f"on {line.node}"] * bool(line.node)
    said += [f"policy {line.policy}", "for one pod" if line.allocate_once else "for several pods"]
    said += [f"expires {line.expires}"] * bool(line.expires)
    yield Line(", ".join(said))
    if line.problem:
        yield Line(line.problem)
    rows = [(each.resource, each.has, each.used, each.left) for each in line.resources]
    yield Line("")
    yield Table(("RESOURCE", "HAS", "USED", "LEFT FOR OWNERS"), rows)
    users = [(each.pod, _amounts(each.requests), ", ".join(map(str, each.host_ports)) or "-") for each in shown.users]
    yield Line("")
    yield Table(("USED BY", "REQUESTS", "HOST PORTS"), users)
    for pod in shown.users_elsewhere:
        yield Line(f"{pod} names it, but is not on its node")


def _left(line: ReservationLine) -> str:
    return ", ".join(f"{each.resource} {each.left}/{each.has}" for each in line.resources) or "-"


def _amounts(amounts: dict[str, str]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in amounts.items()) or "-"


VIEW = View(
    group="reservations",
    group_help="Show Reservations.",
    name="",
    help="""Show which Reservations there are, which pods use them, and what is left.

    Without NAME: one line per Reservation, with its node, how many pods use it, and when it expires.

    Reads the cluster of the kubeconfig, or files (-f), or asks a running scheduler (--live).
    """,
    title="a report on Reservations",
    page=ALL,
    type=Overview,
    report=overview,
    show=overview_tables,
    detail=Detail("NAME", "a report on a Reservation", ONE, ReservationReport, report_on, tables),
)
