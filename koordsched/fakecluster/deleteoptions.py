"""DeleteOptions, of a DELETE or an Eviction."""

from __future__ import annotations

from collections.abc import Mapping

from koordsched.fakecluster import errors
from koordsched.fakecluster.bodies import part
from koordsched.fakecluster.listing import integer
from koordsched.fakecluster.resources import Object

_LONGEST = (1 << 31) - 1
"""Seconds of grace."""
_NO_QUERY: Mapping[str, str] = {}


class DeleteOptions:
    """What the body says, and where it is silent, the query. 400 or 422 for what has no meaning."""

    __slots__ = ("dry_run", "grace", "propagation", "rv", "uid")

    def __init__(self, body: Object, dry_run: bool, query: Mapping[str, str] = _NO_QUERY) -> None:
        grace = body.get("gracePeriodSeconds")
        if grace is None and query.get("gracePeriodSeconds"):
            grace = integer(query, "gracePeriodSeconds")
        if grace is not None and (not isinstance(grace, int) or grace < 0):
            wrong = errors.invalid_value("gracePeriodSeconds", grace, "must be greater than or equal to 0")
            raise errors.invalid("meta.k8s.io", "DeleteOptions", "", [wrong])
        self.grace: int | None = grace if grace is None else min(grace, _LONGEST)
        preconditions = part(body, "preconditions")
        self.uid: str | None = preconditions.get("uid")
        self.rv: str | None = preconditions.get("resourceVersion")
        self.propagation: str | None = body.get("propagationPolicy") or query.get("propagationPolicy") or None
        if self.propagation is None and body.get("orphanDependents") is not None:
            self.propagation = "Orphan" if body["orphanDependents"] else "Background"
        self.dry_run = dry_run or body.get("dryRun") == ["All"]
