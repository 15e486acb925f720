"""From JSON to a sink, in order of time: the part of a reflector that touches objects."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from koordsched.client.sink import KubeObject, ObjectKey, Sink
from koordsched.client.watchstream import meta_of, resplit_event

_log = logging.getLogger(__name__)

T = TypeVar("T", bound=KubeObject)

Decode = Callable[[bytes | msgspec.Raw], T]
"""Makes an object of its JSON."""

OnMalformed = Callable[[str, Exception], None]
"""("namespace/name", or "" if not even that can be read; the error)."""


class Intake(Generic[T]):
    """Hands decoded objects to the sink; events no newer than what was handled are left out, and counted.

    `version` is how far we are, empty before the first list. While the whole state is streamed, `streaming` collects
    what exists, and the order of time does not count.
    """

    def __init__(self, path: str, decode: Decode[T], sink: Sink[T], on_malformed: OnMalformed | None) -> None:
        self._path = path
        self._decode = decode
        self._sink = sink
        self._on_malformed = on_malformed
        self.version = ""
        self.streaming: set[ObjectKey] | None = None
        self.stale_events = 0
        self.malformed = 0

    def upsert(self, data: bytes | msgspec.Raw, line: bytes | None = None) -> ObjectKey | None:
        """Hands an object on; its key, or None if it cannot be told. `line` is the watch event it came in."""
        try:
            obj = self._decoded(data, line)
        except Exception as error:
            return self._reject(data, line, error)[0]
        meta = obj.metadata
        key = ObjectKey(meta.namespace, meta.name, meta.uid)
        if line is not None and self.streaming is None and not self.advance(meta.resource_version):
            self.stale_events += 1
            return key
        try:
            self._sink.upsert(obj)
        except Exception as error:
            _log.exception("%s: %s/%s could not be taken in", self._path, key.namespace, key.name)
            self._malformed(key, error)
        return key

    def delete(self, data: bytes, line: bytes) -> ObjectKey | None:
        """Takes an object out; its key, or None if it cannot be told."""
        try:
            obj = self._decoded(data, line)
        except Exception as error:
            key, is_new = self._reject(data, line, error)
            if key is not None and is_new:
                self._sink.delete_key(key)
            return key
        meta = obj.metadata
        key = ObjectKey(meta.namespace, meta.name, meta.uid)
        if self.streaming is None and not self.advance(meta.resource_version):
            # Its name may have been taken again since.
            self.stale_events += 1
            return key
        try:
            self._sink.delete(obj)
        except Exception as error:
            _log.exception("%s: %s/%s could not be taken out", self._path, key.namespace, key.name)
            self._malformed(key, error)
        return key

    def _decoded(self, data: bytes | msgspec.Raw, line: bytes | None) -> T:
        """The typed object. Raises whatever `decode` raises."""
        try:
            return self._decode(data)
        except Exception:
            if line is None:
                raise
            parsed = resplit_event(line)[1]
            if parsed == data:
                raise
            return self._decode(parsed)

    def _reject(self, data: bytes | msgspec.Raw, line: bytes | None, error: Exception) -> tuple[ObjectKey | None, bool]:
        """Reports an object that cannot be decoded. Its key, if it can be told, and whether this was news.

        An older, sound state of it stays with the sink: the object exists, and nothing better is known of it.
        """
        meta = meta_of(data)
        key = ObjectKey(meta.namespace, meta.name, meta.uid) if meta is not None else None
        self._malformed(key, error)
        if line is None or self.streaming is not None or meta is None:
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
