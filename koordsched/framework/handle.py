"""What the scheduler offers to its plugins."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Protocol

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.status import ReasonTable


class WriteFailed(Exception):
    """An API write did not happen; the message is the server's, or says what went wrong on the way."""


class Writes(Protocol):
    """The API writes that plugins may ask for. Each raises WriteFailed."""

    async def bind(self, pod: Pod, node: str) -> None:
        """Creates the binding; returns when the API server has it, even if the answer got lost on the way."""


class Clock(Protocol):
    """Where time comes from."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    def wall(self) -> float:
        """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Handle:
    """Given to every plugin at construction; one per profile.

    `profile` is the schedulerName. Columns, facets and accountants are registered on `cluster` and
    `cluster.table` in the constructor; reasons are interned in `reasons`.
    """

    profile: str
    cluster: ClusterState
    reasons: ReasonTable
    writes: Writes
    clock: Clock
    rng: Random
