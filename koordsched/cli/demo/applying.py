"""Creating objects over HTTP, the way kubectl does: the server's discovery gives the path of each kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import orjson

from koordsched.api import core
from koordsched.cli.objectfiles import InputError, Sourced
from koordsched.client.transport import Transport

ZONE = "topology.kubernetes.io/zone"
_OK = (200, 201)


class _Nodes(msgspec.Struct):
    items: list[core.Node]


class Applier:
    """Creates objects on one API server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._resources: dict[str, dict[str, Any]] = {}

    async def create(self, objects: Iterable[Sourced]) -> int:
        """Creates them in order; returns how many. Raises InputError with the server's refusal."""
        count = 0
        for sourced in objects:
            path = await self._path(sourced)
            response = await self._transport.request("POST", path, body=orjson.dumps(sourced.obj))
            if response.status not in _OK:
                raise InputError(f"{sourced.where}: {_message(response.body)}")
            count += 1
        return count

    async def zones(self) -> dict[str, str]:
        """Node -> zone, of the nodes that have one."""
        response = await self._transport.request("GET", "/api/v1/nodes")
        nodes = msgspec.json.decode(response.body, type=_Nodes).items
        return {node.metadata.name: zone for node in nodes if (zone := node.metadata.labels.get(ZONE))}

    async def _path(self, sourced: Sourced) -> str:
        version = sourced.api_version
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if version not in self._resources:
            response = await self._transport.request("GET", root)
            listed = orjson.loads(response.body).get("resources", []) if response.status == 200 else []
            self._resources[version] = {entry["kind"]: entry for entry in listed if "/" not in entry["name"]}
        entry = self._resources[version].get(sourced.kind)
        if entry is None:
            raise InputError(f"{sourced.where}: the server does not have the kind {sourced.kind} in {version}")
        if entry["namespaced"]:
            return f"{root}/namespaces/{sourced.namespace or 'default'}/{entry['name']}"
        return f"{root}/{entry['name']}"


def _message(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")
