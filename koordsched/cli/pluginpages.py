"""The pages that plugins declare, as endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping

import msgspec
from aiohttp import web

from koordsched.framework.declaration import NotFound, Page
from koordsched.framework.interface import Plugin
from koordsched.framework.profile import Profile
from koordsched.observability.endpoint import Endpoint, Handler, text_response
from koordsched.observability.escaping import printable
from koordsched.plugins import DECLARED

_encode = msgspec.json.Encoder().encode


def plugin_endpoints(profiles: Mapping[str, Profile], before_reading: Callable[[], None]) -> list[Endpoint]:
    """Those of all plugins that a profile enables. `before_reading` is called before a plugin is asked."""
    return [
        Endpoint(page.path, _handler(page, plugin, before_reading))
        for declared in DECLARED
        if (plugin := declared.plugin_in(profiles)) is not None
        for page in declared.pages
    ]


def _handler(page: Page, plugin: Plugin, before_reading: Callable[[], None]) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        before_reading()
        try:
            value = page.answer(plugin, {**request.query, **request.match_info})
            if isinstance(value, Generator):
                value = await returned(value, before_reading)
        except NotFound as error:
            return text_response(printable(str(error)), 404)
        return web.Response(body=_encode(value), content_type="application/json")

    return answer


async def returned(steps: Generator[None, None, object], before_reading: Callable[[], None] | None = None) -> object:
    """What the generator returns; between its steps others have their turn."""
    while True:
        if before_reading is not None:
            before_reading()
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        await asyncio.sleep(0)
