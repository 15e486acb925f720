"""The annotation `koordsched.io/fail-devices` of a node: devices that have failed, `gpu/3, rdma/1:LinkDown`."""

from __future__ import annotations

import re
from collections.abc import Container

from koordsched.fakecluster.hollow.devicelayout import Key

FAIL_DEVICES = "koordsched.io/fail-devices"
_FAILURE = re.compile(r"\s*([a-z]{1,16})/(\d{1,9})(?::([A-Za-z][A-Za-z0-9_]{0,63}))?\s*", re.ASCII)
_UNKNOWN = "Unknown"
_LONGEST_TEXT = 65536


def read_failures(text: str, known: Container[Key]) -> dict[Key, str]:
    """Why each device that failed did. Raises ValueError for other texts, and for devices that are not known."""
    failures: dict[Key, str] = {}
    if len(text) > _LONGEST_TEXT:
        raise ValueError(f"longer than {_LONGEST_TEXT} characters")
    for part in text.split(",") if text.strip() else ():
        match = _FAILURE.fullmatch(part)
        if match is None:
            raise ValueError(f"{part[:64]!r} is not a device such as gpu/3 or gpu/3:Xid79")
        key = match[1], int(match[2])
        if key not in known:
            raise ValueError(f"there is no {key[0]} {key[1]}")
        failures[key] = match[3] or _UNKNOWN
    return failures
