"""Lists: pages of a consistent snapshot, assembled from stored bytes.

Semantics of resourceVersion and resourceVersionMatch: kubernetes.io "API Concepts", section Resource versions.
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from koordsched.fakecluster import errors
from koordsched.fakecluster.selectors import RecordTest
from koordsched.fakecluster.store import Collection, Record, Store

STREAM_ABOVE = 500
"""Lists with more items than this are streamed, not joined in memory."""
_MOST_DIGITS = 20
"""Of a number of 64 bits."""


@dataclass(slots=True)
class Page:
    """What one list request answers. `remaining` is None where the real server does not tell it."""

    records: list[Record]
    rv: int
    continue_token: str = ""
    remaining: int | None = None


@dataclass(slots=True)
class _Snapshot:
    rv: int
    records: list[Record]
    selected: bool


class Pager:
    """Keeps the rest of paged lists: later pages show the state of the first. The oldest beyond `limit` go."""

    def __init__(self, store: Store, limit: int = 64) -> None:
        self._store = store
        self._limit = limit
        self._snapshots: OrderedDict[int, _Snapshot] = OrderedDict()
        self._counter = 0

    def page(
        self, collection: Collection, namespace: str | None, matches: RecordTest | None, query: Mapping[str, str]
    ) -> Page:
        """The page that a request's query asks for. 400, 410 or 504 when it cannot be had."""
        limit = integer(query, "limit")
        token = query.get("continue", "")
        if token:
            number, start, snapshot = self._resume(token)
        else:
            rv, records = self._state(collection, namespace, query)
            if matches is not None:
                records = [r for r in records if matches(r)]
            number, start, snapshot = 0, 0, _Snapshot(rv, records, matches is not None)
        end = start + limit if limit > 0 else len(snapshot.records)
        page = Page(snapshot.records[start:end], snapshot.rv)
        if end < len(snapshot.records):
            if not number:
                self._counter = number = self._counter + 1
                self._snapshots[number] = snapshot
                if len(self._snapshots) > self._limit:
                    self._snapshots.popitem(last=False)
            page.continue_token = base64.urlsafe_b64encode(orjson.dumps([number, end])).decode().rstrip("=")
            if not snapshot.selected:
                page.remaining = len(snapshot.records) - end
        # A finished snapshot stays until it is the oldest: a client may repeat its last page.
        return page

    def _resume(self, token: str) -> tuple[int, int, _Snapshot]:
        try:
            number, start = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            snapshot = self._snapshots.get(int(number))
            start = int(start)
        except (ValueError, TypeError, binascii.Error):
            raise errors.bad_request("continue key is not valid") from None
        if snapshot is None:
            raise errors.expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You must start a new list without the continue parameter."
            )
        return int(number), start, snapshot

    def _state(
        self, collection: Collection, namespace: str | None, query: Mapping[str, str]
    ) -> tuple[int, list[Record]]:
        current = self._store.rv
        requested = resource_version(query)
        match = query.get("resourceVersionMatch", "")
        if match and match not in ("Exact", "NotOlderThan"):
            raise errors.bad_request(f"resourceVersionMatch: Unsupported value: {match!r}")
        if match and requested is None:
            raise errors.bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided")
        if requested is not None and requested > current:
            raise errors.too_large(requested, current)
        if requested and match == "Exact":
            records = collection.at(requested, namespace)
            if records is None:
                raise errors.too_old(requested, collection.compacted)
            return requested, records
        return current, list(collection.scan(namespace))


def integer(query: Mapping[str, str], name: str) -> int:
    """A query parameter as a number that is not negative; 0 when absent, 400 when it is not one."""
    text = query.get(name, "")
    if not text:
        return 0
    if not text.isascii() or not text.isdigit():
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text[:64]}": invalid syntax')
    return _bounded(text, "strconv.ParseInt", 63)


def resource_version(query: Mapping[str, str]) -> int | None:
    """The resourceVersion of a list or watch; None when absent, 400 when it is not one."""
    text = query.get("resourceVersion", "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        wrong = errors.invalid_value(
            "resourceVersion", text[:64], f'strconv.ParseUint: parsing "{text[:64]}": invalid syntax'
        )
        raise errors.bad_request(str(wrong))
    return _bounded(text, "strconv.ParseUint", 64)


def _bounded(digits: str, function: str, bits: int) -> int:
    """The number. 400 when it has more bits, before the interpreter's own limit for digits."""
    significant = digits.lstrip("0") or "0"
    number = int(significant) if len(significant) <= _MOST_DIGITS else 1 << bits
    if number >> bits:
        raise errors.bad_request(f'{function}: parsing "{digits[:64]}": value out of range')
    return number


def list_head(api_version: str, list_kind: str, page: Page) -> bytes:
    """The list up to and with the opening bracket of its items."""
    metadata: dict[str, object] = {"resourceVersion": str(page.rv)}
    if page.continue_token:
        metadata["continue"] = page.continue_token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    return b'{"kind":%s,"apiVersion":%s,"metadata":%s,"items":[' % (
        orjson.dumps(list_kind),
        orjson.dumps(api_version),
        orjson.dumps(metadata),
    )


def list_body(
    head: bytes, records: Sequence[Record], encode: Callable[[Record], bytes]
) -> bytes | AsyncIterator[bytes]:
    """The whole list, as bytes when it is small and as a stream when it is not."""
    if len(records) <= STREAM_ABOVE:
        return head + b",".join([encode(r) for r in records]) + b"]}\n"
    return _stream(head, records, encode)


async def _stream(head: bytes, records: Sequence[Record], encode: Callable[[Record], bytes]) -> AsyncIterator[bytes]:
    for start in range(0, len(records), STREAM_ABOVE):
        part = b",".join([encode(r) for r in records[start : start + STREAM_ABOVE]])
        yield (head if start == 0 else b",") + part
    yield b"]}\n"
