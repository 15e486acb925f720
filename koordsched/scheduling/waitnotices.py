"""Reports pods that wait without having been refused: gated by a plugin, waiting on Permit, in PreBind.

Upstream shows nothing for them. Here a pod that has waited for a while carries the condition
`koordsched.io/Waiting`, with the plugin that it waits for; it turns False when the wait is over. Pods gated
by their own scheduling gates are left out: the API server's PodScheduled condition says so already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator
from itertools import islice

from koordsched.cluster.pod import Pod
from koordsched.scheduling.reporter import Reporter

_log = logging.getLogger(__name__)

AFTER = 5.0
"""Seconds of waiting after which it is reported."""

AT_ONCE = 200
"""Pods of a plugin that are asked about again in one tick because it has another reason."""

_FEW = 64


class _Wait:
    __slots__ = ("message", "plugin", "pod", "reason", "reported", "since")

    def __init__(self, pod: Pod, plugin: str, reason: str, message: str, since: float) -> None:
        self.pod = pod
        self.plugin = plugin
        self.reason = reason
        self.message = message
        self.since = since
        self.reported = False


class WaitNotices:
    """Which pods wait for what, since when. Times are seconds of `clock`; `pending` are the pods that still exist."""

    def __init__(self, reporter: Reporter, clock: Callable[[], float], pending: Container[str]) -> None:
        self._reporter = reporter
        self._clock = clock
        self._pending = pending
        self._waits: dict[str, _Wait] = {}
        self._followed: list[tuple[str, Callable[[], Iterator[Pod]], Callable[[Pod], object]]] = []
        self._most = _FEW
        """With more than these, those that are gone are looked for: a standby has no ticks."""

    def __len__(self) -> int:
        return len(self._waits)

    def follow(self, plugin: str, reworded: Callable[[], Iterator[Pod]], ask: Callable[[Pod], object]) -> None:
        """Has pods that wait for the plugin asked about again when it has another reason (`PreEnqueue.reworded`)."""
        self._followed.append((plugin, reworded, ask))

    def begin(self, pod: Pod, plugin: str, reason: str, message: str) -> None:
        """The pod waits for this plugin from now on, or goes on waiting."""
        known = self._waits.get(pod.uid)
        if known is None:
            self._waits[pod.uid] = _Wait(pod, plugin, reason, message, self._clock())
            if len(self._waits) > self._most:
                self._forget_the_gone()
                self._most = 2 * len(self._waits) + _FEW
            return
        known.pod, known.plugin = pod, plugin
        if (known.reason, known.message) != (reason, message):
            known.reason, known.message, known.reported = reason, message, False

    def end(self, pod: Pod, plugin: str) -> None:
        """The pod does not wait for this plugin any more."""
        known = self._waits.get(pod.uid)
        if known is None or known.plugin != plugin:
            return
        del self._waits[pod.uid]
        if known.reported:
            self._reporter.waiting(pod, "", "")

    def tick(self) -> None:
        """Reports those that have waited long enough. To be called every second or so."""
        due = self._clock() - AFTER
        self._forget_the_gone()
        for plugin, reworded, ask in self._followed:
            try:
                for pod in islice(reworded(), AT_ONCE):
                    known = self._waits.get(pod.uid)
                    if known is not None and known.plugin == plugin:
                        ask(pod)
            except Exception:
                _log.exception("PreEnqueue plugin %s failed when it was asked for new reasons", plugin)
        for wait in self._waits.values():
            if not wait.reported and wait.since <= due:
                wait.reported = True
                self._reporter.waiting(wait.pod, wait.reason, wait.message)

    def _forget_the_gone(self) -> None:
        for uid in [uid for uid in self._waits if uid not in self._pending]:
            del self._waits[uid]
