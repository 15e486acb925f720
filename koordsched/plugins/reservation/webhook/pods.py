"""What pods must not claim to be.

Source: koordinator `pkg/webhook/pod/validating/verify_annotations.go`.
"""

from __future__ import annotations

from collections.abc import Mapping

from koordsched.config.errors import forbidden
from koordsched.plugins.reservation.kinds import RESERVE_POD


class Refused(ValueError):
    """The request is to be denied with this text."""


def check_pod(annotations: Mapping[str, str]) -> None:
    """A new or changed pod with these annotations: a reserve pod exists in schedulers only. Raises Refused."""
    if RESERVE_POD in annotations:
        raise Refused(forbidden(f"annotations.{RESERVE_POD}", "cannot set in annotations"))
