"""Pages about elastic quotas: the trees with their loans, and quota by quota as upstream's plugin shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from koordsched.controllers.elasticquota.report import reporting
from koordsched.controllers.elasticquota.summary import summaries, summary
from koordsched.framework.profile import Profile
from koordsched.observability.endpoint import Endpoint, text_response
from koordsched.observability.escaping import printable
from koordsched.plugins.elasticquota.books import QuotaBooks
from koordsched.plugins.elasticquota.plugin import ElasticQuota

_encode = msgspec.json.Encoder().encode

_UPSTREAM = "/apis/v1/plugins/ElasticQuota/quotas"


def books_of(profiles: Mapping[str, Profile]) -> QuotaBooks | None:
    """The books of the first profile that has quotas."""
    for profile in profiles.values():
        plugin = profile.plugins.get(ElasticQuota.name)
        if isinstance(plugin, ElasticQuota):
            return plugin.books
    return None


def quota_endpoints(profiles: Mapping[str, Profile]) -> list[Endpoint]:
    """/debug/quota and the plugin's own paths (elasticquota spec 3.19); nothing if no profile has quotas."""
    books = books_of(profiles)
    if books is None:
        return []
    pages = _Pages(books)
    return [
        Endpoint("/debug/quota", pages.trees),
        Endpoint(_UPSTREAM, pages.all),
        Endpoint(_UPSTREAM + "/{name}", pages.one),
    ]


class _Pages:
    def __init__(self, books: QuotaBooks) -> None:
        self._books = books

    async def trees(self, request: web.Request) -> web.Response:
        """All trees, with loans."""
        steps = reporting(self._books)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return _json(end.value)
            await asyncio.sleep(0)

    async def all(self, request: web.Request) -> web.Response:
        """All quotas by name, or those of `?tree=<id>`; with pods for `?includePods=true`."""
        return _json(summaries(self._books, request.query.get("tree"), pods=_with_pods(request)))

    async def one(self, request: web.Request) -> web.Response:
        """One quota."""
        name = request.match_info["name"]
        quota = self._books.quota(name)
        if quota is None:
            return text_response(f"cannot find quota {printable(name)}", 404)
        return _json(summary(self._books, quota, pods=_with_pods(request)))


def _with_pods(request: web.Request) -> bool:
    return request.query.get("includePods") == "true"


def _json(value: Any) -> web.Response:
    return web.Response(body=_encode(value), content_type="application/json")
