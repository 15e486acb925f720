"""Nominated pods, as filtering needs them: each has room on a node where it is not yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from koordsched.cluster.pod import Pod


class Nominations(Protocol):
    """Which pods are nominated where; the queue's nominator implements it. `version` grows with every change."""

    @property
    def version(self) -> int: ...

    def __len__(self) -> int:
        """How many pods are nominated."""

    def changed_since(self, version: int) -> Sequence[str] | None:
        """The nodes whose nominations changed after a version; None if that was too many changes ago."""

    def nodes_nominated_at_least(self, priority: int) -> Sequence[str]:
        """Names of the nodes to which a pod of this or a higher priority is nominated."""

    def node_of(self, uid: str) -> str:
        """The node a pod is nominated to, "" if none."""

    def stamp_of(self, node: str) -> int:
        """A number that is another one after every change of the nominations to a node that has some."""

    def nominated_on(self, node: str, priority: int | None = None) -> Sequence[Pod]:
        """The pods nominated to a node; only those of at least `priority`, if given."""
