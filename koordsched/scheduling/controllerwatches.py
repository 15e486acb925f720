"""Objects that a controller reads besides those that decisions depend on: watched while the controller runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, TypeVar

from koordsched.api.decoding import Decoder
from koordsched.api.meta import HasMetadata
from koordsched.client.clock import Clock
from koordsched.client.errors import ClientError
from koordsched.client.reflector import Reflector, State
from koordsched.client.sink import ObjectKey
from koordsched.client.transport import Transport

_log = logging.getLogger(__name__)

T = TypeVar("T", bound=HasMetadata)


@dataclass(frozen=True, slots=True)
class ControllerWatches:
    """What controllers get to read more objects with (`framework.controller.ObjectWatches`)."""

    transport: Transport
    clock: Clock
    rng: Random

    def __call__(
        self,
        path: str,
        kind: type[T],
        selectors: Mapping[str, str],
        seen: Callable[[T], None],
        gone: Callable[[str], None],
    ) -> ControllerWatch[T]:
        return ControllerWatch(self, path, kind, selectors, _Receiver(seen, gone))


class ControllerWatch(Generic[T]):
    """One collection. It is listed again at the start of each run; what went in between is gone then."""

    def __init__(
        self,
        by: ControllerWatches,
        path: str,
        kind: type[T],
        selectors: Mapping[str, str],
        receiver: _Receiver[T],
    ) -> None:
        self.synced = asyncio.Event()
        self._by = by
        self._path = path
        self._kind = kind
        self._selectors = selectors
        self._receiver = receiver

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        reflector: Reflector[Any] = Reflector(
            self._by.transport,
            self._path,
            Decoder(self._kind),
            self._receiver,
            clock=self._by.clock,
            rng=self._by.rng,
            selectors=self._selectors,
            on_malformed=self._malformed,
            on_state=self._state_changed,
        )
        try:
            await reflector.run()
        finally:
            self.synced.clear()

    def _state_changed(self, state: State, error: ClientError | None) -> None:
        if state is State.SYNCED:
            self.synced.set()
        elif error is not None:
            _log.warning("%s cannot be watched (%s) for a controller: %s", self._path, state.value, error)

    def _malformed(self, name: str, error: Exception) -> None:
        _log.warning("%s %s cannot be decoded and is ignored: %s", self._path, name, error)


class _Receiver(Generic[T]):
    """The sink of a watch. Of the objects it keeps keys and versions."""

    def __init__(self, seen: Callable[[T], None], gone: Callable[[str], None]) -> None:
        self._seen = seen
        self._gone = gone
        self._versions: dict[str, tuple[ObjectKey, str]] = {}
        """By uid."""

    def upsert(self, obj: T, anew: bool = False) -> None:
        meta = obj.metadata
        before = self._versions.get(meta.uid)
        if before is not None and before[1] == meta.resource_version != "":
            return
        self._versions[meta.uid] = ObjectKey(meta.namespace, meta.name, meta.uid), meta.resource_version
        self._seen(obj)

    def delete(self, obj: T) -> None:
        self._forget(obj.metadata.uid)

    def delete_key(self, key: ObjectKey) -> None:
        self._forget(key.uid)

    def known(self) -> Iterator[ObjectKey]:
        return iter([key for key, _ in self._versions.values()])

    def _forget(self, uid: str) -> None:
        if self._versions.pop(uid, None) is not None:
            self._gone(uid)
