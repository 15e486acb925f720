"""The steps of keeping the books that can be measured, by upstream's names for them (elasticquota spec 5.2)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

ENTER_REQUESTS = "UpdateGroupDeltaRequestNoLock"
"""Requests of a tally reach its quota and those above."""
ENTER_USAGE = "UpdateGroupDeltaUsedNoLock"
"""The same for usage."""
REFRESH = "RefreshRuntime"
"""What a quota may use is worked out."""
RESET = "resetQuotaNoLock"
"""Everything that was worked out for a tree is given up."""
UPDATE_QUOTA = "UpdateQuota"
"""A quota appears or is declared differently."""
DELETE_QUOTA = "DeleteQuota"
"""A quota goes."""

STEPS = (ENTER_REQUESTS, ENTER_USAGE, REFRESH, RESET, UPDATE_QUOTA, DELETE_QUOTA)

Timed = Callable[[str], AbstractContextManager[None]]
"""Measures what happens inside as the step of this name."""

_NOTHING = nullcontext()


def untimed(step: str) -> AbstractContextManager[None]:
    """Nothing is measured."""
    return _NOTHING
