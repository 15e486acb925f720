"""A log of all writes, so that a server that was killed comes back with every write that it had answered.

One line of JSON per write. At the start the log is replayed and written anew with what there is. Writes reach the
system before they are answered: they survive the end of the process, not that of the machine.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from koordsched.fakecluster import snapshot
from koordsched.fakecluster.registry import Registry
from koordsched.fakecluster.store import DELETED, Change, Record

_NAME = "writes.jsonl"

Place = tuple[str, str, str]
"""(storage key, namespace, name)."""


class DataLog:
    """The log in a directory. `start` replays and continues it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = -1
        self._size = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is no log yet."""
        return not (self._directory / _NAME).exists()

    def start(self, registry: Registry) -> int:
        """Restores what the log has into an empty registry, and logs all writes from now on.

        Returns how many objects there were. Raises SnapshotError if the log cannot be read or written.
        """
        path = self._directory / _NAME
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            objects = _replayed(path) if path.exists() else {}
            served = {resource.storage for resource in registry.resources()}
            definitions = [obj for (storage, *_), obj in objects.items() if storage in served]
            snapshot.restore(registry, [(str(path), obj) for obj in definitions])
            # What definitions of kinds made room for; objects of kinds that are gone went with them.
            served = {resource.storage for resource in registry.resources()} - served
            rest = [obj for (storage, *_), obj in objects.items() if storage in served]
            snapshot.restore(registry, [(str(path), obj) for obj in rest])
            self._continue(path, registry)
        except OSError as error:
            raise snapshot.SnapshotError(f"{error.filename or path}: {error.strerror}") from error
        return len(definitions) + len(rest)

    def _continue(self, path: Path, registry: Registry) -> None:
        fresh = path.with_suffix(".new")
        self._size = 0
        self._file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        for resource in snapshot.stored_resources(registry):
            for record in registry.scan(resource):
                self._write(resource.storage, "ADDED", record)
        fresh.replace(path)
        registry.store.log = self._note

    def _note(self, storage: str, change: Change) -> None:
        self._write(storage, change.type, change.new)

    def _write(self, storage: str, kind: str, record: Record) -> None:
        line = orjson.dumps([kind, storage, *record.key, None if kind is DELETED else orjson.Fragment(record.data)])
        left = memoryview(line + b"\n")
        try:
            while left:
                written = os.write(self._file, left)
                if not written:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), _NAME)
                left = left[written:]
        except OSError:
            # Half a line would make what follows unreadable.
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(line) + 1


def _replayed(path: Path) -> dict[Place, Any]:
    objects: dict[Place, Any] = {}
    for kind, storage, namespace, name, obj in _lines(path):
        place = (storage, namespace, name)
        objects.pop(place, None)
        if kind != DELETED:
            objects[place] = obj
    return objects


def _lines(path: Path) -> Iterator[Any]:
    """All lines but one that the end of the server cut short. Raises SnapshotError."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                entry = orjson.loads(line)
                kind, storage, namespace, name, obj = entry
            except ValueError as error:
                raise snapshot.SnapshotError(f"{path}: line {number}: {error}") from error
            yield kind, storage, namespace, name, obj
