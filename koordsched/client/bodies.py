"""Bodies of the objects that are created, in the encoding that the configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import orjson

from koordsched.api.protobuf.fields import MEDIA_TYPE as PROTOBUF
from koordsched.api.protobuf.fields import definition_of
from koordsched.client.transport import JSON, Request


class BodyFormat(Protocol):
    """An encoding of new objects of one kind."""

    content_type: str
    accept: str
    """The Accept header: a server that stores protobuf need not encode the object again for clients that accept it."""

    def __call__(self, obj: Mapping[str, Any]) -> bytes:
        """The body for an object as JSON has it, without apiVersion and kind."""
        ...


class JsonBody:
    """In JSON."""

    content_type = accept = JSON

    def __init__(self, api: str, kind: str) -> None:
        self._type = {"apiVersion": _api_version(api), "kind": kind}

    def __call__(self, obj: Mapping[str, Any]) -> bytes:
        return orjson.dumps({**self._type, **obj})


class ProtobufBody:
    """In protobuf, which takes an API server less than JSON; only built-in kinds have it."""

    content_type = PROTOBUF
    accept = f"{PROTOBUF},{JSON}"

    def __init__(self, api: str, kind: str) -> None:
        # Here, because the library is only loaded where it is used.
        from koordsched.api.protobuf.encoding import ProtobufEncoder
        from koordsched.api.protobuf.envelope import Envelope

        self._encode = ProtobufEncoder(definition_of(api, kind))
        self._envelope = Envelope(_api_version(api), kind)

    def __call__(self, obj: Mapping[str, Any]) -> bytes:
        return self._envelope(self._encode(obj))


def body_format(api: str, kind: str, content_type: str) -> BodyFormat:
    """The encoding of new objects of a built-in kind for a content type; JSON for all but protobuf.

    `api` is the path that the kind is served at (`api/v1`, `apis/events.k8s.io/v1`).
    """
    return ProtobufBody(api, kind) if content_type == PROTOBUF else JsonBody(api, kind)


def creation(path: str, encode: BodyFormat, obj: Mapping[str, Any]) -> Request:
    """The request that creates the object."""
    return Request("POST", path, encode(obj), encode.content_type, accept=encode.accept)


def _api_version(api: str) -> str:
    return api.partition("/")[2]
