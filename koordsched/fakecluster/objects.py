"""The verbs of the API that read."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from koordsched.fakecluster import errors
from koordsched.fakecluster.catalog import Catalog
from koordsched.fakecluster.resources import Resource
from koordsched.fakecluster.selectors import compile_selectors
from koordsched.fakecluster.store import Collection, Object, Record, Store
from koordsched.fakecluster.strategy import Strategy

_PLAIN = Strategy()


class Objects(Catalog):
    """The objects of one cluster, by resource.

    Methods without `record` in their name return dicts that belong to the caller; `peek` and `scan` hand out shared
    ones that must not be changed. All raise ApiStatusError when a request is refused.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self.strategies: dict[str, Strategy] = {}

    def strategy(self, resource: Resource) -> Strategy:
        """The rules of the kind."""
        return self.strategies.get(resource.rules, _PLAIN)

    def collection(self, resource: Resource) -> Collection:
        """The objects of a resource."""
        return self.store.collection(resource.storage)

    def record(self, resource: Resource, namespace: str | None, name: str) -> Record:
        """The stored version of an object; 404 when there is none."""
        found = self.collection(resource).get((namespace or "") if resource.namespaced else "", name)
        if found is None:
            raise errors.not_found(resource, name)
        return found

    def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        """A copy of an object; 404 when there is none."""
        return self.owned(resource, self.record(resource, namespace, name))

    def peek(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        """The shared decoded object (read only), or None."""
        found = self.collection(resource).get((namespace or "") if resource.namespaced else "", name)
        return found.obj() if found is not None else None

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> list[Object]:
        """Copies of the objects of one namespace or (None) of all, in key order; 400 on a bad selector."""
        matches = compile_selectors(resource, label_selector or "", field_selector or "")
        found = self.collection(resource).scan(namespace or None)
        return [self.owned(resource, r) for r in found if matches is None or matches(r)]

    def scan(self, resource: Resource, namespace: str | None = None) -> Iterator[Record]:
        """The stored versions, undecoded, in key order. Do not write while iterating."""
        return self.collection(resource).scan(namespace)

    def owned(self, resource: Resource, record: Record) -> Object:
        """A decoded copy in the resource's version."""
        obj = record.fresh()
        if not resource.converted:
            return obj
        if resource.from_storage is not None:
            return resource.from_storage(obj)
        obj["apiVersion"] = resource.api_version
        return obj

    def body(self, resource: Resource, record: Record) -> bytes:
        """The encoded object in the resource's version."""
        return record.data if not resource.converted else orjson.dumps(self.owned(resource, record))
