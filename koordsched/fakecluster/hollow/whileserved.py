"""Work that is done while a custom kind is served."""

from __future__ import annotations

from collections.abc import Callable

from koordsched.fakecluster.registry import ChangeView, Registry
from koordsched.fakecluster.resources import Resource


class WhileServed:
    """Calls `begin` when the version of the kind is served, now or later, and `end` when it no longer is."""

    def __init__(
        self,
        registry: Registry,
        kind: tuple[str, str, str],
        begin: Callable[[Resource], None],
        end: Callable[[], None],
    ) -> None:
        """`kind`: group, version and plural."""
        self._registry = registry
        self._kind = kind
        self._begin = begin
        self._end = end
        self.resource: Resource | None = None
        """The kind, while it is served."""

    def start(self) -> Callable[[], None]:
        """Begins to follow the definition; returns what ends it."""
        definitions = self._registry.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        unsubscribe = self._registry.subscribe_changes(definitions, self._definition_changed)

        def stop() -> None:
            unsubscribe()
            self._stop()

        return stop

    def _definition_changed(self, change: ChangeView) -> None:
        group, _, plural = self._kind
        if change.record.name != f"{plural}.{group}":
            return
        served = None if change.type == "DELETED" else self._registry.find(*self._kind)
        if served is None:
            self._stop()
            return
        known, self.resource = self.resource, served
        if known is None:
            self._begin(served)

    def _stop(self) -> None:
        self._end()
        self.resource = None
