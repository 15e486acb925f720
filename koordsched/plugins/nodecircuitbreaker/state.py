"""What the breakers of a cluster know that nodes and pods do not say, as journals record it."""

from __future__ import annotations

import msgspec

from koordsched.framework.agenda import Due
from koordsched.plugins.nodecircuitbreaker.evidence import EvidenceState
from koordsched.plugins.nodecircuitbreaker.record import Record
from koordsched.plugins.nodecircuitbreaker.sightings import Sighting


class ProbeState(msgspec.Struct, frozen=True, array_like=True):
    """A probe. `timer`, `probation`: the timers that wait."""

    uid: str
    row: int
    healthy_since: float | None
    timer: Due | None
    probation: Due | None


class BreakerState(msgspec.Struct, frozen=True):
    """See `Breakers`, whose fields these are; `look`, `next_end`: the timers that wait."""

    records: dict[int, Record]
    held: dict[str, str]
    evidence: EvidenceState
    echoes: dict[int, tuple[str, ...]]
    probes: tuple[ProbeState, ...]
    failing: tuple[Sighting, ...]
    gone: tuple[tuple[Sighting, float], ...]
    starting: dict[str, Due]
    suspects: tuple[str, ...]
    look: Due | None
    next_end: Due | None
    cool_downs: list[tuple[int, float]]
