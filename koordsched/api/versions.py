"""Resource versions: numbers of one resource, in the order of its changes, as all servers count them."""

from __future__ import annotations

LONGEST = 20
"""Digits of what an API server counts with (uint64). What is longer is no version of one."""


def is_number(version: str) -> bool:
    """Whether it can be compared."""
    return version.isascii() and version.isdecimal() and len(version) <= LONGEST


def is_older(version: str, other: str) -> bool:
    """Whether a resource version is older than another of the same resource, as far as that is known."""
    return is_number(version) and is_number(other) and int(version) < int(other)
