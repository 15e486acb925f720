"""The other objects that plugins read: namespaces, services, volumes and the like, one store per kind.

Stores are filled from outside (reflectors, or a dump); plugins read them and may subscribe to changes. A
store that no plugin asked for stays empty: the scheduler watches only kinds that an enabled plugin `wants`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from koordsched.api.meta import HasMetadata, ObjectMeta
from koordsched.cluster.kinds import Kind
from koordsched.cluster.listeners import FailedCall, ListenerErrors

T = TypeVar("T", bound=HasMetadata)

Subscriber = Callable[[T | None, T | None], None]
"""Called with (old, new): None for old when it appeared, for new when it is gone."""


class Store(Generic[T]):
    """All objects of one kind that we know, by (namespace, name)."""

    __slots__ = ("_by_namespace", "_errors", "_subscribers", "anew", "departed", "hidden", "kind", "only", "version")

    _tells_former: ClassVar[bool] = True
    """Whether `old` is there when an object changes."""

    def __init__(self, kind: Kind[T], errors: ListenerErrors | None = None) -> None:
        """`errors`: of subscribers."""
        self.kind = kind
        self.only: tuple[str, str] | None = None
        """(namespace, name) of the one object that is read, None for all."""
        self._by_namespace: dict[str, dict[str, T]] = {}
        self._subscribers: list[Subscriber[T]] = []
        self._errors = errors if errors is not None else ListenerErrors()
        self.version = 0
        """Grows with every change, so that readers can keep what they derived."""
        self.anew = False
        """While subscribers are called, whether this is how the object is after the server went back in time: whatever
        is known of it, its version says nothing against that."""
        self.departed: dict[tuple[str, str], T] = {}
        """By (namespace, name), objects that are gone and of which a plugin still knows something: journals keep them
        for replays. Maintained by that plugin."""
        self.hidden = ""
        """Why there may be objects that we do not see; empty while we are allowed to see them all."""

    def get(self, namespace: str, name: str) -> T | None:
        """The object, if there is one; cluster-wide kinds have the namespace ""."""
        return self._by_namespace.get(namespace, {}).get(name)

    def restrict(self, namespace: str, name: str) -> None:
        """No other object than this one is read; all are if that is said of several."""
        self.only = (namespace, name) if self.only in (None, (namespace, name)) else ("", "")

    def listing(self) -> tuple[str, dict[str, str]]:
        """The path and the selectors that list what is read."""
        if self.only is None or self.only == ("", ""):
            return self.kind.path, {}
        namespace, name = self.only
        collection = self.kind.object_path(namespace, name).rpartition("/")[0]
        return collection, {"fieldSelector": f"metadata.name={name}"}

    def in_namespace(self, namespace: str) -> Collection[T]:
        """The objects of a namespace."""
        return self._by_namespace.get(namespace, {}).values()

    def __iter__(self) -> Iterator[T]:
        for objects in self._by_namespace.values():
            yield from objects.values()

    def __len__(self) -> int:
        return sum(map(len, self._by_namespace.values()))

    def metadata_of(self, namespace: str, name: str) -> ObjectMeta | None:
        """The metadata of an object, if there is one."""
        found = self.get(namespace, name)
        return found.metadata if found is not None else None

    def metadata(self) -> list[ObjectMeta]:
        """The metadata of all objects."""
        return [thing.metadata for thing in self]

    def as_of_now(self) -> Iterator[T]:
        """All objects as they are now, however much changes while the caller goes through them."""
        return iter(list(self))

    def subscribe(self, subscriber: Subscriber[T]) -> None:
        """Calls it for every object there is and for every later change."""
        self._subscribers.append(subscriber)
        for thing in self:
            self._call(subscriber, None, thing)

    def upsert(self, thing: T, anew: bool = False) -> T | None:
        """An object appeared or changed; returns the one before. `anew`: see the attribute."""
        meta = thing.metadata
        objects = self._by_namespace.setdefault(meta.namespace, {})
        before = objects.get(meta.name)
        objects[meta.name] = thing
        self._tell(before, thing, anew)
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

    def _tell(self, old: T | None, new: T | None, anew: bool = False) -> None:
        self.version += 1
        self.anew = anew
        for subscriber in self._subscribers:
            self._call(subscriber, old, new)
        self.anew = False

    def _call(self, subscriber: Subscriber[T], old: T | None, new: T | None) -> None:
        if self._errors.owed:
            call = self._errors.find(_Change, subscriber, self._about(old, new))
            if call is not None:
                if call.old is None and not self._tells_former:
                    call.old = old
                self._errors.make(call)
                return
        try:
            subscriber(old, new)
        except Exception as error:
            about = self._about(old, new)
            title = f"{self.kind.name} {about[1]}/{about[2]}"
            self._errors.failed(_Change(subscriber, about, title, subscriber, self, old), error)

    def _about(self, old: T | None, new: T | None) -> tuple[str, str, str]:
        either = new if new is not None else old
        assert either is not None, "one of the two is there"
        return self.kind.path, either.metadata.namespace, either.metadata.name


@dataclass(slots=True, eq=False)
class _Change(FailedCall):
    """A subscriber that failed for an object (`about`: path, namespace and name), of which it knows `old`."""

    subscriber: Subscriber[Any]
    store: Store[Any]
    old: HasMetadata | None

    def __call__(self) -> None:
        assert isinstance(self.about, tuple)
        new = self.store.get(*self.about[1:])
        if new is not None or self.old is not None:
            self.subscriber(self.old, new)


class _Packed(NamedTuple):
    metadata: ObjectMeta
    data: bytes


class PackedStore(Store[T]):
    """A store that keeps its objects encoded: every read decodes.

    Of an object that changes, neither subscribers nor callers of `upsert` get the one before.
    """

    __slots__ = ("_decode", "_encode", "_kept")

    def __init__(self, kind: Kind[T], errors: ListenerErrors | None = None) -> None:
        super().__init__(kind, errors)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(kind.type).decode
        self._kept: dict[str, dict[str, _Packed | T]] = {}

    _tells_former: ClassVar[bool] = False

    def get(self, namespace: str, name: str) -> T | None:
        """See Store."""
        kept = self._kept.get(namespace, {}).get(name)
        return self._read(kept) if kept is not None else None

    def in_namespace(self, namespace: str) -> Collection[T]:
        """See Store."""
        return [self._read(kept) for kept in self._kept.get(namespace, {}).values()]

    def __iter__(self) -> Iterator[T]:
        for objects in self._kept.values():
            yield from map(self._read, objects.values())

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def metadata_of(self, namespace: str, name: str) -> ObjectMeta | None:
        """See Store."""
        kept = self._kept.get(namespace, {}).get(name)
        return kept.metadata if kept is not None else None

    def metadata(self) -> list[ObjectMeta]:
        """See Store."""
        return [kept.metadata for objects in self._kept.values() for kept in objects.values()]

    def as_of_now(self) -> Iterator[T]:
        """See Store."""
        return map(self._read, [kept for objects in self._kept.values() for kept in objects.values()])

    def upsert(self, thing: T, anew: bool = False) -> None:
        """An object appeared or changed. `anew`: see the attribute."""
        meta = thing.metadata
        self._kept.setdefault(meta.namespace, {})[meta.name] = self._pack(thing)
        self._tell(None, thing, anew)

    def delete(self, namespace: str, name: str) -> T | None:
        """See Store."""
        objects = self._kept.get(namespace, {})
        kept = objects.pop(name, None)
        if kept is None:
            return None
        if not objects:
            del self._kept[namespace]
        before = self._read(kept)
        self._tell(before, None)
        return before

    def _pack(self, thing: T) -> _Packed | T:
        try:
            return _Packed(thing.metadata, self._encode(thing))
        except (OverflowError, ValueError):
            return thing  # numbers or texts that no encoding has: rare enough to be kept as it is

    def _read(self, kept: _Packed | T) -> T:
        return self._decode(kept.data) if isinstance(kept, _Packed) else kept


class Objects:
    """The stores of all kinds that an enabled plugin wants."""

    __slots__ = ("_errors", "_stores")

    def __init__(self, errors: ListenerErrors | None = None) -> None:
        """`errors`: of subscribers."""
        self._errors = errors if errors is not None else ListenerErrors()
        self._stores: dict[str, Store[HasMetadata]] = {}

    def of(self, kind: Kind[T]) -> Store[T]:
        """The store of a kind. Asking for it is what makes the scheduler watch the kind."""
        store = self._stores.get(kind.path)
        if store is None:
            made = PackedStore(kind, self._errors) if kind.packed else Store(kind, self._errors)
            store = self._stores[kind.path] = made  # type: ignore[assignment]  # stores are kept by kind
        return store  # type: ignore[return-value]  # keyed by kind, so the types agree

    def at(self, path: str) -> Store[HasMetadata] | None:
        """The store of the kind whose collection has this path, if it was asked for."""
        return self._stores.get(path)

    def wanted(self) -> list[Store[HasMetadata]]:
        """All stores that were asked for."""
        return list(self._stores.values())
