"""Which kinds of objects an API server has (kubernetes.io "API discovery")."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import msgspec

from koordsched.api.decoding import DecodeError, Decoder
from koordsched.client.errors import Ambiguous, ApiError, raise_for_status
from koordsched.client.transport import Transport

T = TypeVar("T")


class Listable(NamedTuple):
    """A resource that can be listed. `path`: of the collection, over all namespaces."""

    path: str
    plural: str
    group: str
    api_version: str
    kind: str

    @property
    def qualified(self) -> str:
        """`plural.group`, or the plural alone in the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class _Resource(msgspec.Struct):
    name: str
    kind: str
    verbs: list[str] = []


class _Resources(msgspec.Struct):
    resources: list[_Resource] = []


class _Version(msgspec.Struct, rename="camel"):
    group_version: str


class _Group(msgspec.Struct, rename="camel"):
    name: str
    versions: list[_Version] = []
    preferred_version: _Version | None = None


class _Groups(msgspec.Struct):
    groups: list[_Group] | None = None


async def listable(transport: Transport) -> tuple[list[Listable], list[str]]:
    """Every resource that can be listed, each in the version that the server prefers; and which APIs do not answer.

    Raises ClientError if the server does not answer at all.
    """
    found = await _resources(transport, "/api/v1", "", "v1")
    silent: list[str] = []
    groups = _decoded(await _get(transport, "/apis"), _Groups, "/apis").groups or []
    for group in groups:
        version = group.preferred_version or (group.versions[0] if group.versions else None)
        if version is not None:
            try:
                found += await _resources(
                    transport, f"/apis/{version.group_version}", group.name, version.group_version
                )
            except (ApiError, Ambiguous) as error:
                # What an aggregated API server has is known to that server alone.
                silent.append(f"{version.group_version}: {error}")
    return found, silent


async def _resources(transport: Transport, path: str, group: str, version: str) -> list[Listable]:
    answer = _decoded(await _get(transport, path), _Resources, path)
    return [
        Listable(f"{path}/{resource.name}", resource.name, group, version, resource.kind)
        for resource in answer.resources
        if "list" in resource.verbs and "/" not in resource.name
    ]


async def _get(transport: Transport, path: str) -> bytes:
    return raise_for_status(await transport.request("GET", path)).body


def _decoded(body: bytes, kind: type[T], path: str) -> T:
    try:
        return Decoder(kind)(body)
    except DecodeError as error:
        raise Ambiguous(f"GET {path}: the response has no resources: {error}") from error
