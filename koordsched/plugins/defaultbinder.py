"""DefaultBinder: writes the binding (default-plugins spec 3.13)."""

from __future__ import annotations

from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle, WriteFailed
from koordsched.framework.interface import Bind, CycleState
from koordsched.framework.status import SUCCESS, Code, Status


class DefaultBinder(Bind):
    """Creates `pods/binding`, with the annotations that PreBind plugins gave the pod."""

    name = "DefaultBinder"
    carries_annotations = True

    def __init__(self, args: None, handle: Handle) -> None:
        """Takes no arguments."""
        self._writes = handle.writes

    async def bind(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """SUCCESS, or ERROR with the server's message."""
        try:
            await self._writes.bind(pod, node, cycle.binding_annotations)
        except WriteFailed as error:
            return Status(Code.ERROR, (str(error),))
        return SUCCESS
