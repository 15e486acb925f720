"""The plugin: does nothing, since what PreBind plugins change is written whether it is enabled or not."""

from __future__ import annotations

from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle
from koordsched.framework.interface import CycleState, PreBind
from koordsched.framework.status import SKIP, SUCCESS, Status


class DefaultPreBind(PreBind):
    """Stands in configurations for the one patch of a pod (`framework.podpatch`), which failures name after it.

    The scheduler writes it, with the binding where that can carry it (`scheduling.bindingannotations`).
    """

    name = "DefaultPreBind"

    def __init__(self, args: None, handle: Handle) -> None:
        """Takes no arguments."""

    def pre_bind_pre_flight(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """SKIP."""
        return SKIP

    async def pre_bind(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """Not called."""
        return SUCCESS
