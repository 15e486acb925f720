"""From encoded objects to a sink, in order of time: the part of a reflector that touches objects."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec

from koordsched.client.listing import ListedUids
from koordsched.client.sink import KubeObject, ObjectKey, Sink
from koordsched.client.wireformat import WireFormat

_log = logging.getLogger(__name__)

T = TypeVar("T", bound=KubeObject)

OnMalformed = Callable[[str, Exception], None]
"""("namespace/name", or "" if not even that can be read; the error)."""


class Intake(Generic[T]):
    """Hands decoded objects to the sink; events no newer than what was handled are left out, and counted.

    `version` is how far we are, empty before the first list. While the whole state is streamed (`streaming`), the order
    of time does not count. `begin` and `complete` are to be carried out step by step, with pauses where they are due.
    `format` is the encoding of what comes.
    """

    def __init__(self, path: str, encoding: WireFormat[T], sink: Sink[T], on_malformed: OnMalformed | None) -> None:
        self._path = path
        self._sink = sink
        self._on_malformed = on_malformed
        self._blank = True
        """Nothing was ever handed to the sink: there is nothing yet that a listing could lack."""
        self._listed: ListedUids | None = None
        """What the listing under way contains; that of one that broke off stays until the next begins."""
        self.format = encoding
        self.version = ""
        self.streaming = False
        self.stale_events = 0
        self.malformed = 0

    def begin(self, *, streamed: bool) -> Iterator[None]:
        """A complete listing starts, from the beginning if another broke off. `streamed`: it comes as events."""
        if self._listed is not None:
            yield from self._listed.clear()
        self._listed = None if self._blank else ListedUids()
        self.streaming = streamed

    def complete(self, version: str) -> Iterator[None]:
        """The listing is complete, and shows the state of this version: what is not in it is gone.

        Nothing can have come to the sink since the listing was made but the listing itself: whoever lists watches
        afterwards. So however long this takes, what is taken out has been gone all the while.
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
        self.streaming = False

    def upsert(self, data: bytes | msgspec.Raw, frame: bytes | None = None) -> None:
        """Hands an object on. `frame` is the watch event it came in."""
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
            self._sink.upsert(obj)
        except Exception as error:
            self._failed(ObjectKey(meta.namespace, meta.name, meta.uid), error, "in")

    def delete(self, data: bytes, frame: bytes) -> None:
        """Takes an object out."""
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
            # Its name may have been taken again since.
            self.stale_events += 1
            return
        try:
            self._sink.delete(obj)
        except Exception as error:
            self._failed(ObjectKey(meta.namespace, meta.name, meta.uid), error, "out")

    def _take_out(self, key: ObjectKey) -> None:
        try:
            self._sink.delete_key(key)
        except Exception as error:
            self._failed(key, error, "out")

    def _failed(self, key: ObjectKey, error: Exception, direction: str) -> None:
        _log.exception("%s: %s/%s could not be taken %s", self._path, key.namespace, key.name, direction)
        self._malformed(key, error)

    def _reject(
        self, data: bytes | msgspec.Raw, frame: bytes | None, error: Exception
    ) -> tuple[ObjectKey | None, bool]:
        """Reports an object that cannot be decoded. Its key, if it can be told, and whether this was news.

        An older, sound state of it stays with the sink: the object exists, and nothing better is known of it.
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
        """Notes how far we are; False if that is no news."""
        if version.isdecimal() and (version == self.version or is_older(version, self.version)):
            return False
        if version:
            self.version = version
        return True


def is_older(version: str, other: str) -> bool:
    """Whether a resource version is older than another of the same resource, as far as that can be told."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)
