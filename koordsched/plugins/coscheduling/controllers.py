"""What runs beside scheduling while this replica leads: the status of PodGroups, and of the network topology."""

from __future__ import annotations

import asyncio

from koordsched.framework.controller import ControllerHandle
from koordsched.plugins.coscheduling.args import CoschedulingArgs
from koordsched.plugins.coscheduling.controller.loops import PodGroupController
from koordsched.plugins.coscheduling.plugin import Coscheduling
from koordsched.plugins.coscheduling.topology.controller import TopologyController


class GangControllers:
    """Both of them; if one fails, both are started again."""

    def __init__(self, plugin: Coscheduling, args: CoschedulingArgs | None, handle: ControllerHandle) -> None:
        self._pod_groups = PodGroupController(plugin, args, handle)
        self._topology = TopologyController(plugin.topology, handle)

    async def run(self) -> None:
        """Works until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pod_groups.run(), name="PodGroups")
            group.create_task(self._topology.run(), name="network topology")
