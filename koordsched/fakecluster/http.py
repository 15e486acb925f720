"""HTTP/1.1 on asyncio: requests parsed by httptools, handled in order on each connection, responses whole or chunked.

Our own because of what the embedded server is for: a library's request costs several times the work of the request
itself at thousands of pod writes per second, and a watch needs nothing that a library would add.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import cast
from urllib.parse import parse_qsl, unquote

import httptools

from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.messages import Request, Response, error_response

log = logging.getLogger(__name__)

Handler = Callable[[Request], "Response | Awaitable[Response]"]
"""Answers at once where it can: only what has to wait costs a task."""

BODY_LIMIT = 3 << 20
"""Largest request body in bytes, as of the real server."""
PIPELINE_LIMIT = 64
"""Requests of one connection that may wait; reading stops meanwhile."""
WRITE_HIGH_WATER = 1 << 20
"""Bytes that may wait in a connection's transport before streams pause."""

_REASONS = {s.value: s.phrase for s in HTTPStatus}
_HEADS: dict[tuple[int, str], bytes] = {}


def _head(status: int, headers: dict[str, str]) -> bytes:
    """Status line and headers; the common case (a content type alone) is remembered."""
    content_type = headers.get("content-type", "")
    key = (status, content_type)
    if len(headers) == 1 and (known := _HEADS.get(key)) is not None:
        return known
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, '')}", "cache-control: no-cache, private"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = ("\r\n".join(lines) + "\r\n").encode("latin-1", "replace")
    if len(headers) == 1:
        _HEADS[key] = head
    return head


class Connection(asyncio.Protocol):
    """One client connection."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._handler = server.handler
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._body_size = 0
        self._waiting: deque[tuple[Request, bool]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._paused_reading = False
        self._closing = False
        self._gathered: list[bytes] | None = None
        """Answers to what is being received, while it is: pipelined requests are answered with one write."""

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = stream = cast(asyncio.Transport, transport)
        stream.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._transport = None
        self._waiting.clear()
        self._can_write.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def data_received(self, data: bytes) -> None:
        self._gathered = []
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Answered like any other request, which declines the upgrade, and closed.
            return
        except httptools.HttpParserError as problem:
            self._refuse(400, str(problem))
        finally:
            self._flush()

    # -- httptools callbacks

    def on_message_begin(self) -> None:
        self._url, self._headers, self._body, self._body_size = b"", {}, [], 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue" and self._transport is not None:
            self._flush()
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_size += len(body)
        if self._body_size <= BODY_LIMIT:
            self._body.append(body)

    def on_message_complete(self) -> None:
        keep_alive = self._parser.should_keep_alive() and not self._parser.should_upgrade()
        if self._body_size > BODY_LIMIT:
            self._refuse(413, f"Request entity too large: limit is {BODY_LIMIT}", "RequestEntityTooLarge")
            return
        path, mark, query = self._url.decode("latin-1").partition("?")
        request = Request(
            self._parser.get_method().decode("latin-1"),
            unquote(path) if "%" in path else path,
            dict(parse_qsl(query, keep_blank_values=True)) if mark else {},
            self._headers,
            self._body[0] if len(self._body) == 1 else b"".join(self._body),
        )
        if self._task is None and not self._waiting:
            self._answer(request, keep_alive)
        else:
            self._waiting.append((request, keep_alive))
            if len(self._waiting) >= PIPELINE_LIMIT and self._transport is not None and not self._paused_reading:
                self._paused_reading = True
                self._transport.pause_reading()

    # -- answering

    def _answer(self, request: Request, keep_alive: bool) -> None:
        if self._closing:
            return
        if request.method == "HEAD":
            # An answer to HEAD has no body, not even that of a refusal.
            self._send(Response(405, {"content-type": "application/json"}, b""), b"", keep_alive)
            return
        answer = self._handler(request)
        if isinstance(answer, Response) and isinstance(answer.body, bytes):
            self._send(answer, answer.body, keep_alive)
        else:
            self._task = asyncio.get_running_loop().create_task(self._finish(answer, keep_alive))
            self._task.add_done_callback(self._next)

    async def _finish(self, answer: Response | Awaitable[Response], keep_alive: bool) -> None:
        response = answer if isinstance(answer, Response) else await answer
        if isinstance(response.body, bytes):
            self._send(response, response.body, keep_alive)
        else:
            await self._stream(response, response.body, keep_alive)

    def _next(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("request failed", exc_info=problem)
            self._close()
        while self._waiting and self._task is None:
            self._answer(*self._waiting.popleft())
        if self._paused_reading and not self._waiting and self._transport is not None:
            self._paused_reading = False
            self._transport.resume_reading()

    def _send(self, response: Response, body: bytes, keep_alive: bool) -> None:
        if self._transport is None:
            return
        head = _head(response.status, response.headers)
        connection = b"" if keep_alive else b"connection: close\r\n"
        answer = (b"%scontent-length: %d\r\n%s\r\n" % (head, len(body), connection), body)
        if self._gathered is None:
            self._transport.writelines(answer)
        else:
            self._gathered += answer
        if not keep_alive:
            self._close()

    async def _stream(self, response: Response, body: AsyncIterator[bytes], keep_alive: bool) -> None:
        if self._transport is None:
            return
        connection = b"" if keep_alive else b"connection: close\r\n"
        head = _head(response.status, response.headers)
        self._transport.write(head + b"transfer-encoding: chunked\r\n" + connection + b"\r\n")
        try:
            async for item in body:
                if item:
                    self._transport.writelines((b"%x\r\n" % len(item), item, b"\r\n"))
                await self._can_write.wait()
                if self._transport is None:
                    return
            self._transport.write(b"0\r\n\r\n")
        finally:
            if hasattr(body, "aclose"):
                await body.aclose()
        if not keep_alive:
            self._close()

    def _refuse(self, status: int, message: str, reason: str = "BadRequest") -> None:
        response = error_response(ApiStatusError(status, reason, message))
        assert isinstance(response.body, bytes)
        self._send(response, response.body, False)

    def _flush(self) -> None:
        gathered, self._gathered = self._gathered, None
        if gathered and self._transport is not None:
            self._transport.write(b"".join(gathered))

    def _close(self) -> None:
        self._flush()
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def shut(self) -> None:
        """Close when idle, cut streams."""
        self._close()


class HttpServer:
    """Listens and serves `handler` on every connection."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen; returns the port (a free one for 0). OSError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), host, port, ssl=tls, backlog=1024)
        address: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return address[1]

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.shut()
        if self._server is not None:
            await self._server.wait_closed()
