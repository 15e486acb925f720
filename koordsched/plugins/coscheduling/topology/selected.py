"""The pods on nodes that have a selector: counted per value and row, as pods come and go."""

from __future__ import annotations

import numpy as np

from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState
from koordsched.plugins.coscheduling.kinds import NETWORK_TOPOLOGY_SELECTOR
from koordsched.plugins.coscheduling.topology.tree import Amounts


def selector_of(shape: PodShape) -> str:
    """The selector of pods of a shape, "" if they have none."""
    return shape.meta.annotations.get(NETWORK_TOPOLOGY_SELECTOR, "")


class SelectedPods:
    """An accountant. No verdict depends on it, so no row changes for it."""

    facets = 0

    def __init__(self, cluster: ClusterState) -> None:
        cluster.shape_facts.declare(annotations=[NETWORK_TOPOLOGY_SELECTOR])
        self._counts: dict[str, dict[int, int]] = {}
        cluster.add_accountant(self)

    def pod_added(self, row: int, pod: Pod) -> int:
        """See PodAccountant."""
        return self._count(row, pod, 1)

    def pod_removed(self, row: int, pod: Pod) -> int:
        """See PodAccountant."""
        return self._count(row, pod, -1)

    def on_rows(self, selector: str, size: int) -> Amounts:
        """int64[size]: the pods with this selector per row."""
        counts = self._counts.get(selector, {})
        found = np.zeros(size, dtype=np.int64)
        found[np.fromiter(counts, dtype=np.intp, count=len(counts))] = np.fromiter(
            counts.values(), dtype=np.int64, count=len(counts)
        )
        return found

    def _count(self, row: int, pod: Pod, sign: int) -> int:
        selector = selector_of(pod.shape)
        if selector:
            counts = self._counts.setdefault(selector, {})
            counts[row] = counts.get(row, 0) + sign
            if not counts[row]:
                del counts[row]
                if not counts:
                    del self._counts[selector]
        return 0
