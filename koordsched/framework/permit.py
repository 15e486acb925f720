"""Pods that were placed and wait for a Permit plugin to allow them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from koordsched.cluster.pod import Pod
from koordsched.framework.status import SUCCESS, Code, Status

MAX_WAIT = 15 * 60.0
"""Seconds; longer time-outs of plugins are cut (core spec 3.6, step 11)."""


def _seconds(value: float) -> str:
    """A duration below an hour as Go prints it, down to milliseconds: 10s, 1m30s, 500ms."""
    if value < 1:
        return f"{round(value * 1000)}ms"
    minutes, rest = divmod(value, 60)
    seconds = f"{rest:.3f}".rstrip("0").rstrip(".")
    return f"{minutes:.0f}m{seconds}s" if minutes else f"{seconds}s"


class WaitingPod:
    """One pod, and the plugins that have not allowed it yet."""

    __slots__ = ("_decided", "_timers", "pod")

    def __init__(self, pod: Pod, plugins: dict[str, float]) -> None:
        self.pod = pod
        loop = asyncio.get_running_loop()
        self._decided: asyncio.Future[Status] = loop.create_future()
        self._timers = {
            plugin: loop.call_later(
                min(timeout, MAX_WAIT),
                self.reject,
                plugin,
                f"rejected due to timeout after waiting {_seconds(min(timeout, MAX_WAIT))} at plugin {plugin}",
            )
            for plugin, timeout in plugins.items()
        }

    @property
    def pending_plugins(self) -> tuple[str, ...]:
        """The plugins that have not decided yet."""
        return tuple(self._timers)

    def allow(self, plugin: str) -> None:
        """The plugin allows the pod; when all have, it is bound."""
        timer = self._timers.pop(plugin, None)
        if timer is not None:
            timer.cancel()
        if not self._timers and not self._decided.done():
            self._decided.set_result(SUCCESS)

    def reject(self, plugin: str, message: str, code: Code = Code.UNSCHEDULABLE) -> bool:
        """Refuses the pod; returns False if it was decided already."""
        self.end()
        if self._decided.done():
            return False
        self._decided.set_result(Status(code, (message,), plugin))
        return True

    def end(self) -> None:
        """Cancels the time-outs of all plugins."""
        for timer in self._timers.values():
            timer.cancel()

    async def wait(self) -> Status:
        """SUCCESS, or the rejection."""
        return await self._decided


class WaitingPods:
    """All waiting pods, by uid."""

    __slots__ = ("_pods",)

    def __init__(self) -> None:
        self._pods: dict[str, WaitingPod] = {}

    def add(self, pod: Pod, plugins: dict[str, float]) -> WaitingPod:
        """The pod waits for these plugins, each at most this many seconds."""
        waiting = self._pods[pod.uid] = WaitingPod(pod, plugins)
        return waiting

    def get(self, uid: str) -> WaitingPod | None:
        """The waiting pod of this uid, if there is one."""
        return self._pods.get(uid)

    def remove(self, uid: str) -> None:
        """The pod does not wait any more."""
        waiting = self._pods.pop(uid, None)
        if waiting is not None:
            waiting.end()

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(list(self._pods.values()))

    def __len__(self) -> int:
        return len(self._pods)
