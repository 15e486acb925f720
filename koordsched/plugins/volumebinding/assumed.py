"""Objects as the scheduler assumes them: as the API server last showed them, or as we are about to write them.

Source: upstream `util/assumecache/assume_cache.go`.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from koordsched.api.meta import HasMetadata
from koordsched.cluster.objects import Store, Subscriber

T = TypeVar("T", bound=HasMetadata)


class Assumed(Generic[T]):
    """A store with our own assumptions over it. A newer version from the API server ends an assumption."""

    def __init__(self, store: Store[T]) -> None:
        self.store = store
        self._assumptions: dict[tuple[str, str], T] = {}
        self._subscribers: list[Subscriber[T]] = []
        store.subscribe(self._changed)

    def get(self, namespace: str, name: str) -> T | None:
        """The object as assumed, else as the API server has it."""
        return self._assumptions.get((namespace, name)) or self.store.get(namespace, name)

    def subscribe(self, subscriber: Subscriber[T]) -> None:
        """Calls it for every object there is and for every later change of the assumed state."""
        self._subscribers.append(subscriber)
        for thing in self.store:
            subscriber(None, self.get(thing.metadata.namespace, thing.metadata.name))

    def assume(self, thing: T) -> None:
        """From now on the object, which must exist, is assumed to be this."""
        meta = thing.metadata
        before = self.get(meta.namespace, meta.name)
        self._assumptions[meta.namespace, meta.name] = thing
        self._tell(before, thing)

    def restore(self, thing: T) -> None:
        """Takes this very assumption back, unless it ended already or was replaced."""
        key = (thing.metadata.namespace, thing.metadata.name)
        if self._assumptions.get(key) is thing:
            del self._assumptions[key]
            self._tell(thing, self.store.get(*key))

    def _changed(self, old: T | None, new: T | None) -> None:
        thing = new if new is not None else old
        assert thing is not None, "a change has an object"
        key = (thing.metadata.namespace, thing.metadata.name)
        assumption = self._assumptions.get(key)
        if assumption is not None:
            if new is not None and new.metadata.resource_version == assumption.metadata.resource_version:
                return  # what the assumption was made from, listed once more
            del self._assumptions[key]
            old = assumption
        self._tell(old, new)

    def _tell(self, old: T | None, new: T | None) -> None:
        for subscriber in self._subscribers:
            subscriber(old, new)
