"""Which GPUs of a node a plugin prefers to allocate to a pod."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState


class GPUPreference(Protocol):
    """Of one plugin."""

    def preferred(self, shape: PodShape, row: int) -> Sequence[int]:
        """The minors of GPUs that may fit a pod of the shape, best first. It is on the row, without a GPU."""


class GPUPreferences:
    """By profile, at most one each."""

    def __init__(self, cluster: ClusterState) -> None:
        self.by_profile: dict[str, GPUPreference] = {}
