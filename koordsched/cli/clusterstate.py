"""From a cluster to a state on which the scheduler's evaluation runs: every kind that plugins read is listed once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from koordsched.api.decoding import Decoder
from koordsched.api.meta import HasMetadata
from koordsched.api.protobuf.fields import MEDIA_TYPE
from koordsched.cli.clusteraccess import ClusterAccess
from koordsched.cli.objectfiles import InputError
from koordsched.cli.offline import Offline, empty_scheduler, notes_on
from koordsched.cli.progress import Progress
from koordsched.cli.target import Target, without_node
from koordsched.client.clock import SystemClock
from koordsched.client.encodings import Encodings, protobuf_format
from koordsched.client.errors import ClientError, Forbidden, NotFound, raise_for_status
from koordsched.client.paging import pages
from koordsched.client.transport import JSON, Transport
from koordsched.cluster.builtinkinds import NODES, PODS
from koordsched.cluster.kinds import Kind
from koordsched.config import Resolved
from koordsched.scheduling.offline import BadObject, OfflineScheduler
from koordsched.scheduling.watching import UNFINISHED

T = TypeVar("T", bound=HasMetadata)

_MOST_NAMED = 5
"""Number of objects that cannot be decoded and are listed by name."""

_ACCEPT = f"{MEDIA_TYPE},{JSON}"


def read_target(access: ClusterAccess, target: Target) -> Any:
    """The object as the cluster has it now. Raises InputError if there is none."""
    return asyncio.run(_read_target(access, target))


async def _read_target(access: ClusterAccess, target: Target) -> Any:
    decode = Decoder(target.kind.type)
    async with access.transport() as transport:
        try:
            return decode(raise_for_status(await transport.request("GET", target.path)).body)
        except NotFound:
            what = "pod " if target.is_pod else ""
            raise InputError(f"there is no {what}{target.title}{await _hint(transport, target)}") from None
        except (ClientError, ValueError) as error:
            raise InputError(f"{transport.server}: {error}") from error


async def _hint(transport: Transport, target: Target) -> str:
    """What there is of similar names."""
    try:
        near = await _similar_names(transport, target)
    except NotFound:
        return ""  # a kind that is not defined here
    return f"; there is {', '.join(target._replace(name=other).title for other in near)}" if near else ""


async def _similar_names(transport: Transport, target: Target) -> list[str]:
    encodings = Encodings(Decoder(target.kind.type), None)
    names: list[str] = []
    async for page, form in pages(transport, target._replace(name="").path.rstrip("/"), encodings):
        names += [meta.name for item in page.items if (meta := form.meta(item)) is not None]
    return (
        get_close_matches(target.name, names, n=_MOST_NAMED)
        or [other for other in names if other.startswith(target.name)][:_MOST_NAMED]
    )


def prepare_cluster(
    access: ClusterAccess, resolved: Resolved, *, seed: int = 0, lifted: Target | None = None
) -> Offline:
    """Lists what the profiles read.

    `lifted`: what is to be pending even if it has a node. Raises InputError.
    """
    return asyncio.run(_prepare(access, resolved, seed, lifted))


async def _prepare(access: ClusterAccess, resolved: Resolved, seed: int, lifted: Target | None) -> Offline:
    clock = SystemClock()
    scheduler = empty_scheduler(resolved, seed, clock)
    with Progress(clock.monotonic) as progress:
        async with access.transport() as transport:
            reading = _Reading(transport, scheduler, progress, lifted)
            await reading.read(NODES, NODES.path, {})
            for store in scheduler.cluster.objects.wanted():
                await reading.read(store.kind, *store.listing())
            await reading.read(PODS, PODS.path, UNFINISHED)
    return Offline(scheduler, [*reading.notes(), *notes_on(scheduler)])


class _Reading:
    """Lists one kind after the other into the scheduler's state."""

    def __init__(
        self, transport: Transport, scheduler: OfflineScheduler, progress: Progress, lifted: Target | None
    ) -> None:
        self._transport = transport
        self._scheduler = scheduler
        self._progress = progress
        self._lifted = lifted
        self._unread: list[str] = []
        self._malformed: list[str] = []

    def notes(self) -> list[str]:
        """What could not be read, for the user."""
        rest = len(self._malformed) - _MOST_NAMED
        more = [f"{rest} more objects cannot be decoded and are ignored"] if rest > 0 else []
        return [*self._unread, *self._malformed[:_MOST_NAMED], *more]

    async def read(self, kind: Kind[Any], path: str, selectors: Mapping[str, str]) -> None:
        """What this path lists of a kind. Raises InputError if the scheduler cannot decide without it."""
        try:
            await self._read(kind, path, selectors)
        except NotFound:
            pass  # a custom resource that is not defined here, or a kind of a later release: there are none
        except Forbidden as error:
            if kind in (NODES, PODS):
                raise InputError(f"{kind.plural} cannot be listed: {error}") from error
            self._unread.append(f"{kind.plural} cannot be listed and count as none: {error}")
        except ClientError as error:
            raise InputError(f"{kind.plural} cannot be listed: {error}") from error

    async def _read(self, kind: Kind[T], path: str, selectors: Mapping[str, str]) -> None:
        wire: type[Any] = self._scheduler.cluster.pod_facts.wire_type if kind is PODS else kind.type
        encodings = Encodings(Decoder(wire), protobuf_format(kind.path, wire, _ACCEPT))
        count = 0
        async for page, form in pages(self._transport, path, encodings, selectors):
            for item in page.items:
                try:
                    self._take(kind, form.decode(item, None))
                except (BadObject, ValueError) as error:
                    meta = form.meta(item)
                    name = f"{meta.namespace}/{meta.name}".removeprefix("/") if meta is not None else "?"
                    self._malformed.append(f"{kind.name} {name} cannot be decoded and is ignored: {error}")
            count += len(page.items)
            self._progress.show(f"reading {kind.plural}: {count:,}")

    def _take(self, kind: Kind[T], thing: T) -> None:
        if self._lifted is not None and self._lifted.is_object(thing):
            thing = without_node(thing)
        self._scheduler.add_object(kind, thing)
