"""The annotation of a node about its breaker: enough for the next scheduler to continue.

    koordsched.io/circuit-breaker: '{"state":"open","since":"...","until":"...","openings":2,"reason":"..."}'
    koordsched.io/circuit-breaker: '{"state":"half-open","since":"...","openings":2,"probe":"<uid of a pod>"}'

No annotation means closed. The annotation takes precedence over what the scheduler had decided: an operator closes a
breaker by removing the annotation, and opens one by writing `{"state":"open"}`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

ANNOTATION = "koordsched.io/circuit-breaker"
MOST_OPENINGS = 64
"""More make no difference to the cool-down."""

CLOSED, OPEN, HALF_OPEN, PROBED = range(4)
"""Breakers in a column: PROBED is half-open with a probe under way."""


class Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A breaker that is not closed. `since`, `until`: RFC 3339; `until` is the end of the cool-down of an open one.

    `openings`: how often it opened in a row. `probe`: uid of the pod that is tried.
    """

    state: Literal["open", "half-open"]
    since: str = ""
    until: str = ""
    openings: int = 1
    probe: str = ""
    reason: str = ""

    @property
    def is_open(self) -> bool:
        return self.state == "open"

    def text(self) -> str:
        """The annotation."""
        return _encode(self).decode()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode


def record_of(text: str) -> Record:
    """The record of an annotation. Raises ValueError."""
    try:
        found = _decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None
    openings = min(max(found.openings, 1), MOST_OPENINGS)
    # A person who opens a breaker may leave the probe there.
    return msgspec.structs.replace(found, openings=openings, probe="" if found.is_open else found.probe)


def state_of(record: Record | None) -> int:
    """The value of the column for a breaker; None for one that is closed."""
    if record is None:
        return CLOSED
    return OPEN if record.is_open else PROBED if record.probe else HALF_OPEN
