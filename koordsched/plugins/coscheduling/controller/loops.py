"""Keeps the status of PodGroups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from koordsched.cluster.objects import Store
from koordsched.cluster.pod import Pod
from koordsched.framework.controller import ControllerHandle
from koordsched.framework.handle import WriteFailed
from koordsched.plugins.coscheduling.args import CoschedulingArgs
from koordsched.plugins.coscheduling.controller.finished import FinishedMembers
from koordsched.plugins.coscheduling.controller.members import counts, owners_of_first
from koordsched.plugins.coscheduling.controller.status import changes, is_left_alone, settled_status
from koordsched.plugins.coscheduling.kinds import POD_GROUPS, PodGroup
from koordsched.plugins.coscheduling.plugin import Coscheduling
from koordsched.plugins.shared.moments import moment_text
from koordsched.plugins.shared.workqueue import WorkQueue

_log = logging.getLogger(__name__)

PAUSE = 0.2
"""Seconds between what happens to a gang and the look at it: members come, are bound and start in bursts."""

_NO_PODS: Mapping[str, Pod] = {}

BETWEEN_WRITES = 1.0
"""Seconds between two writes of one PodGroup at least: while its members are bound or start, only the newest counts."""

_ROUNDING = 1e-3
"""Seconds added to a wait, so that it is over when its timer fires."""

_OWN_WRITE = 3.0
"""Seconds that what was written may take to come back before it is given up."""


class PodGroupController:
    """One look at a gang counts its pods, and writes the status that follows for its PodGroup, if it is another one.

    A status is written on the version that it was derived from; if there is a newer one, the API server refuses, and
    the look is repeated. What changes within a second of a write is part of the next one.
    """

    def __init__(self, plugin: Coscheduling, args: CoschedulingArgs | None, handle: ControllerHandle) -> None:
        self._cache = plugin.cache
        self._workers = (args or CoschedulingArgs()).controller_workers
        self._store: Store[PodGroup] = handle.cluster.objects.of(POD_GROUPS)
        self._writes = handle.writes
        self._clock = handle.clock
        self._finished = FinishedMembers(handle, self._changed)
        self._queue: WorkQueue | None = None
        """None while this scheduler does not lead."""
        self._written: dict[str, tuple[str, float]] = {}
        """By gang, the version that was written on, and when (monotonic seconds): until a newer one is seen there is
        nothing to compare."""
        self._cache.on_change(self._changed)
        self._store.subscribe(self._group_changed)

    async def run(self) -> None:
        """Works until cancelled."""
        self._queue = queue = WorkQueue()
        try:
            async with asyncio.TaskGroup() as loops:
                loops.create_task(self._finished.watch.run(), name="finished members of gangs")
                await self._finished.watch.synced.wait()
                for group in self._store.as_of_now():
                    queue.add(group.id)
                for number in range(self._workers):
                    loops.create_task(self._work(queue), name=f"PodGroup worker {number}")
        finally:
            queue.close()
            self._queue = None

    async def _work(self, queue: WorkQueue) -> None:
        while True:
            gang = await queue.take()
            try:
                await self._look(gang)
            except WriteFailed as error:
                _log.info("the status of PodGroup %s is not written: %s", gang, error)
                queue.failed(gang)
            else:
                queue.done(gang)

    async def _look(self, gang: str) -> None:
        group = self._store.get(*gang.split("/", 1))
        if group is None or is_left_alone(group):
            self._written.pop(gang, None)
            return
        version, now = group.metadata.resource_version, self._clock.monotonic()
        written = self._written.get(gang)
        if written is not None:
            again = written[1] + (_OWN_WRITE if written[0] == version else BETWEEN_WRITES)
            if now < again:
                self._look_within(gang, again - now + _ROUNDING)
                return
        known, facts = self._cache.gangs.get(gang), self._cache.facts
        children = known.children if known is not None else _NO_PODS
        bound = known.bound if known is not None else _NO_PODS
        counted = counts(children, bound, self._finished.of(gang), facts)
        owners, moment = owners_of_first(children, facts), moment_text(self._clock.wall())
        status = settled_status(group, counted, owners, moment)
        changed = changes(group.status, status)
        if not changed:
            self._written.pop(gang, None)
            return
        patch: dict[str, Any] = {"metadata": {"resourceVersion": version}, "status": changed}
        await self._writes.merge(POD_GROUPS, group.metadata, patch)
        self._written[gang] = (version, self._clock.monotonic())
        _log.debug("PodGroup %s: %s", gang, changed)

    # --- what happens ------------------------------------------------------------------------------

    def _changed(self, gang: str) -> None:
        if self._queue is not None and self._store.get(*gang.split("/", 1)) is not None:
            self._look_within(gang, PAUSE)

    def _group_changed(self, old: PodGroup | None, new: PodGroup | None) -> None:
        group = new or old
        if group is not None and self._queue is not None:
            self._look_within(group.id, PAUSE)

    def _look_within(self, gang: str, seconds: float) -> None:
        if self._queue is not None:
            self._queue.add_within(gang, seconds)
