"""The other objects that plugins read: namespaces, services, volumes and the like, one store per kind.

Stores are filled from outside (reflectors, or a dump); plugins read them and may subscribe to changes. A
store that no plugin asked for stays empty: the scheduler watches only kinds that an enabled plugin `wants`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Generic, TypeVar

from koordsched.api.meta import HasMetadata
from koordsched.cluster.kinds import Kind

T = TypeVar("T", bound=HasMetadata)

Subscriber = Callable[[T | None, T | None], None]
"""Called with (old, new): None for old when it appeared, for new when it is gone."""


class Store(Generic[T]):
    """All objects of one kind that we know, by (namespace, name)."""

    __slots__ = ("_by_namespace", "_subscribers", "hidden", "kind", "version")

    def __init__(self, kind: Kind[T]) -> None:
        self.kind = kind
        self._by_namespace: dict[str, dict[str, T]] = {}
        self._subscribers: list[Subscriber[T]] = []
        self.version = 0
        """Grows with every change, so that readers can keep what they derived."""
        self.hidden = ""
        """Why there may be objects that we do not see; empty while we are allowed to see them all."""

    def get(self, namespace: str, name: str) -> T | None:
        """The object, if there is one; cluster-wide kinds have the namespace ""."""
        return self._by_namespace.get(namespace, {}).get(name)

    def in_namespace(self, namespace: str) -> Collection[T]:
        """The objects of a namespace."""
        return self._by_namespace.get(namespace, {}).values()

    def __iter__(self) -> Iterator[T]:
        for objects in self._by_namespace.values():
            yield from objects.values()

    def __len__(self) -> int:
        return sum(map(len, self._by_namespace.values()))

    def subscribe(self, subscriber: Subscriber[T]) -> None:
        """Calls it for every object there is and for every later change."""
        self._subscribers.append(subscriber)
        for thing in self:
            subscriber(None, thing)

    def upsert(self, thing: T) -> T | None:
        """An object appeared or changed; returns the one before."""
        meta = thing.metadata
        objects = self._by_namespace.setdefault(meta.namespace, {})
        before = objects.get(meta.name)
        objects[meta.name] = thing
        self._tell(before, thing)
        return before

    def delete(self, namespace: str, name: str) -> T | None:
        """An object is gone; returns what it was."""
        objects = self._by_namespace.get(namespace, {})
        before = objects.pop(name, None)
        if before is not None:
            if not objects:
                del self._by_namespace[namespace]
            self._tell(before, None)
        return before

    def _tell(self, old: T | None, new: T | None) -> None:
        self.version += 1
        for subscriber in self._subscribers:
            subscriber(old, new)


class Objects:
    """The stores of all kinds that an enabled plugin wants."""

    __slots__ = ("_stores",)

    def __init__(self) -> None:
        self._stores: dict[str, Store[HasMetadata]] = {}

    def of(self, kind: Kind[T]) -> Store[T]:
        """The store of a kind. Asking for it is what makes the scheduler watch the kind."""
        store = self._stores.get(kind.path)
        if store is None:
            store = self._stores[kind.path] = Store(kind)  # type: ignore[arg-type]  # stores are kept by kind
        return store  # type: ignore[return-value]  # keyed by kind, so the types agree

    def at(self, path: str) -> Store[HasMetadata] | None:
        """The store of the kind whose collection has this path, if it was asked for."""
        return self._stores.get(path)

    def wanted(self) -> list[Store[HasMetadata]]:
        """All stores that were asked for."""
        return list(self._stores.values())
