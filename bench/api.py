"""Many requests to the API server at once, and what must be true of their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from urllib.parse import quote

import msgspec
import orjson

from bench.manifests import Manifest
from koordsched.client.errors import ClientError
from koordsched.client.transport import JSON, MERGE_PATCH, Transport
from koordsched.plugins import KINDS

IN_FLIGHT = 64
DEFINED_WITHIN = 30
"""Seconds until a custom resource must be served once it is defined."""

_COLLECTIONS = {
    **{(kind.api_version, kind.name): (f"/{kind.api}", kind.plural) for kind in KINDS.values()},
    ("v1", "ConfigMap"): ("/api/v1", "configmaps"),
    ("scheduling.k8s.io/v1", "PriorityClass"): ("/apis/scheduling.k8s.io/v1", "priorityclasses"),
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): ("/apis/resource.k8s.io/v1", "resourceclaimtemplates"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): (
        "/apis/apiextensions.k8s.io/v1",
        "customresourcedefinitions",
    ),
}
"""By API version and kind: there are two PodGroups."""


class RequestRefused(Exception):
    """The API server answered with an error; the message is ready for the user."""


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


def collection(manifest: Manifest) -> str:
    """The path where objects like this one are created. Raises KeyError for a kind that no workload uses."""
    api, plural = _COLLECTIONS[manifest["apiVersion"], manifest["kind"]]
    namespace = manifest["metadata"].get("namespace")
    return f"{api}/namespaces/{quote(namespace)}/{plural}" if namespace else f"{api}/{plural}"


class Api:
    """Creates, deletes and lists."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def create_all(self, manifests: Iterable[Manifest]) -> int:
        """Creates objects, many at a time; existing ones are fine. Returns how many. Raises RequestRefused."""
        return await self._all(("POST", collection(m), orjson.dumps(m)) for m in manifests)

    async def create_encoded(self, path: str, bodies: Iterable[bytes]) -> int:
        """The same for objects of one collection that are JSON already."""
        return await self._all(("POST", path, body) for body in bodies)

    async def create(self, manifest: Manifest) -> None:
        """Creates one object; it may exist already. Raises RequestRefused."""
        await self._one("POST", collection(manifest), orjson.dumps(manifest))

    async def version(self) -> str:
        """What the server calls itself. Raises RequestRefused."""
        return msgspec.json.decode(await self.get("/version"), type=_Version).git_version

    async def define(self, definition: Manifest) -> None:
        """Creates a custom resource definition and waits until it is served. Raises RequestRefused."""
        await self.create(definition)
        spec = definition["spec"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        for _ in range(DEFINED_WITHIN):
            if (await self.transport.request("GET", path)).status != 404:
                return
            await asyncio.sleep(1.0)
        raise RequestRefused(f"GET {path}: still not served after {DEFINED_WITHIN} s")

    async def delete_all(self, paths: Iterable[str]) -> int:
        """Deletes objects at once, without grace; those that are gone already are fine. Raises RequestRefused."""
        body = orjson.dumps({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
        return await self._all(("DELETE", path, body) for path in paths)

    async def delete(self, path: str) -> None:
        """Deletes one object. Raises RequestRefused."""
        await self.delete_all((path,))

    async def patch_all(self, paths: Iterable[str], patch: Manifest) -> int:
        """The same merge patch for many objects; those that are gone are fine. Raises RequestRefused."""
        body = orjson.dumps(patch)
        return await self._all(("PATCH", path, body) for path in paths)

    async def get(self, path: str) -> bytes:
        """One object, still encoded. Raises RequestRefused."""
        response = await self.transport.request("GET", path)
        if response.status >= 400:
            raise RequestRefused(f"GET {path}: {response.status} {response.body[:300].decode(errors='replace')}")
        return response.body

    async def list_all(self, path: str, selector: str = "") -> tuple[list[msgspec.Raw], str]:
        """All objects of a collection, still encoded, and the resource version; none if there is no such collection.

        Raises RequestRefused.
        """
        found: list[msgspec.Raw] = []
        query = {"limit": "500"} | ({"labelSelector": selector} if selector else {})
        while True:
            response = await self.transport.request("GET", path, query=query, timeout=60.0)
            if response.status == 404:
                return [], ""
            if response.status >= 400:
                raise RequestRefused(f"GET {path}: {response.status} {response.body[:300].decode(errors='replace')}")
            page = msgspec.json.decode(response.body, type=_List)
            found.extend(page.items or ())
            if not page.metadata.continue_:
                return found, page.metadata.resource_version
            query["continue"] = page.metadata.continue_

    async def _all(self, requests: Iterable[tuple[str, str, bytes]]) -> int:
        """Many requests, a bounded number under way."""
        upcoming = iter(requests)
        done = 0

        async def work() -> None:
            nonlocal done
            for method, path, body in upcoming:
                await self._one(method, path, body)
                done += 1

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(IN_FLIGHT):
                    group.create_task(work())
        except* RequestRefused as refused:
            raise refused.exceptions[0] from None
        return done

    async def _one(self, method: str, path: str, body: bytes) -> None:
        kind = MERGE_PATCH if method == "PATCH" else JSON
        while True:
            try:
                response = await self.transport.request(method, path, body=body, content_type=kind, timeout=60.0)
            except ClientError as error:
                raise RequestRefused(str(error)) from error
            if response.status != 429:
                break
            await asyncio.sleep(0.2)
        expected = {"POST": 409, "DELETE": 404, "PATCH": 404}[method]
        if response.status >= 400 and response.status != expected:
            raise RequestRefused(f"{method} {path}: {response.status} {response.body[:300].decode(errors='replace')}")
