"""The HTTP endpoints (core spec 2.4): health, metrics, debugging pages.

Handlers run on the scheduler's own loop, between its cycles, because they read its state; so each of them is short or
gives the loop its turn.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from aiohttp import web, web_response

from koordsched.observability.access import AccessControl
from koordsched.observability.endpoint import Endpoint, not_found
from koordsched.observability.listening import MOST_CONNECTIONS, Listening
from koordsched.observability.malformed import REQUEST_LOG, refuse_malformed
from koordsched.observability.servingtls import ServingError

_log = logging.getLogger(__name__)

_MAX_BODY = 1 << 20
_KEEPALIVE = 75.0
_SHUTDOWN = 3.0

# What aiohttp answers before there is a request for `_finish_headers`: versions of libraries would help attackers.
web_response.SERVER_SOFTWARE = "koordsched"  # type: ignore[attr-defined]

Middleware = Callable[..., Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Listener:
    """Where to listen.

    With `tls`, requests pass `access` first (None: only the health endpoints may be read). Without, only
    `plain` endpoints are served, to all clients. `most`: connections at a time.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    access: AccessControl | None = None
    most: int = MOST_CONNECTIONS


class EndpointServer:
    """Serves endpoints on one or more listeners, from `start` to `stop`."""

    def __init__(self, endpoints: Sequence[Endpoint], listeners: Sequence[Listener]) -> None:
        self._endpoints = endpoints
        self._listeners = listeners
        self._runners: list[web.AppRunner] = []
        self._listening: list[Listening] = []

    async def start(self) -> None:
        """Opens the listeners. Raises ServingError if one cannot be opened; then none stays open."""
        for listener in self._listeners:
            runner = web.AppRunner(
                self._application(listener),
                access_log=None,
                keepalive_timeout=_KEEPALIVE,
                shutdown_timeout=_SHUTDOWN,
                logger=REQUEST_LOG,
                auto_decompress=False,  # no endpoint takes a compressed body
            )
            self._runners.append(runner)
            try:
                await runner.setup()
                assert runner.server is not None, "set up"
                refuse_malformed(runner.server)
                listening = Listening(runner.server, listener.tls, listener.most)
                await listening.start(listener.host, listener.port)
                self._listening.append(listening)
            except OSError as error:
                await self.stop()
                raise ServingError(f"cannot listen on {listener.host}:{listener.port}: {error}") from error
        _log.info("Serving on %s", ", ".join(f"{host}:{port}" for host, port in self.addresses))

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of every listening socket."""
        return [address for listening in self._listening for address in listening.addresses]

    async def stop(self) -> None:
        """Closes everything; requests under way have a few seconds to end."""
        listening, self._listening = self._listening, []
        for each in listening:
            await each.stop()
        runners, self._runners = self._runners, []
        for runner in runners:
            await runner.cleanup()

    def _application(self, listener: Listener) -> web.Application:
        middlewares: list[Middleware] = [_known_errors]
        if listener.tls is not None:
            access = listener.access or AccessControl(None, None)
            middlewares.insert(0, access.middleware())
        application = web.Application(middlewares=middlewares, client_max_size=_MAX_BODY)
        application.on_response_prepare.append(_finish_headers)
        for endpoint in self._endpoints:
            if listener.tls is not None or endpoint.plain:
                for method in endpoint.methods:
                    application.router.add_route(method, endpoint.path, endpoint.handler)
                    if method == "GET":
                        application.router.add_route("HEAD", endpoint.path, endpoint.handler)
        return application


@web.middleware
async def _known_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return not_found()


async def _finish_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Cache-Control"] = "no-cache, private"
    response.headers["X-Content-Type-Options"] = "nosniff"
    # Versions of libraries would only help attackers.
    response.headers["Server"] = "koordsched"
