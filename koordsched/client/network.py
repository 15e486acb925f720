"""The transport over the network: aiohttp for reads and watches, the hot writer for everything that writes."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from yarl import URL

import koordsched
from koordsched.client.clock import Clock
from koordsched.client.connection import Connection
from koordsched.client.errors import (
    Ambiguous,
    ClientError,
    ConnectionFailure,
    Fenced,
    NotSent,
    error_from_status,
    whole,
)
from koordsched.client.settings import Settings, source_of
from koordsched.client.transport import DEFAULT_TIMEOUT, Done, Request, Response, Transport
from koordsched.client.writepool import CONNECT_TIMEOUT, WritePool

READ_BUFFER = 512 * 1024
"""Bytes of a watch that may pile up before the server is made to wait."""

KEEPALIVE = ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
"""A peer that vanished without closing the connection is noticed after 30 s of silence, not when the watch times out.
"""

USER_AGENT = f"koordsched/{koordsched.__version__} (linux/{platform.machine()})"


class NetworkTransport(Transport):
    """One API server over HTTP or HTTPS. Make it with `open`, inside the running loop."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Compressing a list costs server and client more than the bytes do inside a cluster's network.
            headers={"User-Agent": USER_AGENT, "Accept": "application/json", "Accept-Encoding": "identity"},
            auto_decompress=True,
            read_bufsize=READ_BUFFER,
        )
        self._writer = WritePool(connection, clock, USER_AGENT)
        self._proxied: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls,
        clock: Clock,
        *,
        kubeconfig: str = "",
        context: str | None = None,
        master: str = "",
        environ: Mapping[str, str] = os.environ,
    ) -> NetworkTransport:
        """Reads the connection settings (see `settings.source_of`). Raises ConnectionConfigError; connects later."""
        source = source_of(clock=clock, kubeconfig=kubeconfig, context=context, master=master, environ=environ)
        return cls(await Connection.open(source, clock), clock)

    @property
    def server(self) -> str:
        """The address of the API server, for logs."""
        return self._connection.base_url

    @property
    def settings(self) -> Settings:
        """The connection settings as they were read last."""
        return self._connection.settings

    async def websocket(self, target: str, protocol: str) -> aiohttp.ClientWebSocketResponse:
        """Opens a WebSocket at a target that speaks this protocol. Raises ApiError, ConnectionFailure."""
        connection = self._connection
        tls: dict[str, Any] = {"ssl": connection.tls} if connection.tls is not None else {}
        if connection.settings.server_name:
            tls["server_hostname"] = connection.settings.server_name
        headers = {"Authorization": connection.settings.authorization} if connection.settings.authorization else {}
        try:
            async with asyncio.timeout(DEFAULT_TIMEOUT):
                opened: aiohttp.ClientWebSocketResponse = await self._session.ws_connect(
                    URL(connection.base_url + target, encoded=True),
                    protocols=(protocol,),
                    headers=headers,
                    proxy=connection.settings.proxy,
                    max_msg_size=0,
                    **tls,
                )
                return opened
        except aiohttp.WSServerHandshakeError as error:
            raise error_from_status(b"", error.status) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _failure(Request("GET", target), error) from error

    async def _request(self, request: Request) -> Response:
        if request.method == "GET" or self._connection.settings.proxy:
            return await self._exchange(request)
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def done(outcome: Response | ClientError) -> None:
            if answer.done():
                return
            if isinstance(outcome, Response):
                answer.set_result(outcome)
            else:
                answer.set_exception(outcome)

        self._writer.send(request, done)
        return await answer

    def send(self, request: Request, done: Done) -> None:
        if not self._connection.settings.proxy:
            self._writer.send(request, done)
            return
        task = asyncio.get_running_loop().create_task(self._send_proxied(request, done))
        self._proxied.add(task)
        task.add_done_callback(self._proxied.discard)

    async def _send_proxied(self, request: Request, done: Done) -> None:
        """The write pool does not support proxies."""
        outcome: Response | ClientError
        try:
            if request.fence is not None and not request.fence():
                raise Fenced(f"{request.method} {request.target} withheld: not the leader")
            outcome = await self._exchange(request)
        except ClientError as error:
            outcome = error
        except asyncio.CancelledError:
            done(Ambiguous(f"{request.method} {request.target}: the connection was dropped"))
            raise
        done(outcome)

    async def _exchange(self, request: Request) -> Response:
        async with self._open(request) as response:
            try:
                body = await whole(response.content.iter_any(), request.longest(response.status), _name(request))
                return Response(response.status, _lower(response.headers), body)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise _failure(request, error) from error

    @asynccontextmanager
    async def _stream(self, request: Request) -> AsyncIterator[_NetworkStream]:
        async with self._open(request) as response:
            transport = response.connection.transport if response.connection else None
            if transport is not None and (raw := transport.get_extra_info("socket")) is not None:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in KEEPALIVE:
                    raw.setsockopt(socket.IPPROTO_TCP, option, value)
            yield _NetworkStream(request, response)

    @asynccontextmanager
    async def _open(self, request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """The head of a response; refused credentials are renewed once."""
        connection = self._connection
        connection.refresh_if_due()
        generation = connection.generation
        response = await self._start(request)
        try:
            if response.status == 401:
                response.close()
                await connection.refresh(generation)
                response = await self._start(request)
            yield response
        finally:
            # Back to the pool if the response was read to its end; what is left of a watch is not worth reading.
            if response.content.at_eof():
                response.release()
            else:
                response.close()

    async def _start(self, request: Request) -> aiohttp.ClientResponse:
        connection = self._connection
        settings = connection.settings
        headers = dict(request.headers or {})
        if settings.authorization:
            headers["Authorization"] = settings.authorization
        if request.body:
            headers["Content-Type"] = request.content_type
        tls: dict[str, Any] = {}
        if connection.tls is not None:
            tls = {"ssl": connection.tls, "server_hostname": connection.server_name}
        try:
            return await self._session.request(
                request.method,
                URL(connection.base_url + request.target, encoded=True),
                data=request.body or None,
                headers=headers,
                allow_redirects=False,
                proxy=settings.proxy,
                timeout=aiohttp.ClientTimeout(total=request.timeout, sock_connect=CONNECT_TIMEOUT),
                **tls,
            )
        except aiohttp.ClientSSLError as error:
            connection.suspect()
            raise _failure(request, error) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _failure(request, error) from error

    def drop_connections(self) -> None:
        self._writer.drop_connections()
        for task in self._proxied:
            task.cancel()

    async def close(self) -> None:
        await self._writer.close()
        self.drop_connections()
        await asyncio.gather(*self._proxied, return_exceptions=True)
        await self._session.close()
        await self._connection.close()


class _NetworkStream:
    def __init__(self, request: Request, response: aiohttp.ClientResponse) -> None:
        self._request = request
        self._response = response
        self.status = response.status
        self.headers = _lower(response.headers)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _failure(self._request, error) from error


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _name(request: Request) -> str:
    return f"{request.method} {request.target}"


def _failure(request: Request, error: Exception) -> ConnectionFailure:
    """Sorts aiohttp's errors by whether the server can have seen the request."""
    name = _name(request)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return NotSent(f"{name}: cannot connect to {error.host}:{error.port}: {error.certificate_error}")
    if isinstance(error, aiohttp.ClientConnectorError):
        return NotSent(f"{name}: cannot connect to {error.host}:{error.port}: {error.os_error}")
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return NotSent(f"{name}: cannot connect: {error}")
    if isinstance(error, TimeoutError):
        return Ambiguous(f"{name}: no answer within {request.timeout:g} s")
    return Ambiguous(f"{name}: {error or type(error).__name__}")
