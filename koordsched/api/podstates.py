"""core/v1 Pod with the states of its containers: what pods are decoded as while a plugin reads them."""

from __future__ import annotations

from koordsched.api import core
from koordsched.api.meta import Int32, Wire


class ContainerStateWaiting(Wire, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""


class ContainerStateTerminated(Wire, frozen=True):
    """How a container ended. Times are the node's, RFC 3339."""

    exit_code: Int32 = 0
    reason: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(Wire, frozen=True):
    """One of these; neither while it runs, or if that is not known."""

    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(core.ContainerStatus, frozen=True):
    """What the node agent reports of a container; `last_state` is how it ended before its latest start."""

    image: str = ""
    restart_count: Int32 = 0
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodStatus(core.PodStatus, frozen=True):
    """What happened to the pod so far."""

    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(core.Pod, frozen=True):
    """A pod."""

    status: PodStatus = PodStatus()
