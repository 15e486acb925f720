"""The current objects of one resource, shared by the controllers that read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from koordsched.fakecluster.controllers.ownership import Key, Object, controller_uid, key_of
from koordsched.fakecluster.registry import Registry
from koordsched.fakecluster.resources import Resource

Listener = Callable[[Object | None, Object | None], None]
"""Called with (before, after); None stands for absent."""


class Informer:
    """Objects by name, by namespace and by controlling owner. Objects are shared and must not be modified."""

    def __init__(self, registry: Registry, group: str, version: str, plural: str) -> None:
        self.resource: Resource = registry.resource(group, version, plural)
        self._registry = registry
        self._objects: dict[Key, Object] = {}
        self._by_uid: dict[str, Key] = {}
        self._by_owner: dict[str, set[Key]] = {}
        self._unowned: dict[str, set[Key]] = {}
        self._by_namespace: dict[str, set[Key]] = {}
        self._listeners: list[Listener] = []

    def start(self) -> Callable[[], None]:
        """Follows the registry, existing objects first; returns what ends it."""
        return self._registry.subscribe(self.resource, self._changed)

    def on_change(self, listener: Listener) -> None:
        """Calls the listener after each change. It must be cheap and must not write."""
        self._listeners.append(listener)

    def get(self, key: Key) -> Object | None:
        """The object of that name, if it exists."""
        return self._objects.get(key)

    def with_uid(self, uid: str) -> Object | None:
        """The object with that uid, if it exists."""
        key = self._by_uid.get(uid)
        return self._objects[key] if key is not None else None

    def owned_by(self, uid: str) -> list[Object]:
        """The objects whose controller has that uid, by name."""
        return [self._objects[key] for key in sorted(self._by_owner.get(uid, ()))]

    def unowned_in(self, namespace: str) -> list[Object]:
        """The objects of a namespace that have no controller, by name."""
        return [self._objects[key] for key in sorted(self._unowned.get(namespace, ()))]

    def in_namespace(self, namespace: str) -> list[Object]:
        """The objects of a namespace, by name."""
        return [self._objects[key] for key in sorted(self._by_namespace.get(namespace, ()))]

    def all(self) -> list[Object]:
        """Every object, in the order they appeared."""
        return list(self._objects.values())

    def _changed(self, kind: str, old: Any, new: Object) -> None:
        key = key_of(new)
        before = self._objects.get(key)
        after = None if kind == "DELETED" else new
        if before is not None:
            owner = controller_uid(before)
            if owner is not None:
                _discard(self._by_owner, owner, key)
            else:
                _discard(self._unowned, key[0], key)
        if after is None:
            self._objects.pop(key, None)
            self._by_uid.pop(new["metadata"]["uid"], None)
            _discard(self._by_namespace, key[0], key)
        else:
            self._objects[key] = after
            self._by_uid[after["metadata"]["uid"]] = key
            self._by_namespace.setdefault(key[0], set()).add(key)
            owner = controller_uid(after)
            if owner is not None:
                self._by_owner.setdefault(owner, set()).add(key)
            else:
                self._unowned.setdefault(key[0], set()).add(key)
        for listener in self._listeners:
            listener(before, after)


def _discard(index: dict[str, set[Key]], where: str, key: Key) -> None:
    if where not in index:
        return
    index[where].discard(key)
    if not index[where]:
        del index[where]
