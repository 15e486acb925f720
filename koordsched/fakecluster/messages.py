"""Requests and responses, whatever carries them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from koordsched.fakecluster.errors import ApiStatusError


@dataclass(slots=True)
class Request:
    """One request. `path` is decoded and has no query; header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(slots=True)
class Response:
    """One response; a body that is an iterator is a stream, each item of which is sent at once."""

    status: int
    headers: dict[str, str]
    body: bytes | AsyncIterator[bytes]


JSON = "application/json"


def json_response(body: Any, status: int = 200, content_type: str = JSON) -> Response:
    """A response with a JSON body; bytes are taken as already encoded."""
    return Response(status, {"content-type": content_type}, body if isinstance(body, bytes) else orjson.dumps(body))


def text_response(text: str, status: int = 200) -> Response:
    """A response in plain text."""
    return Response(status, {"content-type": "text/plain; charset=utf-8"}, text.encode())


def error_response(error: ApiStatusError) -> Response:
    """The refusal as a `Status` body."""
    response = json_response(error.status(), error.code)
    if error.retry_after is not None:
        response.headers["retry-after"] = str(error.retry_after)
    return response
