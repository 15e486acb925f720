"""Decodes listed and watched objects and applies them to a sink: the part of a reflector that handles objects."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec

from koordsched.api.meta import HasMetadata
from koordsched.api.versions import is_number, is_older
from koordsched.client.listing import ListedUids
from koordsched.client.sink import ObjectKey, Sink
from koordsched.client.wireformat import WireFormat

_log = logging.getLogger(__name__)

T = TypeVar("T", bound=HasMetadata)

OnMalformed = Callable[[str, Exception], None]
"""("namespace/name", or "" if even that cannot be read; the error)."""


class ObjectApplier(Generic[T]):
    """Hands decoded objects to the sink. Events that are not newer than `version` are skipped, and counted.

    `version` is the latest resource version applied, empty before the first list. While the initial state is streamed
    (`streaming`), events may come in any order. `begin` and `complete` are iterated step by step, so that the caller
    can pause between steps. `format` is the encoding of the objects.
    """

    def __init__(self, path: str, encoding: WireFormat[T], sink: Sink[T], on_malformed: OnMalformed | None) -> None:
        self._path = path
        self._sink = sink
        self._on_malformed = on_malformed
        self._blank = next(sink.known(), None) is None
        """The sink has got nothing yet, so no object can be missing from a listing."""
        self._listed: ListedUids | None = None
        """The uids of the current listing; those of an aborted one stay until the next begins."""
        self._anew = False
        self.format = encoding
        self.version = ""
        self.streaming = False
        self.stale_events = 0
        self.malformed = 0

    def begin(self, *, streamed: bool, anew: bool = False) -> Iterator[None]:
        """A complete listing starts, from the beginning if another was aborted. `streamed`: it comes as events; `anew`:
        see `Sink`.
        """
        if self._listed is not None:
            yield from self._listed.clear()
        self._listed = None if self._blank else ListedUids()
        self.streaming, self._anew = streamed, anew

    def complete(self, version: str) -> Iterator[None]:
        """The listing is complete, and shows the state of this version: objects that it lacks are deleted.

        The watch starts after the listing, so the sink received nothing else meanwhile. However long this takes, the
        deleted objects did not exist during that time.
        """
        listed = self._listed
        if listed is not None:
            for key in self._sink.known():
                if key.uid not in listed:
                    self._take_out(key)
                yield
            yield from listed.clear()
            self._listed = None
        self.version = version
        self.streaming = self._anew = False

    def upsert(self, data: bytes | msgspec.Raw, frame: bytes | None = None) -> None:
        """Applies an object. `frame` is the watch event it came in."""
        try:
            obj = self.format.decode(data, frame)
        except Exception as error:
            key, _ = self._reject(data, frame, error)
            if key is not None and self._listed is not None:
                self._listed.add(key.uid)
            return
        meta = obj.metadata
        if self._listed is not None:
            self._listed.add(meta.uid)
        if frame is not None and not self.streaming and not self.advance(meta.resource_version):
            self.stale_events += 1
            return
        self._blank = False
        try:
            self._sink.upsert(obj, self._anew)
        except Exception as error:
            self._failed(ObjectKey(meta.namespace, meta.name, meta.uid), error, "applied")

    def delete(self, data: bytes, frame: bytes) -> None:
        """Deletes an object."""
        try:
            obj = self.format.decode(data, frame)
        except Exception as error:
            key, is_new = self._reject(data, frame, error)
            if key is not None and self._listed is not None:
                self._listed.discard(key.uid)
            if key is not None and is_new:
                self._take_out(key)
            return
        meta = obj.metadata
        if self._listed is not None:
            self._listed.discard(meta.uid)
        if not self.streaming and not self.advance(meta.resource_version):
            # Another object may have the name by now.
            self.stale_events += 1
            return
        try:
            self._sink.delete(obj)
        except Exception as error:
            self._failed(ObjectKey(meta.namespace, meta.name, meta.uid), error, "removed")

    def _take_out(self, key: ObjectKey) -> None:
        try:
            self._sink.delete_key(key)
        except Exception as error:
            self._failed(key, error, "removed")

    def _failed(self, key: ObjectKey, error: Exception, done: str) -> None:
        _log.exception("%s: %s/%s could not be %s", self._path, key.namespace, key.name, done)
        self._malformed(key, error)

    def _reject(
        self, data: bytes | msgspec.Raw, frame: bytes | None, error: Exception
    ) -> tuple[ObjectKey | None, bool]:
        """Reports an object that cannot be decoded. Returns its key, if readable, and whether the event was new.

        The sink keeps an older, valid state of it: the object exists, and no better state is known.
        """
        meta = self.format.meta(data)
        key = ObjectKey(meta.namespace, meta.name, meta.uid) if meta is not None else None
        self._malformed(key, error)
        if frame is None or self.streaming or meta is None:
            return key, True
        return key, self.advance(meta.resource_version)

    def _malformed(self, key: ObjectKey | None, error: Exception) -> None:
        self.malformed += 1
        if self._on_malformed is not None:
            self._on_malformed(f"{key.namespace}/{key.name}".lstrip("/") if key is not None else "", error)

    def advance(self, version: str) -> bool:
        """Notes the resource version; False if it is not newer than the latest."""
        if is_number(version) and (version == self.version or is_older(version, self.version)):
            return False
        if version and (is_number(version) or not version.isdecimal()):
            self.version = version  # a number that no server counts to would make all later events old
        return True
