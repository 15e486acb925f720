"""Devices of ResourceSlices on the command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from koordsched.framework.declaration import Detail, View
from koordsched.framework.display import Line, Table
from koordsched.plugins.dynamicresources.reports.pages import NODE, POOLS
from koordsched.plugins.dynamicresources.reports.report import (
    ClaimReport,
    DeviceReport,
    NodePools,
    PoolReport,
    Pools,
    overview,
    report_on,
)

_NUMBERS = ("DEVICES", "FREE", "ALLOCATED", "SHARED", "BLOCKED", "TAINTED")


def overview_tables(shown: Pools) -> Iterator[Line | Table]:
    """A line per pool, then what is wrong with pools."""
    rows = [
        (
            _nodes(pool),
            pool.driver,
            pool.pool,
            pool.state,
            *map(str, (pool.devices, pool.free, pool.allocated, pool.shared, pool.blocked, pool.tainted)),
        )
        for pool in shown.pools
    ]
    yield Table(("NODE", "DRIVER", "POOL", "STATE", *_NUMBERS), rows, numbers=_NUMBERS)
    for pool in shown.pools:
        yield from _problems(pool)


def tables(shown: NodePools) -> Iterator[Line | Table]:
    """For each pool a line per device and claim."""
    for number, pool in enumerate(shown.pools):
        if number:
            yield Line("")
        title = f"{pool.driver}/{pool.pool}: {pool.free} of {pool.devices} devices free"
        yield Line(title + (f", {pool.state}" if pool.state != "usable" else ""), bold=True)
        yield from _problems(pool)
        devices = [each for each in shown.pool_devices if (each.driver, each.pool) == (pool.driver, pool.pool)]
        yield _devices(devices)


def _devices(devices: Sequence[DeviceReport]) -> Table:
    tainted = any(device.taints for device in devices)
    rows: list[tuple[str, ...]] = []
    for device in devices:
        place: tuple[str, ...] = (device.device, device.state)
        if tainted:
            place += (", ".join(device.taints) or "-",)
        holders = [_holder(report) for report in device.claims] or [("-", "-", "-")]
        for number, holder in enumerate(holders):
            rows.append((*place, *holder) if not number else ("",) * len(place) + holder)
    columns = ("DEVICE", "STATE", *["TAINTS"] * tainted, "CLAIM", "REQUEST", "PODS")
    return Table(columns, rows)


def _nodes(pool: PoolReport) -> str:
    return pool.node or (f"{pool.nodes} nodes" if pool.nodes else "none")


def _problems(pool: PoolReport) -> Iterator[Line]:
    title = f"{pool.driver}/{pool.pool}"
    if pool.state == "incomplete":
        yield Line(f"{title}: {pool.slices} of {pool.expected} slices of generation {pool.generation}")
    elif pool.problem:
        yield Line(f"{title}: {pool.problem}")
    if pool.gone:
        devices = f"{pool.gone} device{'s' if pool.gone > 1 else ''}"
        yield Line(f"{title}: claims have {devices} that the driver does not publish any more")


def _holder(report: ClaimReport) -> tuple[str, str, str]:
    request = report.request
    request += "".join(f", {name} {amount}" for name, amount in sorted(report.consumed.items()))
    request += ", admin access" * report.admin_access
    return report.claim, request, ", ".join(report.pods) + " (being allocated)" * report.in_flight or "-"


VIEW = View(
    group="devices",
    group_help="Show GPUs, NICs and FPGAs.",
    name="",
    help="""Of devices that drivers publish in ResourceSlices: one line per pool, and with NODE the devices that the
    node can reach, and which claims and pods have them.""",
    title="a report on pools of devices",
    page=POOLS,
    type=Pools,
    report=overview,
    show=overview_tables,
    is_empty=lambda shown: not shown.pools,
    detail=Detail("NODE", "a report on the devices that a node reaches", NODE, NodePools, report_on, tables),
)
