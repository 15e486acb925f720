"""Whole collections, page by page, for those who read them once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import TypeVar
from zlib import crc32

import msgspec

from koordsched.client.encodings import Encodings
from koordsched.client.errors import Ambiguous, raise_for_status
from koordsched.client.transport import Transport
from koordsched.client.wireformat import Page, Unreadable, WireFormat

T = TypeVar("T")

PAGE = 500
"""Objects in a page, as kubectl asks for them."""

PAGES_WITHOUT_NEWS = 10
"""Pages in a row that may show nothing new before a list counts as endless."""

TIMEOUT = 120.0
"""Seconds a page may take."""

COMPRESSED = {"Accept-Encoding": "gzip"}
"""The way to an API server may be long. Pages are a fifth of their size with it."""


class Progress:
    """Notices a list that does not end: its pages are empty, or begin with what an earlier one began with."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._begun: set[int] = set()
        self._idle = 0

    def check(self, first: bytes | msgspec.Raw | None) -> None:
        """A page came that is not the last; `first` tells its first item, None if it is empty.

        Raises Ambiguous after `PAGES_WITHOUT_NEWS` in a row without news.
        """
        found = crc32(first) if first is not None else None
        if found is not None and found not in self._begun:
            self._begun.add(found)
            self._idle = 0
            return
        self._idle += 1
        if self._idle >= PAGES_WITHOUT_NEWS:
            raise Ambiguous(f"GET {self._path}: the list does not end")


async def pages(
    transport: Transport, path: str, encodings: Encodings[T], query: Mapping[str, str] | None = None
) -> AsyncGenerator[tuple[Page, WireFormat[T]], None]:
    """The pages of a collection, each with the encoding that it came in. Raises ClientError.

    All pages are of one moment. A server that forgets it before the last of them was read answers Gone.
    """
    wanted = {**(query or {}), "limit": str(PAGE)}
    progress = Progress(path)
    token = ""
    while True:
        response = raise_for_status(
            await transport.request(
                "GET",
                path,
                query={**wanted, "continue": token} if token else wanted,
                headers={**encodings.headers, **COMPRESSED},
                timeout=TIMEOUT,
            )
        )
        form = encodings.of(response.headers)
        try:
            page = form.page(response.body)
        except Unreadable as error:
            raise Ambiguous(f"GET {path}: the response is not a list: {error}") from error
        yield page, form
        token = page.next_token
        if not token:
            return
        progress.check(page.items[0] if page.items else None)
