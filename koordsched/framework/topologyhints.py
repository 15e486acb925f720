"""NUMA topology hints: between plugins that provide them and the topology manager, which merges them.

A hint says that some NUMA nodes of a machine can serve a resource together. Hints are arrays over rows, all of which
have the same number of NUMA nodes, and over the subsets of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from itertools import combinations
from typing import Protocol

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.events import ClusterEvent
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.shape import PodShape
from koordsched.framework.status import Codes

Flags = npt.NDArray[np.bool_]
Amounts = npt.NDArray[np.int64]


class NUMAPolicy(IntEnum):
    """How the resources of a pod must be aligned to NUMA nodes."""

    NONE = 0
    BEST_EFFORT = 1
    RESTRICTED = 2
    SINGLE_NUMA_NODE = 3


class Subsets:
    """Subsets of NUMA nodes 0 to `count` - 1: the smaller first, those of one size in lexicographic order.

    `masks`: int64[subsets], bit n is NUMA node n; `sizes`: int64[subsets]; `members`: bool[subsets, count];
    `by_size`: per size, where its subsets begin and end, and the members of each, int[subsets of the size, size].
    """

    def __init__(self, count: int, sizes: Iterable[int]) -> None:
        of_size = [list(combinations(range(count), size)) for size in sizes]
        every = [subset for subsets in of_size for subset in subsets]
        self.count = count
        self.masks = np.array([sum(1 << node for node in subset) for subset in every], dtype=np.int64)
        self.sizes = np.array([len(subset) for subset in every], dtype=np.int64)
        self.members: Flags = (self.masks[:, None] >> np.arange(count) & 1).astype(np.bool_)
        self.by_size: list[tuple[slice, npt.NDArray[np.intp]]] = []
        start = 0
        for subsets in of_size:
            self.by_size.append((slice(start, start + len(subsets)), np.array(subsets, dtype=np.intp)))
            start += len(subsets)
        self.index = {mask: at for at, mask in enumerate(self.masks.tolist())}

    def __len__(self) -> int:
        return len(self.masks)


@cache
def subsets_of(count: int) -> Subsets:
    """All subsets but the empty one."""
    return Subsets(count, range(1, count + 1))


@cache
def subsets_of_size(count: int, size: int) -> Subsets:
    """The subsets of this many NUMA nodes."""
    return Subsets(count, (size,))


@dataclass(frozen=True, slots=True)
class ResourceHints:
    """The hints about one resource.

    `applies`: bool[rows], False where the provider has no preference. bool[rows, subsets]: where the subset can serve
    the resource (`possible`), and where it does so with as few NUMA nodes as possible (`preferred`). `score`:
    int64[rows, subsets].
    """

    resource: str
    applies: Flags
    possible: Flags
    preferred: Flags
    score: Amounts


class TopologyHintProvider(Protocol):
    """Registered in `Handle.topology_hint_providers` of its profile, in the order of the configuration.

    `facets`: what of a row its answers depend on. `changed`: announced when that is another; comes with the row.
    """

    changed: ClusterEvent

    @property
    def facets(self) -> int: ...

    def concerns(self, shape: PodShape) -> bool:
        """Whether pods of the shape ask for anything that the provider knows of; otherwise it is not asked."""

    def key(self, shape: PodShape, table: NodeTable, rows: RowArray) -> Amounts:
        """int64[rows, width]: all that the answers for a pod of the shape depend on, as for `framework.keyed`."""

    def hints(
        self, shape: PodShape, table: NodeTable, rows: RowArray, subsets: Subsets, policy: NUMAPolicy
    ) -> list[ResourceHints]:
        """The hints for a pod of the shape on rows with `subsets.count` NUMA nodes; none: no preference."""

    def infeasible(self, shape: PodShape, table: NodeTable, rows: RowArray) -> Codes | None:
        """Where the pod cannot be served by any NUMA nodes, whatever other providers say: a reason number, else 0."""

    def refused(self, shape: PodShape, table: NodeTable, rows: RowArray, masks: Amounts) -> Codes | None:
        """Where the pod cannot be served by the NUMA nodes that were chosen (0: any): a reason number, else 0."""


class NUMAAlignment(Protocol):
    """Which NUMA nodes pods use, as one plugin of the profile decides it; it is in `Handle.numa_alignment`.

    `facets`: what of a row the answers depend on; `changed`: announced when other policies apply; comes with the row.
    In Reserve the choice is in `CycleState.numa_affinity`.
    """

    changed: ClusterEvent

    @property
    def facets(self) -> int: ...

    def concerns(self, shape: PodShape, row: int) -> bool:
        """Whether a policy, or CPUs of their own, may say where on the row pods of the shape go."""

    def affinities(self, shape: PodShape, table: NodeTable, rows: RowArray) -> Amounts | None:
        """int64[rows]: the bit set of the NUMA nodes that a policy makes a pod of the shape use, NO_AFFINITY if any
        will do, UNDECIDED where no policy has decided it in Filter; None: nowhere."""


UNDECIDED = -1
