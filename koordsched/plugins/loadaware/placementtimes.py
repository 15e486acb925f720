"""When pods were placed and initialized, as their conditions say."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from koordsched.api import core
from koordsched.cluster.facts import PodFact
from koordsched.cluster.state import ClusterState
from koordsched.plugins.loadaware.measurements import read_time


class PlacementTimes(NamedTuple):
    """Seconds since the epoch, 0 for a time that is not known."""

    placed: int
    initialized: int


def placement_times(cluster: ClusterState) -> PodFact[PlacementTimes]:
    """The fact, for `ClusterState.shared`."""
    return cluster.pod_facts.declare_status("placement-times", _read, _shown)


def _read(status: core.PodStatus) -> PlacementTimes | None:
    times = PlacementTimes(_time(status, "PodScheduled"), _time(status, "Initialized"))
    return times if any(times) else None


def _time(status: core.PodStatus, kind: str) -> int:
    condition = status.condition(kind)
    if condition is None or condition.status != "True":
        return 0
    return int(read_time(condition.last_transition_time) or 0)


def _shown(times: PlacementTimes) -> dict[str, Any]:
    shown = {"PodScheduled": times.placed, "Initialized": times.initialized}
    return {
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": _text(seconds)}
            for kind, seconds in shown.items()
            if seconds
        ]
    }


def _text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
