"""A path and its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ANY_METHOD = ("*",)


@dataclass(frozen=True)
class Endpoint:
    """A handler at a path (aiohttp's patterns). `plain`: also served on a listener without TLS and access control."""

    path: str
    handler: Handler
    methods: tuple[str, ...] = ("GET",)
    plain: bool = False


def text_response(text: str, status: int = 200) -> web.Response:
    """Plain text that browsers do not interpret as anything else."""
    return web.Response(text=text, status=status, content_type="text/plain", charset="utf-8")


def not_found() -> web.Response:
    """The response to unknown paths."""
    return text_response("404 page not found\n", 404)
