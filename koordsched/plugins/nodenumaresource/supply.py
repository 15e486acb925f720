"""What NUMA nodes have left, and how a request is split among some of them (nodenumaresource spec 3.0, 3.4).

All of it is arrays over rows with the same number of NUMA nodes: one row is asked about as often as thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.framework.topologyhints import Amounts, Flags
from koordsched.plugins.nodenumaresource.columns import ABSENT, CPU, NUMAColumns
from koordsched.plugins.nodenumaresource.policies import BindPolicy


class Supply(NamedTuple):
    """int64 or bool[rows, resources, NUMA nodes]: what there is, what of that is left for the pod, whether the NUMA
    node has the resource at all. `used`: what pods were given, CPUs of their own as much as they are worth. `usable`:
    int64[rows, NUMA nodes], CPUs that pods may get as their own; None if they were not counted.
    """

    capacity: Amounts
    available: Amounts
    present: Flags
    used: Amounts
    usable: Amounts | None


def amplified(amounts: Amounts, ratios: npt.NDArray[np.float64]) -> Amounts:
    """Rounded up; ratios up to 1 change nothing."""
    return np.where(ratios > 1, np.ceil(amounts * ratios), amounts).astype(np.int64)


def supply_of(
    columns: NUMAColumns,
    rows: RowArray,
    count: int,
    resources: Sequence[int],
    *,
    cap: BindPolicy = BindPolicy.NONE,
    count_cpus: bool = False,
) -> Supply:
    """`resources`: indexes, CPU first. `cap`: no more CPU is left than CPUs that agree with this policy."""
    every = columns.amounts_of(columns.used, rows)[:, :, :count]
    used = every[:, resources]
    zones = columns.amounts_of(columns.zones, rows)[:, resources, :count]
    ratios = columns.ratio.data[rows]
    if (ratios > 1).any():
        bound = columns.bound(rows)[:, :count] * 1000
        more = amplified(bound, ratios[:, None]) - bound
        used[:, CPU] += more * every.any(axis=1)
    present = zones != ABSENT
    capacity = zones * present
    available = np.maximum(capacity - np.maximum(used, 0), 0)
    usable = None
    if count_cpus or cap is not BindPolicy.NONE:
        usable = columns.usable(rows, cap)[:, :count]
        if cap is not BindPolicy.NONE:
            np.minimum(available[:, CPU], usable * 1000, out=available[:, CPU])
    return Supply(capacity, available, present, used, usable)


class Split(NamedTuple):
    """`nodes`: int[rows, resources, size, subsets], the NUMA nodes of each subset in the order in which they are asked;
    `given`: what each gives; `rest`: int64[rows, resources, subsets], what is missing in the end.
    """

    nodes: npt.NDArray[np.intp]
    given: Amounts
    rest: Amounts


def split(
    available: Amounts,
    requested: Sequence[int],
    members: npt.NDArray[np.intp],
    *,
    whole: bool,
    cores: Amounts | None = None,
) -> Split:
    """Splits a request among the NUMA nodes of some subsets of the same size: int[subsets, size].

    The NUMA nodes are asked one after the other, the one with the least first, for an equal share of what is still
    missing. `whole`: CPU goes in whole CPUs; `cores`: int64[rows], in whole cores with so many CPUs.

    Upstream sorts by what the NUMA nodes at the *positions* in the list have, whatever the list names; so do we, for
    its order shows in allocations (nodenumaresource spec 3.4, 6.3).
    """
    rows, resources, _ = available.shape
    size = members.shape[1]
    order = np.zeros((rows, resources, 1), dtype=np.intp)
    if size > 1:
        falls = available[:, :, 1:size] < available[:, :, : size - 1]
        order = _orders(size)[(falls << np.arange(size - 1)).sum(axis=2)]
    nodes = members.T[order]
    offered = np.take_along_axis(available, nodes.reshape(rows, resources, -1), axis=2).reshape(nodes.shape)
    rest = np.empty((rows, resources, len(members)), dtype=np.int64)
    rest[:] = np.array(requested, dtype=np.int64)[:, None]
    given = np.empty_like(offered)
    for at in range(size):
        left = size - at
        share = rest // left
        if whole:
            cpus = -(-rest[:, CPU] // 1000)
            if cores is None:
                share[:, CPU] = cpus // left * 1000
            else:
                share[:, CPU] = cpus // cores[:, None] // left * cores[:, None] * 1000
        given[:, :, at] = np.minimum(offered[:, :, at], share)
        rest -= given[:, :, at]
    return Split(nodes, given, rest)


@cache
def _orders(size: int) -> npt.NDArray[np.intp]:
    """By which of the neighbours fall (bit i: what is at i + 1 is less than what is at i), how upstream sorts a list.

    Its insertion sort compares what is at two positions, which do not change while the list is sorted.
    """
    return np.array([order_of(size, falls) for falls in range(1 << size - 1)], dtype=np.intp)


@cache
def order_of(size: int, falls: int) -> tuple[int, ...]:
    """One row of `_orders`: positions in the list."""
    order = list(range(size))
    for i in range(1, size):
        at = i
        while at > 0 and falls >> at - 1 & 1:
            order[at - 1], order[at] = order[at], order[at - 1]
            at -= 1
    return tuple(order)
