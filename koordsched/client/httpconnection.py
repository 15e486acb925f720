"""One keep-alive HTTP/1.1 connection that carries one exchange at a time, at as little CPU as Python allows."""

from __future__ import annotations

import asyncio
import ssl
from typing import Protocol, cast

import httptools

from koordsched.client.errors import Ambiguous, ClientError, TooLong
from koordsched.client.transport import Done, Request, Response


class Exchange:
    """A request on its way. `deadline` is in seconds of the writer's monotonic clock."""

    __slots__ = ("deadline", "done", "generation", "refused_once", "request")

    def __init__(self, request: Request, done: Done, deadline: float, generation: int) -> None:
        self.request = request
        self.done = done
        self.deadline = deadline
        self.generation = generation
        self.refused_once = False


class ConnectionOwner(Protocol):
    """Called when exchanges end and when connections become free."""

    def answered(self, connection: HttpConnection, exchange: Exchange, response: Response) -> None:
        """The exchange has its response; the connection is free again, or closed."""
        ...

    def broken(self, connection: HttpConnection, exchange: Exchange | None, error: ClientError | None) -> None:
        """The connection is gone, with the exchange that was on it, if any."""
        ...


class HttpConnection(asyncio.Protocol):
    """The protocol side of a connection; its owner decides what is sent on it and when it is closed.

    The parser's callbacks for headers and body are bound methods of built-in containers: they run without a Python
    frame, so a response costs two calls into this class whatever its headers.
    """

    def __init__(self, owner: ConnectionOwner, tls: ssl.SSLContext | None) -> None:
        self._owner = owner
        self._transport: asyncio.WriteTransport | None = None
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._response: Response | None = None
        self._keep_alive = False
        self._received = 0
        self.on_header = self._headers.__setitem__
        self.on_body = self._body.append
        self._parser = httptools.HttpResponseParser(self)
        self.tls = tls
        self.exchange: Exchange | None = None
        self.idle_since = 0.0

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def start(self, exchange: Exchange, data: bytes) -> None:
        """Hands the bytes of a request to the socket."""
        assert self._transport is not None
        self.exchange = exchange
        self._received = 0
        self._transport.write(data)

    def expire(self, error: ClientError) -> None:
        """Ends the exchange under way with `error`, and the connection with it: a late answer would be misread."""
        self._fail(error)

    def close(self) -> None:
        """Closes at once; an exchange under way ends as Ambiguous."""
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.WriteTransport without being one.
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            # Nothing was asked: a load balancer's time-out page, say. What follows cannot be trusted.
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._response is None:
                self._fail(Ambiguous(f"{_name(exchange)}: the answer is not HTTP: {error}"))
                return
            self._keep_alive = False
        response = self._response
        if response is None:
            self._received += len(data)
            longest = exchange.request.longest(self._parser.get_status_code())
            if self._received > longest:
                self._fail(TooLong(_name(exchange), longest))
            return
        self._response = None
        self.exchange = None
        if not self._keep_alive or self._headers or self._body:
            self.close()
        self._owner.answered(self, exchange, response)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error)

    # --- httptools ---

    def on_message_complete(self) -> None:
        """Takes over one parsed message; interim ones (100 Continue) are dropped."""
        status = self._parser.get_status_code()
        if status >= 200:
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._headers.items()}
            self._response = Response(status, headers, self._body[0] if len(self._body) == 1 else b"".join(self._body))
            self._keep_alive = self._parser.should_keep_alive()
        self._headers.clear()
        self._body.clear()

    def _fail(self, error: Exception | None) -> None:
        exchange, self.exchange = self.exchange, None
        self.close()
        failure: ClientError | None = None
        if isinstance(error, ClientError):
            failure = error
        elif exchange is not None:
            failure = Ambiguous(f"{_name(exchange)}: the connection was lost before the answer ({error or 'closed'})")
        self._owner.broken(self, exchange, failure)


def _name(exchange: Exchange) -> str:
    return f"{exchange.request.method} {exchange.request.target}"
