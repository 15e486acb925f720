"""The status of a PodGroup, from what it was and how its members are (coscheduling spec 3.12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from koordsched.plugins.coscheduling.kinds import (
    FAILED,
    FINISHED,
    PENDING,
    PRE_SCHEDULING,
    RUNNING,
    SCHEDULED,
    SCHEDULING,
    PodGroup,
    PodGroupStatus,
)
from koordsched.plugins.shared.moments import moment

LONGEST_START = 48 * 3600.0
"""Seconds from the creation of a PodGroup to the start of its scheduling, beyond which it is left alone."""


LONGEST_WAY = 4
"""Steps that change something when the numbers stay as they are, at most: from no phase by way of Pending and
PreScheduling to one that follows from the numbers alone."""


class Counts(NamedTuple):
    """How many members there are, are on a node for good, run, have succeeded, have failed."""

    pods: int = 0
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0


def is_left_alone(group: PodGroup) -> bool:
    """Whether the status is final: the gang is over, or was placed long after its creation and never ran."""
    status = group.status
    if status.phase in (FINISHED, FAILED):
        return True
    if status.scheduled != group.spec.min_member or status.running:
        return False
    start, created = moment(status.schedule_start_time), moment(group.metadata.creation_timestamp)
    return start is not None and created is not None and start - created > LONGEST_START


def settled_status(group: PodGroup, counts: Counts, occupied_by: str, now: str) -> PodGroupStatus:
    """Where the steps lead while the numbers stay as they are; arguments as for `next_status`.

    Upstream writes each step, and takes the next when it sees its own write.
    """
    status = next_status(group, counts, occupied_by, now)
    for _ in range(LONGEST_WAY):
        then = next_status(msgspec.structs.replace(group, status=status), counts, occupied_by, now)
        if then == status:
            break
        status = then
    return status


def next_status(group: PodGroup, counts: Counts, occupied_by: str, now: str) -> PodGroupStatus:
    """One step on. `occupied_by`: the owners of the first member; `now`: the time, as text.

    The numbers are always those of now; upstream keeps old ones when all members are gone.
    """
    minimum, before = group.spec.min_member, group.status
    if not before.phase:
        return msgspec.structs.replace(before, phase=PENDING)
    if before.phase == PENDING:
        if counts.pods >= minimum > 0:
            return msgspec.structs.replace(before, phase=PRE_SCHEDULING, occupied_by=occupied_by)
        return _counted(before, counts)
    if not counts.pods:
        return _counted(msgspec.structs.replace(before, phase=PENDING), counts)
    return _counted(
        msgspec.structs.replace(
            before, phase=_phase(counts, minimum), schedule_start_time=before.schedule_start_time or now
        ),
        counts,
    )


def _phase(counts: Counts, minimum: int) -> str:
    """The later rule overrides."""
    phase = SCHEDULING if counts.scheduled < minimum else SCHEDULED
    if phase == SCHEDULED and counts.succeeded + counts.running >= minimum:
        phase = RUNNING
    if counts.failed and counts.failed + counts.running + counts.succeeded >= minimum:
        phase = FAILED
    if counts.succeeded >= minimum:
        phase = FINISHED
    return phase


def _counted(status: PodGroupStatus, counts: Counts) -> PodGroupStatus:
    return msgspec.structs.replace(
        status,
        scheduled=counts.scheduled,
        running=counts.running,
        succeeded=counts.succeeded,
        failed=counts.failed,
    )


_FIELDS = msgspec.structs.fields(PodGroupStatus)


def changes(before: PodGroupStatus, after: PodGroupStatus) -> Mapping[str, Any]:
    """The fields that differ, as JSON; empty if none does."""
    return {
        field.encode_name: getattr(after, field.name)
        for field in _FIELDS
        if getattr(before, field.name) != getattr(after, field.name)
    }
