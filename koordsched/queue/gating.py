"""PreEnqueue: plugins that keep a pod out of the queue until something they wait for has happened."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Generic, TypeAlias

from koordsched.queue.item import P, QueuedPod

_log = logging.getLogger(__name__)

#: A PreEnqueue plugin: None lets the pod in, a text says why not.
PreEnqueue: TypeAlias = Callable[[P], str | None]


class Gate(Generic[P]):
    """The PreEnqueue plugins of one profile, by name.

    `admitted` hears of every pod that all of them let in; `gated`, by plugin, of every pod that another one refuses.
    """

    __slots__ = ("_admitted", "_checks", "gated")

    def __init__(
        self,
        checks: Mapping[str, PreEnqueue[P]],
        admitted: Sequence[Callable[[P], None]] = (),
        gated: Mapping[str, Callable[[P], None]] | None = None,
    ) -> None:
        self._checks = dict(checks)
        self._admitted = admitted
        self.gated = dict(gated or {})

    def refusal(self, queued: QueuedPod[P]) -> tuple[str, str] | None:
        """The first plugin that refuses the pod, and why; None if all let it in.

        The plugin that gates it now is asked first, as the one most likely to go on doing so.
        """
        checks = self._checks
        if not checks:
            return None
        current = queued.gating_plugin
        if current in checks:
            reason = self._ask(current, queued)
            if reason is not None:
                return current, reason
        for plugin in checks:
            if plugin != current:
                reason = self._ask(plugin, queued)
                if reason is not None:
                    return plugin, reason
        for hears in self._admitted:
            try:
                hears(queued.pod)
            except Exception:
                _log.exception("a PreEnqueue plugin failed when pod %s was let in", queued.key)
        return None

    def tell_gated(self, queued: QueuedPod[P]) -> None:
        """The pod was refused, and is back in the queue: others may go in its stead. They may move pods."""
        for plugin, hears in self.gated.items():
            if plugin != queued.gating_plugin:
                try:
                    hears(queued.pod)
                except Exception:
                    _log.exception("PreEnqueue plugin %s failed when another gated pod %s", plugin, queued.key)

    def refuses(self, queued: QueuedPod[P], but_for: Container[str]) -> bool:
        """Whether a plugin other than these refuses the pod."""
        return any(self._ask(plugin, queued) is not None for plugin in self._checks if plugin not in but_for)

    def _ask(self, plugin: str, queued: QueuedPod[P]) -> str | None:
        try:
            return self._checks[plugin](queued.pod)
        except Exception as error:
            # Letting it in could break what the plugin protects; it is asked again when an event wakes the pod.
            _log.exception("PreEnqueue of %s failed for pod %s", plugin, queued.pod.title)
            return f"running PreEnqueue plugin {plugin!r}: {error}"
