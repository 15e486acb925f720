"""What the scheduling loop measures; `observability.metrics.Metrics` is the implementation."""

from __future__ import annotations

from typing import Protocol


class Instruments(Protocol):
    """Counters and histograms of core spec 5.3. All durations in seconds."""

    def attempt(self, result: str, profile: str, seconds: float) -> None:
        """An attempt ended: `scheduled`, `unschedulable` or `error`."""

    def algorithm(self, seconds: float) -> None:
        """Finding a node took this long."""

    def extension_point(self, point: str, status: str, profile: str, seconds: float) -> None:
        """An extension point ran."""

    def evaluated(self, plan: tuple[tuple[str, str], ...], profile: str) -> None:
        """These (plugin, extension point) pairs took part in a cycle."""

    def scheduled(self, attempts: int, since_first_attempt: float, flushed: bool) -> None:
        """A pod was bound."""

    def permit_wait(self, result: str, seconds: float) -> None:
        """A pod's wait on Permit ended."""

    def preemption_attempt(self) -> None:
        """PostFilter was asked to make room."""
