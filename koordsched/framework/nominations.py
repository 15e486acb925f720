"""Nominated pods, as filtering needs them: room promised to a pod that is not there yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from koordsched.cluster.pod import Pod


class Nominations(Protocol):
    """Who is nominated where; the queue's nominator is one."""

    def nodes_with_nominated(self) -> Iterable[str]:
        """Names of the nodes that have nominated pods."""

    def nominated_on(self, node: str) -> Sequence[Pod]:
        """The pods nominated to a node."""
