"""Whole collections, page by page, for those who read them once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import TypeVar

from koordsched.client.encodings import Encodings
from koordsched.client.errors import Ambiguous, raise_for_status
from koordsched.client.transport import Transport
from koordsched.client.wireformat import Page, Unreadable, WireFormat

T = TypeVar("T")

PAGE = 500
"""Objects in a page, as kubectl asks for them."""

TIMEOUT = 120.0
"""Seconds a page may take."""

COMPRESSED = {"Accept-Encoding": "gzip"}
"""The way to an API server may be long. Pages are a fifth of their size with it."""


async def pages(
    transport: Transport, path: str, encodings: Encodings[T], query: Mapping[str, str] | None = None
) -> AsyncGenerator[tuple[Page, WireFormat[T]], None]:
    """The pages of a collection, each with the encoding that it came in. Raises ClientError.

    All pages are of one moment. A server that forgets it before the last of them was read answers Gone.
    """
    wanted = {**(query or {}), "limit": str(PAGE)}
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
