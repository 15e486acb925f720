"""A typed copy of one small kind (namespaces, services, storage classes) with handlers for its changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from koordsched.client.reflector import Reflector
from koordsched.client.sink import KubeObject, ObjectKey

T = TypeVar("T", bound=KubeObject)


class Store(Generic[T]):
    """The objects of one kind by namespace and name: a reflector's sink.

    An object replaced by another of the same name reaches the handlers as a deletion and an addition.
    """

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, T]] = {}
        self._on_add: list[Callable[[T], None]] = []
        self._on_update: list[Callable[[T, T], None]] = []
        self._on_delete: list[Callable[[T], None]] = []

    def __len__(self) -> int:
        return sum(map(len, self._by_namespace.values()))

    def __iter__(self) -> Iterator[T]:
        for objects in self._by_namespace.values():
            yield from objects.values()

    def get(self, namespace: str, name: str) -> T | None:
        """The object; `namespace` is empty for kinds without."""
        objects = self._by_namespace.get(namespace)
        return objects.get(name) if objects is not None else None

    def list(self, namespace: str | None = None) -> list[T]:
        """The objects of one namespace, or all."""
        return list(self) if namespace is None else list(self._by_namespace.get(namespace, {}).values())

    def on_change(
        self,
        *,
        add: Callable[[T], None] | None = None,
        update: Callable[[T, T], None] | None = None,
        delete: Callable[[T], None] | None = None,
    ) -> None:
        """Registers handlers; `add` is called at once for what is already here. `update` gets (old, new)."""
        if add is not None:
            self._on_add.append(add)
            for obj in self:
                add(obj)
        if update is not None:
            self._on_update.append(update)
        if delete is not None:
            self._on_delete.append(delete)

    # --- Sink ---

    def upsert(self, obj: T) -> None:
        meta = obj.metadata
        objects = self._by_namespace.setdefault(meta.namespace, {})
        old = objects.get(meta.name)
        if old is not None and old.metadata.uid == meta.uid:
            objects[meta.name] = obj
            if old.metadata.resource_version != meta.resource_version or not meta.resource_version:
                for update in self._on_update:
                    update(old, obj)
            return
        if old is not None:
            self._remove(old)
        self._by_namespace.setdefault(meta.namespace, {})[meta.name] = obj
        for add in self._on_add:
            add(obj)

    def delete(self, obj: T) -> None:
        meta = obj.metadata
        self.delete_key(ObjectKey(meta.namespace, meta.name, meta.uid))

    def delete_key(self, key: ObjectKey) -> None:
        old = self.get(key.namespace, key.name)
        if old is not None and old.metadata.uid == key.uid:
            self._remove(old)

    def replace_begin(self) -> None:
        """Nothing to prepare: vanished objects show when the listing is complete."""

    def replace_end(self, present: set[ObjectKey]) -> None:
        vanished = [
            obj for obj in self if ObjectKey(obj.metadata.namespace, obj.metadata.name, obj.metadata.uid) not in present
        ]
        for obj in vanished:
            self._remove(obj)

    def _remove(self, obj: T) -> None:
        meta = obj.metadata
        objects = self._by_namespace[meta.namespace]
        del objects[meta.name]
        if not objects:
            del self._by_namespace[meta.namespace]
        for delete in self._on_delete:
            delete(obj)


class Informer(Generic[T]):
    """A store together with the reflector that fills it."""

    def __init__(self, store: Store[T], reflector: Reflector[T]) -> None:
        self.store = store
        self.reflector = reflector

    def has_synced(self) -> bool:
        """Whether the initial list has been handled."""
        return self.reflector.synced.is_set()

    async def run(self) -> None:
        """Keeps the store up to date until cancelled."""
        await self.reflector.run()
