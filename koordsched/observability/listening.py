"""A listener whose connections are capped, so that they cannot take the file descriptors of the API client.

Beyond the cap nothing is accepted, so what comes waits with the kernel. The oldest connection without a request makes
room: probes get through although others hold connections that they do not use.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import Any

from aiohttp import web

_log = logging.getLogger(__name__)

MOST_CONNECTIONS = 128
"""At a time, per listener, those in a TLS handshake included."""

HANDSHAKE = 10.0
"""Seconds that a TLS handshake may take."""

OUT_OF_DESCRIPTORS = 0.5
"""Seconds to wait when the system has no file descriptor left."""


class Listening:
    """Accepts connections for an aiohttp server, from `start` to `stop`."""

    def __init__(self, server: web.Server, tls: ssl.SSLContext | None, most: int = MOST_CONNECTIONS) -> None:
        self._server = server
        self._tls = tls
        self._most = most
        self._handshakes: set[asyncio.Task[None]] = set()
        self._eased = asyncio.Event()
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._open: dict[Any, None] = {}
        made, lost = server.connection_made, server.connection_lost

        def connection_made(handler: Any, transport: Any) -> None:
            self._open[handler] = None
            made(handler, transport)

        def connection_lost(handler: Any, exc: BaseException | None = None) -> None:
            self._open.pop(handler, None)
            self._eased.set()
            lost(handler, exc)

        # The server itself keeps connections until their last request has ended.
        server.connection_made = connection_made  # type: ignore[method-assign]
        server.connection_lost = connection_lost  # type: ignore[method-assign]

    async def start(self, host: str, port: int) -> None:
        """Raises OSError if it cannot listen there."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                listening = socket.socket(family, kind, protocol)
                self._sockets.append(listening)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                _bind(listening, address)
                listening.listen(128)
                listening.setblocking(False)
        except OSError:
            await self.stop()
            raise
        self._accepting = [loop.create_task(self._accept(listening)) for listening in self._sockets]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of every listening socket."""
        return [listening.getsockname()[:2] for listening in self._sockets]

    async def stop(self) -> None:
        """Accepts no more; connections that are there stay."""
        tasks = [*self._accepting, *self._handshakes]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listening in self._sockets:
            listening.close()
        self._sockets = []

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room()
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                _log.warning("cannot accept connections: %s", error)
                await asyncio.sleep(OUT_OF_DESCRIPTORS)
                continue
            task = loop.create_task(self._greet(connection))
            self._handshakes.add(task)
            task.add_done_callback(self._greeted)

    def _greeted(self, task: asyncio.Task[None]) -> None:
        self._handshakes.discard(task)
        self._eased.set()

    async def _greet(self, connection: socket.socket) -> None:
        timeout = HANDSHAKE if self._tls is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._server, connection, ssl=self._tls, ssl_handshake_timeout=timeout
            )
        except (OSError, ssl.SSLError) as error:
            connection.close()
            _log.debug("a connection came to nothing: %s", error)

    async def _room(self) -> None:
        """Returns when there is room for one more connection."""
        while len(self._open) + len(self._handshakes) >= self._most:
            self._eased.clear()
            idle = next((each for each in self._open if each._current_request is None), None)
            if idle is not None and idle.transport is not None:
                idle.transport.abort()  # a farewell in TLS would take as long as the client likes
            await self._eased.wait()


def _bind(listening: socket.socket, address: Any) -> None:
    """Raises OSError with the address in its text, as asyncio has it."""
    try:
        listening.bind(address)
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise OSError(error.errno, f"error while attempting to bind on address {address!r}: {reason}") from None
