"""Requests that are repeated until they have been carried out, whatever happens to server and connections."""

from __future__ import annotations

import asyncio
import json

from koordsched.client.errors import ClientError
from koordsched.client.network import NetworkTransport
from tests.soak.population import Object

_AGAIN = 0.2
_WITHOUT_GRACE = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}


class Refused(Exception):
    """The API server does not want it, and will not later."""


class User:
    """Somebody who makes, changes and deletes objects."""

    def __init__(self, transport: NetworkTransport) -> None:
        self._transport = transport
        self.repeated = 0
        """Requests that had to be sent again."""

    async def create(self, collection: str, thing: Object) -> None:
        """Makes an object, unless it exists. Raises Refused."""
        await self._insist("POST", collection, thing, 409)

    async def annotate(self, path: str, annotations: dict[str, str | None]) -> None:
        """Sets annotations of an object; None removes one. An object that is gone is fine. Raises Refused."""
        await self.merge(path, {"metadata": {"annotations": annotations}})

    async def merge(self, path: str, patch: Object) -> None:
        """Changes fields of an object. One that is gone is fine. Raises Refused."""
        await self._insist("PATCH", path, patch, 404)

    async def delete(self, path: str, *, at_once: bool = False) -> None:
        """Deletes an object, or all objects of a collection; one that is gone is fine. Raises Refused."""
        await self._insist("DELETE", path, _WITHOUT_GRACE if at_once else None, 404)

    async def _insist(self, method: str, path: str, body: Object | None, fine: int) -> None:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = json.dumps(body).encode() if body is not None else b""
        while True:
            try:
                response = await self._transport.request(method, path, body=data, content_type=kind, timeout=30.0)
            except ClientError:
                response = None
            if response is not None:
                if response.status < 400 or response.status == fine:
                    return
                # A namespace of a moment ago may not be known yet; 409 on a delete is a write in between.
                if response.status < 500 and response.status not in (409, 429):
                    raise Refused(f"{method} {path}: {response.status} {response.body[:300].decode(errors='replace')}")
            self.repeated += 1
            await asyncio.sleep(_AGAIN)
