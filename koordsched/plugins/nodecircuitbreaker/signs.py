"""What the status of a pod says about the node it is on.

A kubelet shows a container that it cannot create or start as waiting, with a reason; one that crashed as terminated,
now or before its latest start. Whether a sandbox (the pod's network and namespaces) could be made is a condition alone.

Source of the reasons: upstream `pkg/kubelet/container/sync_result.go`, `pkg/kubelet/images/types.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from koordsched.api.podstates import ContainerStateTerminated, ContainerStatus, Pod
from koordsched.plugins.shared.moments import moment

START_REASONS = frozenset(
    (
        "CreateContainerError",
        "RunContainerError",
        "StartError",
        "ContainerCannotRun",
        "FailedCreatePodSandBox",
        "CreatePodSandboxError",
        "ConfigPodSandboxError",
    )
)
"""The runtime could not do it. Not among them: CreateContainerConfigError (a ConfigMap is missing) etc., which are the
pod's own fault.
"""

IMAGE_REASONS = frozenset(("ImagePullBackOff", "ErrImagePull", "RegistryUnavailable", "ImageInspectError"))
"""Points to the node only if another node has the image."""

OWN_FAULTS = frozenset(("OOMKilled", "DeadlineExceeded", "Evicted"))
"""Ends that a container causes itself, however soon."""

SANDBOX_READY = "PodReadyToStartContainers"

START, IMAGE, CRASH, SANDBOX = "start", "image", "crash", "sandbox"


class Sign(NamedTuple):
    """One failure of a container, of kind START, IMAGE or CRASH. `restarts`: how often it had been started again.

    `finished`: when it ended, in seconds since the epoch; None for one that was not started.
    """

    kind: str
    reason: str
    container: str
    restarts: int
    image: str = ""
    finished: float | None = None


class Report(NamedTuple):
    """The failures of a pod, and whether it runs. `running`: every container runs, or ended well.

    `no_sandbox`: the node has the pod, and its sandbox is not there yet.
    """

    running: bool
    no_sandbox: bool
    signs: tuple[Sign, ...]


def reader(quick_crash: float) -> Callable[[Pod], Report | None]:
    """Reads a pod's status; None if it runs, or if its node has not said anything yet.

    `quick_crash`: seconds within which a container that fails is taken to have crashed at its start.
    """

    def read(wire: Pod) -> Report | None:
        status = wire.status
        if not status.start_time:
            return None
        containers = (*status.init_container_statuses, *status.container_statuses)
        running, signs = True, tuple(sign for each in containers for sign in _signs(each, quick_crash))
        started = False
        for each in containers:
            state = each.state
            waits = state is not None and state.waiting is not None
            ended = state.terminated if state is not None else None
            running = running and not waits and (ended is None or ended.exit_code == 0)
            started = started or not waits or each.restart_count > 0
        condition = status.condition(SANDBOX_READY)
        no_sandbox = condition is not None and condition.status == "False" and not started
        if running and not no_sandbox and not signs:
            return None
        return Report(running and not no_sandbox, no_sandbox, signs)

    return read


def _signs(container: ContainerStatus, quick_crash: float) -> Iterator[Sign]:
    name, restarts = container.name, container.restart_count
    now, last = container.state, container.last_state
    if now is not None and now.waiting is not None:
        reason = now.waiting.reason
        if reason in START_REASONS:
            yield Sign(START, reason, name, restarts)
        elif reason in IMAGE_REASONS:
            yield Sign(IMAGE, reason, name, restarts, container.image)
    for state in (now, last):
        if state is not None and state.terminated is not None:
            sign = _end(state.terminated, name, restarts, quick_crash)
            if sign is not None:
                yield sign
            return


def _end(ended: ContainerStateTerminated, name: str, restarts: int, quick_crash: float) -> Sign | None:
    finished = moment(ended.finished_at)
    if not ended.exit_code or finished is None or ended.reason in OWN_FAULTS:
        return None
    if ended.reason in START_REASONS:
        return Sign(START, ended.reason, name, restarts, finished=finished)
    # Both times are of the node's clock, so only their difference means something by itself.
    started = moment(ended.started_at)
    if started is None or not 0.0 <= finished - started <= quick_crash:
        return None
    return Sign(CRASH, ended.reason or "Error", name, restarts, finished=finished)


def with_tag(name: str) -> str:
    """As nodes report it, if the name has neither tag nor digest; a colon before the last slash is a port."""
    return f"{name}:latest" if name.rfind(":") <= name.rfind("/") else name
