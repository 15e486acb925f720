"""Wakes tasks that wait for changes of claims."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from koordsched.api.resource import ResourceClaim
from koordsched.plugins.dynamicresources.assumed import AssumedClaims, ClaimKey, key_of


class ClaimChanges:
    """Subscribed to what is known of claims."""

    def __init__(self, claims: AssumedClaims) -> None:
        self._waiting: dict[ClaimKey, list[asyncio.Future[None]]] = {}
        claims.subscribe(self._changed)

    async def wait(self, keys: Iterable[ClaimKey], seconds: float) -> None:
        """Returns at the next change of one of these claims, and after so many seconds at the latest."""
        future = asyncio.get_running_loop().create_future()
        distinct = set(keys)
        for key in distinct:
            self._waiting.setdefault(key, []).append(future)
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            for key in distinct:
                waiting = self._waiting.get(key, [])
                if future in waiting:
                    waiting.remove(future)
                if not waiting:
                    self._waiting.pop(key, None)

    def _changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        for claim in (old, new):
            if claim is not None:
                for future in self._waiting.pop(key_of(claim), ()):
                    if not future.done():
                        future.set_result(None)
