"""Objects as the API server wrote them.

The scheduler keeps of an object what it decides on; an extender may decide on anything, so it gets the whole object.
Kept only with extenders, of pods only while they wait, and without managedFields, which upstream drops too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
import orjson

from koordsched.api.meta import HasMetadata
from koordsched.client.sink import ObjectKey, Sink
from koordsched.client.wireformat import Decode
from koordsched.scheduling.inbox import Inbox, InboxSink

T = TypeVar("T", bound=HasMetadata)


class RawObjects(Generic[T]):
    """The JSON of the objects of one kind that `keep` says yes to, by `key_of` (their uid, or their name)."""

    def __init__(self, key_of: Callable[[ObjectKey], str], keep: Callable[[T], bool] = lambda obj: True) -> None:
        self._key_of = key_of
        self._keep = keep
        self._kept: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        """The JSON of an object; None if it is not kept."""
        return self._kept.get(key)

    def __len__(self) -> int:
        return len(self._kept)

    def wrap(self, decode: Decode[T], inbox: Inbox, sink: Sink[T], *, by_name: bool) -> tuple[Decode[T], Sink[T]]:
        """What a reflector has to use instead of its `decode` and `sink`. `by_name`: see `InboxSink`."""
        wrapped = _RawObjectSink(self, decode, inbox, sink, by_name)
        return wrapped.decode, wrapped

    def put(self, obj: T, data: bytes) -> None:
        """An object appeared or changed."""
        meta = obj.metadata
        key = self._key_of(ObjectKey(meta.namespace, meta.name, meta.uid))
        if self._keep(obj):
            self._kept[key] = _without_managed_fields(data)
        else:
            self._kept.pop(key, None)

    def drop(self, key: ObjectKey) -> None:
        """An object is gone."""
        self._kept.pop(self._key_of(key), None)


class _RawObjectSink(InboxSink[T]):
    """Sees an object's JSON when it is decoded and the object right after; the inbox gets both together."""

    def __init__(self, raw: RawObjects[T], decode: Decode[T], inbox: Inbox, sink: Sink[T], by_name: bool) -> None:
        super().__init__(inbox, sink, by_name=by_name)
        self._raw = raw
        self._decode = decode
        self._last = b""

    def decode(self, data: bytes | msgspec.Raw) -> T:
        obj = self._decode(data)
        self._last = bytes(data)
        return obj

    def upsert(self, obj: T, anew: bool = False) -> None:
        self._inbox.put(self._raw.put, obj, self._last)
        super().upsert(obj, anew)

    def delete(self, obj: T) -> None:
        meta = obj.metadata
        self._inbox.put(self._raw.drop, ObjectKey(meta.namespace, meta.name, meta.uid))
        super().delete(obj)

    def delete_key(self, key: ObjectKey) -> None:
        self._inbox.put(self._raw.drop, key)
        super().delete_key(key)


def _without_managed_fields(data: bytes) -> bytes:
    if b'"managedFields"' not in data:
        return data
    obj = orjson.loads(data)
    obj["metadata"].pop("managedFields", None)
    return orjson.dumps(obj)
