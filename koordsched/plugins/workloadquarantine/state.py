"""What the quarantines of a cluster know that nodes and namespaces do not say, as journals record it."""

from __future__ import annotations

import msgspec

from koordsched.api.meta import OwnerReference
from koordsched.framework.agenda import Due
from koordsched.plugins.shared.workloads import Workload
from koordsched.plugins.workloadquarantine.falls import Fall, Fallen
from koordsched.plugins.workloadquarantine.record import Record


class Held(msgspec.Struct, frozen=True, array_like=True):
    """A quarantine, and when it ends."""

    workload: Workload
    record: Record
    end: Due


class SuspicionState(msgspec.Struct, frozen=True, array_like=True):
    """See `quarantines.Suspicion`."""

    workload: Workload
    owner: OwnerReference | None
    nodes: dict[str, float]


class PlacementsState(msgspec.Struct, frozen=True):
    """Counts by workload; `timer`: the one that waits, if any; `turns`: whether it ends a part of the window."""

    counts: tuple[tuple[Workload, tuple[int, ...]], ...]
    next: float
    timer: Due | None
    turns: bool


class QuarantineState(msgspec.Struct, frozen=True):
    """See `Quarantines`, whose fields these are; `look`, `next_end`: the timers that wait."""

    held: tuple[Held, ...]
    suspicions: tuple[SuspicionState, ...]
    placements: PlacementsState
    boots: dict[int, str]
    fallen: dict[str, Fallen]
    falls: tuple[Fall, ...]
    look: Due | None
    next_end: Due | None
