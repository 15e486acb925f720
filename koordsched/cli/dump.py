"""`koordsched dump FILE`: the objects of a cluster, for `explain -f` and `simulate -f`, and for bug reports."""

from __future__ import annotations

import asyncio
import gzip
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click
import orjson

from koordsched.cli.clusteraccess import ClusterAccess
from koordsched.cli.objectfiles import InputError
from koordsched.cli.output import counted, fail, print_notes
from koordsched.cli.progress import Progress
from koordsched.cli.redaction import redact
from koordsched.cli.state_options import cluster_options
from koordsched.client.clock import SystemClock
from koordsched.client.discovery import Listable, listable
from koordsched.client.encodings import Encodings
from koordsched.client.errors import ClientError
from koordsched.client.paging import pages
from koordsched.client.transport import Transport

T = TypeVar("T")

_STANDARD_OUTPUT = "-"

COMPRESSION = 1
"""The fastest: twice the size of the best, in a tenth of the time."""

_HEAD = b'{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[\n'
_NEEDED = ("pods", "nodes")
_DOUBLE = ("events.events.k8s.io",)
"""The same objects as `events`."""


class _Out(Protocol):
    """A file to write to."""

    def write(self, data: bytes, /) -> int: ...


@click.command("dump")
@click.argument("file", type=click.Path(allow_dash=True))
@cluster_options
def dump(file: str, kubeconfig: str | None, context: str | None) -> None:
    """Write all objects of the cluster to FILE as JSON, without secrets; compressed if FILE ends in .gz.

    Includes every kind that you may list. Leaves out values in Secrets and ConfigMaps, and environment variables,
    commands and arguments of containers. `explain -f`, `simulate -f` and `pending -f` read FILE; - is standard output.
    """
    try:
        access = ClusterAccess.of_flags(kubeconfig, context)
        with _opened(file) as out:
            objects, kinds, notes = asyncio.run(_dump(access, out))
    except (InputError, OSError) as error:
        fail(error)
    print_notes(notes)
    size = f", {os.path.getsize(file) / 1e6:,.1f} MB" if file != _STANDARD_OUTPUT else ""
    click.echo(f"{counted(objects, 'object')} of {counted(kinds, 'kind')}{size}", err=True)


@contextmanager
def _opened(file: str) -> Iterator[_Out]:
    """The file to write to, for the owner alone; it appears when it is complete. Raises OSError."""
    if file == _STANDARD_OUTPUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    partial = Path(f"{file}.partial")
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as raw:
            if file.endswith(".gz"):
                with gzip.GzipFile("", "wb", COMPRESSION, raw, 0) as packed:
                    yield packed
            else:
                yield raw
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


class _Items:
    """The items of the list that is written. `objects`: how many there are so far."""

    def __init__(self, out: _Out) -> None:
        self._out = out
        self.objects = 0

    async def add(self, lines: list[bytes]) -> None:
        """Appends objects. Compressing them leaves the interpreter to others."""
        if lines:
            separator = b",\n" if self.objects else b""
            self.objects += len(lines)
            await asyncio.to_thread(self._out.write, separator + b",\n".join(lines))


async def _dump(access: ClusterAccess, out: _Out) -> tuple[int, int, list[str]]:
    """How many objects of how many kinds there are, and what could not be read. Raises InputError, OSError."""
    async with access.transport() as transport:
        try:
            kinds, silent = await listable(transport)
        except ClientError as error:
            raise InputError(str(error)) from error
        notes = [f"left out, because the API does not respond: {api}" for api in silent]
        items, found = _Items(out), 0
        out.write(_HEAD)
        with Progress(SystemClock().monotonic) as progress:
            for kind in kinds:
                if kind.qualified in _DOUBLE:
                    continue
                before = items.objects
                try:
                    await _dump_kind(transport, kind, items, progress)
                except ClientError as error:
                    if kind.qualified in _NEEDED:
                        raise InputError(f"{kind.plural} cannot be listed: {error}") from error
                    notes.append(
                        f"{kind.qualified} cannot be listed completely, {items.objects - before} were written: {error}"
                    )
                found += items.objects > before
        out.write(b"]}\n")
    return items.objects, found, notes


async def _dump_kind(transport: Transport, kind: Listable, items: _Items, progress: Progress) -> None:
    encodings: Encodings[bytes] = Encodings(bytes, None)
    count = 0
    async for page, _ in _ahead(pages(transport, kind.path, encodings)):
        await items.add([_line(bytes(item), kind) for item in page.items])
        count += len(page.items)
        progress.show(f"{kind.qualified}: {count:,} ({items.objects:,} objects)")


def _line(item: bytes, kind: Listable) -> bytes:
    # Items of lists do not say what they are.
    thing: dict[str, Any] = {"apiVersion": kind.api_version, "kind": kind.kind, **orjson.loads(item)}
    redact(thing)
    return orjson.dumps(thing)


async def _ahead(source: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The same, with the next page requested while the current one is processed."""

    async def following() -> T | None:
        return await anext(source, None)

    upcoming = asyncio.create_task(following())
    try:
        while (now := await upcoming) is not None:
            upcoming = asyncio.create_task(following())
            yield now
    finally:
        upcoming.cancel()
        await asyncio.gather(upcoming, return_exceptions=True)
        await source.aclose()
