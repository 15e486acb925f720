"""A transport that only reads: for what looks at a cluster that others work in."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from koordsched.client.errors import Fenced
from koordsched.client.transport import Done, Request, Response, Stream, Transport


class ReadOnlyTransport(Transport):
    """Passes GET requests on to another transport and withholds every other request, which ends as Fenced.

    `close` closes the other one.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def _request(self, request: Request) -> Response:
        _check(request)
        return await self._transport._request(request)

    def send(self, request: Request, done: Done) -> None:
        try:
            _check(request)
        except Fenced as withheld:
            asyncio.get_running_loop().call_soon(done, withheld)
            return
        self._transport.send(request, done)

    def _stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        _check(request)
        return self._transport._stream(request)

    def drop_connections(self) -> None:
        self._transport.drop_connections()

    async def close(self) -> None:
        await self._transport.close()


def _check(request: Request) -> None:
    if request.method != "GET":
        raise Fenced(f"{request.method} {request.target} withheld: this process only reads")
