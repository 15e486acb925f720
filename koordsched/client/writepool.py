"""The writer for bindings, events and status patches: a pool of keep-alive connections without per-request tasks.

An aiohttp POST costs several times the CPU of everything else a binding needs; this one builds the head from a
prepared part, writes it with one call and parses with httptools. One timer watches over all time-outs.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Coroutine
from typing import Any

from aiohappyeyeballs import start_connection

from koordsched.client.clock import Clock
from koordsched.client.connection import Connection
from koordsched.client.errors import Ambiguous, ClientError, Fenced, NotSent
from koordsched.client.httpconnection import Exchange, HttpConnection
from koordsched.client.transport import Done, Request, Response

CONNECT_TIMEOUT = 10.0
"""Seconds a TCP and TLS handshake may take."""

NEXT_ADDRESS = 0.25
"""Seconds that an address of the server may be silent before the next one is asked, too (RFC 8305, as in aiohttp)."""

TICK = 0.1
"""Seconds between looks at the deadlines of requests under way: the accuracy of time-outs."""

IDLE_TICK = 10.0
"""Seconds between looks at idle connections."""

IDLE_TIMEOUT = 60.0
"""Seconds after which an unused connection is closed; API servers close theirs after 90, and a request written into
a connection that the server is closing ends as Ambiguous."""


class WritePool:
    """Sends requests on pooled connections. It opens as many as there are requests under way: callers bound those."""

    def __init__(self, connection: Connection, clock: Clock, user_agent: str) -> None:
        self._connection = connection
        self._clock = clock
        self._user_agent = user_agent
        self._loop = asyncio.get_running_loop()
        self._idle: list[HttpConnection] = []
        self._busy: set[HttpConnection] = set()
        self._waiting: deque[Exchange] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._closed = False
        self._all_gone = asyncio.Event()
        self._head_generation = -1
        self._prefix = ""
        self._head = ""

    def send(self, request: Request, done: Done) -> None:
        """Starts a request; `done` gets a Response of any status, or NotSent, Ambiguous or Fenced.

        Raises ValueError for a target that does not belong in a request line.
        """
        target = request.target
        if not target.isascii() or not target.isprintable() or " " in target:
            raise ValueError(f"request target not encoded: {target!r}")
        connection = self._connection
        connection.refresh_if_due()
        now = self._clock.monotonic()
        exchange = Exchange(request, done, now + request.timeout, connection.generation)
        self._dispatch(exchange)
        if self._timer is None or self._timer_at > now + 2 * TICK:
            self._set_timer(TICK)

    def drop_connections(self) -> None:
        """Aborts every connection: what is under way ends as Ambiguous, bytes not yet out of this process are lost."""
        for connection in [*self._idle, *self._busy]:
            connection.close()

    async def close(self) -> None:
        """Aborts what is under way and waits until every connection is gone."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._fail_waiting("the writer was closed")
        self.drop_connections()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._busy or self._idle:
            await self._all_gone.wait()

    # --- sending ---

    def _dispatch(self, exchange: Exchange) -> None:
        if self._closed:
            self._loop.call_soon(exchange.done, NotSent("the writer is closed"))
            return
        tls = self._connection.tls
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.tls is tls:
                if not self._start(connection, exchange):
                    self._idle.append(connection)
                return
            connection.close()
        self._waiting.append(exchange)
        if self._opening < len(self._waiting):
            self._opening += 1
            self._spawn(self._open())

    def _start(self, connection: HttpConnection, exchange: Exchange) -> bool:
        """Writes a request; False if its fence withheld it, which leaves the connection free."""
        request = exchange.request
        if request.fence is not None and not request.fence():
            self._loop.call_soon(exchange.done, Fenced(f"{request.method} {request.target} withheld: not the leader"))
            return False
        if self._head_generation != self._connection.generation:
            self._build_head()
        body = request.body
        head = (
            f"{request.method} {self._prefix}{request.target}{self._head}"
            f"Content-Type: {request.content_type}\r\nContent-Length: {len(body)}\r\n"
        )
        if request.headers:
            head += "".join([f"{name}: {value}\r\n" for name, value in request.headers.items()])
        self._busy.add(connection)
        connection.start(exchange, (head + "\r\n").encode("latin-1") + body)
        return True

    def _build_head(self) -> None:
        settings = self._connection.settings
        self._head_generation = self._connection.generation
        self._prefix = settings.server.path
        self._head = (
            f" HTTP/1.1\r\nHost: {settings.server.netloc.rpartition('@')[2]}\r\nUser-Agent: {self._user_agent}\r\n"
            "Accept: application/json\r\n"
        )
        if settings.authorization:
            self._head += f"Authorization: {settings.authorization}\r\n"

    async def _open(self) -> None:
        target = self._connection
        tls = target.tls
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                addresses = await self._loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
                # uvloop asks one address after the other, each until the system gives up, which is long after we do.
                reached = await start_connection(addresses, happy_eyeballs_delay=NEXT_ADDRESS, loop=self._loop)
                _, connection = await self._loop.create_connection(
                    lambda: HttpConnection(self, tls), sock=reached, ssl=tls, server_hostname=target.server_name
                )
        except (OSError, TimeoutError, RuntimeError) as error:  # the last is uvloop's, of sockets that are just closed
            self._opening -= 1
            if isinstance(error, ssl.SSLError):
                target.suspect()
            self._not_opened(str(error) or f"no connection within {CONNECT_TIMEOUT:g} s")
            return
        except asyncio.CancelledError:
            self._opening -= 1
            raise
        self._opening -= 1
        if not connection.usable:
            # A load balancer without backends does this. No other connection is opened for the waiting request.
            self._not_opened("the connection was closed as soon as it was there")
            return
        self._released(connection)

    def _not_opened(self, reason: str) -> None:
        """Ends the requests for which no connection is being opened any more."""
        # The youngest still have attempts under way, and nothing is known of those.
        self._fail_waiting(f"cannot connect to {self._connection.base_url}: {reason}", but=self._opening)

    def _released(self, connection: HttpConnection) -> None:
        """Gives a free connection to the request that has waited longest, or keeps it for the next one."""
        if self._closed or not connection.usable:
            connection.close()
            return
        while self._waiting:
            if self._start(connection, self._waiting.popleft()):
                return
        connection.idle_since = self._clock.monotonic()
        self._idle.append(connection)
        if self._timer is None:
            self._set_timer(IDLE_TICK)

    def _fail_waiting(self, message: str, but: int = 0) -> None:
        """Ends the requests that wait for a connection, except (`but`) for this many that came last."""
        while len(self._waiting) > but:
            self._loop.call_soon(self._waiting.popleft().done, NotSent(message))

    # --- ConnectionOwner ---

    def answered(self, connection: HttpConnection, exchange: Exchange, response: Response) -> None:
        self._busy.discard(connection)
        self._released(connection)
        if response.status == 401 and not exchange.refused_once:
            exchange.refused_once = True
            self._spawn(self._resend(exchange))
            return
        exchange.done(response)

    def broken(self, connection: HttpConnection, exchange: Exchange | None, error: ClientError | None) -> None:
        self._busy.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._closed and not self._busy and not self._idle:
            self._all_gone.set()
        if exchange is not None:
            exchange.done(error or Ambiguous("the connection was lost"))

    async def _resend(self, exchange: Exchange) -> None:
        """Repeats a request refused with 401, which was not carried out, under newer credentials."""
        try:
            async with asyncio.timeout(exchange.deadline - self._clock.monotonic()):
                await self._connection.refresh(exchange.generation)
        except TimeoutError:
            exchange.done(NotSent(f"{_name(exchange)}: no new credentials in time"))
            return
        except asyncio.CancelledError:
            exchange.done(NotSent("the writer was closed"))
            raise
        self._dispatch(exchange)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- time-outs ---

    def _set_timer(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._clock.monotonic() + delay
        self._timer = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        for connection in [c for c in self._busy if c.exchange is not None and c.exchange.deadline <= now]:
            exchange = connection.exchange
            assert exchange is not None
            connection.expire(Ambiguous(f"{_name(exchange)}: no answer within {exchange.request.timeout:g} s"))
        for exchange in [e for e in self._waiting if e.deadline <= now]:
            self._waiting.remove(exchange)
            exchange.done(NotSent(f"{_name(exchange)}: no connection in time"))
        for connection in [c for c in self._idle if now - c.idle_since >= IDLE_TIMEOUT]:
            connection.close()
        if self._busy or self._waiting:
            self._set_timer(TICK)
        elif self._idle:
            self._set_timer(IDLE_TICK)


def _name(exchange: Exchange) -> str:
    return f"{exchange.request.method} {exchange.request.target}"
