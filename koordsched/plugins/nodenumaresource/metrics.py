"""Metrics of what is known of nodes, and of CPUs that pods hold. Upstream has none (nodenumaresource spec 5)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from koordsched.observability.metric_registry import MetricRegistry
from koordsched.plugins.nodenumaresource import reportstates
from koordsched.plugins.nodenumaresource.columns import NUMAColumns
from koordsched.plugins.nodenumaresource.plugin import NodeNUMAResource


def observe_numa(plugin: NodeNUMAResource, metrics: MetricRegistry) -> None:
    """Shows nodes by the state of their reports, CPUs by who has them, and CPUs that were given twice."""
    columns = plugin.columns
    metrics.read(
        "koordsched_numa_nodes",
        "Nodes by their NodeResourceTopology: valid, invalid (it, or labels or annotations of the node), missing "
        "(though the node has a policy, or its pods have exclusive CPUs), or none.",
        lambda: reportstates.counts(columns),
        ("state",),
        of_leader=True,
    )
    metrics.read(
        "koordsched_numa_cpus",
        "CPUs of nodes that report them: held exclusively by pods, reserved, or free.",
        lambda: cpus(columns),
        ("state",),
        of_leader=True,
    )
    metrics.read(
        "koordsched_numa_conflicting_cpus",
        "CPUs that more than one pod holds exclusively.",
        lambda: conflicting_cpus(columns),
        of_leader=True,
    )


def cpus(columns: NUMAColumns) -> dict[str, int]:
    """The CPUs of all nodes whose CPUs are known, by state. One that is reserved and held counts as held."""
    layouts = columns.layouts.values
    width = -(-max(layout.topology.cpus.bit_length() if layout is not None else 1 for layout in layouts) // 8)
    ids = columns.layouts.ids.data[: columns.table.size]

    def packed(masks: list[int]) -> npt.NDArray[np.uint8]:
        """uint8[rows, width], from a bit set per layout."""
        joined = b"".join(mask.to_bytes(width, "little") for mask in masks)
        found: npt.NDArray[np.uint8] = np.frombuffer(joined, dtype=np.uint8).reshape(-1, width)[ids]
        return found

    usable = packed([layout.bits if layout is not None else 0 for layout in layouts])
    members = packed([layout.topology.cpus if layout is not None else 0 for layout in layouts])
    holders = columns.holders.data[: columns.table.size]
    held = np.packbits(holders[:, : width * 8] > 0, axis=1, bitorder="little")
    held = np.pad(held, ((0, 0), (0, width - held.shape[1])))

    def count(cpus: npt.NDArray[np.uint8]) -> int:
        return int(np.bitwise_count(cpus).sum(dtype=np.int64))

    taken, free = count(members & held), count(usable & ~held)
    return {"held": taken, "reserved": count(members) - taken - free, "free": free}


def conflicting_cpus(columns: NUMAColumns) -> int:
    """How many CPUs more than one pod holds, also on nodes without a report."""
    return int(np.count_nonzero(columns.holders.data[: columns.table.size] > 1))
