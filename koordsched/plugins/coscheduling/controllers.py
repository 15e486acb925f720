"""What runs beside scheduling while this replica leads: the status of PodGroups and of the network topology, and the
look for gangs whose binding was interrupted.
"""

from __future__ import annotations

import asyncio

from koordsched.framework.controller import ControllerHandle
from koordsched.plugins.coscheduling.args import CoschedulingArgs
from koordsched.plugins.coscheduling.controller.interrupted import InterruptedGangs
from koordsched.plugins.coscheduling.controller.loops import PodGroupController
from koordsched.plugins.coscheduling.metrics import AttemptTimes
from koordsched.plugins.coscheduling.plugin import Coscheduling
from koordsched.plugins.coscheduling.topology.controller import TopologyController


class GangControllers:
    """All of them; if one fails, all are started again."""

    def __init__(self, plugin: Coscheduling, args: CoschedulingArgs | None, handle: ControllerHandle) -> None:
        self._pod_groups = PodGroupController(plugin, args, handle)
        self._topology = TopologyController(plugin.topology, handle)
        self._interrupted = InterruptedGangs(plugin.cache, handle)
        AttemptTimes(plugin.cache, handle.metrics, handle.clock.monotonic)

    async def run(self) -> None:
        """Works until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pod_groups.run(), name="PodGroups")
            group.create_task(self._topology.run(), name="network topology")
            group.create_task(self._interrupted.run(), name="interrupted gangs")
