"""NUMA topology hints, between plugins that provide them and the one that merges them. Neither imports the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from koordsched.cluster.pod import Pod
from koordsched.framework.interface import CycleState
from koordsched.framework.status import Status


@dataclass(frozen=True, slots=True)
class TopologyHint:
    """NUMA nodes that can serve a resource: bit n of `mask` is NUMA node n. `preferred`: as few of them as possible."""

    mask: int
    preferred: bool
    score: int = 0


class TopologyHintProvider(Protocol):
    """Registered in `Handle.topology_hint_providers` of its profile."""

    def hints(self, cycle: CycleState, pod: Pod, row: int) -> Mapping[str, Sequence[TopologyHint]]:
        """By resource, the ways to serve the pod on a row. None for one: it fits nowhere there."""

    def allocate(self, cycle: CycleState, pod: Pod, row: int, hint: TopologyHint) -> Status:
        """Takes the merged hint; a rejection if the pod cannot be served by it."""
