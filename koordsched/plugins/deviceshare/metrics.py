"""Metrics of devices: upstream's gauge, and how many devices there are (deviceshare spec 5)."""

from __future__ import annotations

import numpy as np

from koordsched.observability.metric_registry import MetricRegistry
from koordsched.plugins.deviceshare.plugin import DeviceShare
from koordsched.plugins.shared.devices.columns import DeviceColumns
from koordsched.plugins.shared.devices.resources import ABSENT, GPU, MEMORY, TYPES

FREE, PARTLY, FULL, UNHEALTHY = "free", "partly_allocated", "allocated", "unhealthy"


def observe_devices(plugin: DeviceShare, metrics: MetricRegistry) -> None:
    """Shows devices by type and state, and nodes whose secondary devices are not well planned."""
    columns = plugin.columns
    metrics.read(
        "scheduler_secondary_device_not_well_planned",
        "1 for nodes whose Device says that their secondary devices are not well planned.",
        lambda: dict.fromkeys(plugin.nodes.not_well_planned(), 1),
        ("node_name",),
        of_leader=True,
    )
    metrics.read(
        "koordsched_devices",
        "Devices of nodes that report them, by type: free, partly allocated, allocated, or unhealthy.",
        lambda: devices(columns),
        ("type", "state"),
        of_leader=True,
    )
    metrics.read(
        "koordsched_overcommitted_devices",
        "Devices of which pods were given more than there is, those that are gone or unhealthy included.",
        lambda: {kind: overcommitted(columns, kind) for kind in TYPES},
        ("type",),
        of_leader=True,
    )


def devices(columns: DeviceColumns) -> dict[tuple[str, str], int]:
    """How many devices there are, by type and state."""
    found = {}
    rows = columns.table.all_rows
    inventories = [columns.inventory(row) for row in columns.table.row_of.values()]
    for kind in TYPES:
        offered = columns.by_minor(columns.offered[kind], kind, rows)
        used = columns.by_minor(columns.used[kind], kind, rows)
        healthy = (offered > 0).any(axis=2)
        busy = healthy & (used > 0).any(axis=2)
        touched = (offered > 0) & (used > 0)
        full = touched.any(axis=2) & (~touched | (used >= offered)).all(axis=2)
        known = sum(len(inventory.places[kind]) for inventory in inventories)
        counts: dict[str, int] = {
            FREE: int(np.count_nonzero(healthy & ~busy)),
            PARTLY: int(np.count_nonzero(busy & ~full)),
            FULL: int(np.count_nonzero(full)),
        }
        counts[UNHEALTHY] = known - sum(counts.values())
        found.update({(kind, state): number for state, number in counts.items()})
    return found


def overcommitted(columns: DeviceColumns, kind: str) -> int:
    """Devices of a type of which pods hold more than there is, of unhealthy ones anything, on nodes that report any.

    What rounded shares of memory add up to, less than one per cent for each pod, is none.
    """
    rows = columns.table.all_rows
    reported = np.zeros(columns.table.size, dtype=np.bool_)
    reported[[row for row in columns.table.row_of.values() if columns.inventory(row).equipment.reported]] = True
    used = columns.by_minor(columns.used[kind], kind, rows)
    offered = columns.by_minor(columns.offered[kind], kind, rows)
    most = offered.copy()
    if kind == GPU:
        most[:, :, MEMORY] += np.maximum(offered[:, :, MEMORY], 0) // 100 * columns.holders.data[rows][:, None]
    exceeded = ((used > most) & (offered != ABSENT)).any(axis=2)
    lost = ~(offered > 0).any(axis=2) & used.any(axis=2)
    return int(np.count_nonzero((exceeded | lost) & reported[:, None]))
