"""What the acts of the demonstration that follow each other have in common: objects are created, and waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from koordsched.cli.demo.applying import Applier
from koordsched.cli.demo.children import Children
from koordsched.cli.demo.observation import Observation, Tally
from koordsched.cli.objectfiles import read_objects
from koordsched.client.transport import Transport

_LOOK_EVERY = 0.05


class StageFailed(Exception):
    """Something did not happen in time; the message says what."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The cluster as a user has it. `within`: seconds that each step may take."""

    transport: Transport
    applier: Applier
    observation: Observation
    children: Children
    within: float

    async def create(self, path: Path) -> None:
        """Creates the objects of a file."""
        await self.applier.create(read_objects([str(path)]))

    async def get(self, path: str) -> dict[str, Any] | None:
        """An object; None without it."""
        answer = await self.transport.request("GET", path)
        return orjson.loads(answer.body) if answer.status == 200 else None

    async def until_object(self, path: str, holds: Callable[[dict[str, Any]], object], what: str) -> dict[str, Any]:
        """Waits until something holds for an object, and returns that. Raises StageFailed, ChildFailed."""
        last: dict[str, Any] | None = None

        async def look() -> bool:
            nonlocal last
            last = await self.get(path)
            return last is not None and bool(holds(last))

        await self._until(look, what)
        assert last is not None, "it holds"
        return last

    async def until_tally(self, workload: str, holds: Callable[[Tally], object], what: str) -> Tally:
        """Waits until something holds for the pods of a workload; returns these. Raises StageFailed, ChildFailed."""

        async def look() -> bool:
            return bool(holds(self.tally(workload)))

        await self._until(look, what)
        return self.tally(workload)

    def tally(self, workload: str) -> Tally:
        """The pods of a workload."""
        return self.observation.tallies().get(workload, Tally())

    async def _until(self, look: Callable[[], Any], what: str) -> None:
        try:
            async with asyncio.timeout(self.within):
                while not await look():
                    self.children.check()
                    await asyncio.sleep(_LOOK_EVERY)
        except TimeoutError as error:
            raise StageFailed(f"{what}: not within {self.within:g} s") from error
