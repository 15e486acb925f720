"""Requests that are not HTTP, or not whole: refused briefly, with one line in the log at DEBUG.

Clients need no credentials for them, so they must neither fill the log nor look like a failure of this server.
"""

from __future__ import annotations

import logging
from typing import Any

from aiohttp import web
from aiohttp.http import HttpProcessingError
from yarl import URL

from koordsched.observability.endpoint import text_response
from koordsched.observability.escaping import printable

_log = logging.getLogger(__name__)

_MOST_SHOWN = 100
"""Characters of an error in the log."""
_UNREADABLE = URL("unreadable")
"""Stands for a target that cannot be read; requests have none without a slash."""
_CLIENTS_ERRORS = (web.RequestPayloadError, HttpProcessingError)


def refuse_malformed(server: web.Server) -> None:
    """To be called before the server's first connection.

    Around the application, because aiohttp reads the host and answers Expect before any middleware.
    """
    factory, handler = server.request_factory, server.request_handler

    def made(message: Any, *rest: Any) -> web.BaseRequest:
        try:
            return factory(message, *rest)
        except ValueError:  # the host of an absolute target; aiohttp would leave the connection open, and silent
            return factory(message._replace(url=_UNREADABLE), *rest)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if request.rel_url == _UNREADABLE:
            return _refusal(request, 400, "malformed target")
        if request.headers.get("Expect", "").lower() not in ("100-continue", ""):
            return _refusal(request, 417, "unknown expectation")
        try:
            return await handler(request)
        except _CLIENTS_ERRORS as error:
            return _refusal(request, 400, "malformed body", error)
        except ConnectionError as error:
            if request.transport is not None and not request.transport.is_closing():
                raise
            path = printable(request.path)
            _log.debug("%s hung up before the end of %s: %s", request.remote, path, error)
            return web.Response()  # cannot be sent any more

    server.request_factory, server.request_handler = made, handle


def _refusal(request: web.BaseRequest, status: int, text: str, error: Exception | None = None) -> web.Response:
    """Also ends the connection: where the next request begins is not known."""
    _log.debug("%s from %s%s", text, request.remote, f": {_kind(error)}" if error is not None else "")
    response = text_response(f"{text}\n", status)
    response.force_close()
    return response


def _other_errors(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, _CLIENTS_ERRORS):
        return True
    _log.debug("%s: %s", record.getMessage(), _kind(error))
    return False


REQUEST_LOG = logging.getLogger(f"{__name__}.server")
"""For aiohttp's server: what clients sent wrongly becomes one line at DEBUG, other errors stay as they are."""
REQUEST_LOG.addFilter(_other_errors)


def _kind(error: Exception) -> str:
    """The error without what it repeats of the request, which may be a token."""
    message = error.message.partition(":")[0] if isinstance(error, HttpProcessingError) else ""
    return printable(f"{type(error).__name__} {message[:_MOST_SHOWN]}".strip())
