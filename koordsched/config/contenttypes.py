"""Which encodings of objects to ask the API server for."""

from __future__ import annotations

from koordsched.api.protobuf.fields import MEDIA_TYPE as PROTOBUF
from koordsched.config.wire import ClientConnectionConfiguration

JSON = "application/json"
KNOWN = (PROTOBUF, JSON)


def accept_header(connection: ClientConnectionConfiguration) -> str:
    """The Accept header of lists and watches: what the configuration names and we can read, in its order.

    As in client-go (`rest/request.go`), `contentType` stands in for `acceptContentTypes`, with anything else behind it.
    """
    named = connection.accept_content_types or f"{connection.content_type},{JSON}"
    types = [entry.partition(";")[0].strip() for entry in named.split(",")]
    readable = [type_ for type_ in KNOWN if type_ in types]
    readable.sort(key=types.index)
    return ",".join(readable) or JSON


def unknown_types(connection: ClientConnectionConfiguration) -> list[str]:
    """Content types in the configuration that we cannot read."""
    named = f"{connection.accept_content_types},{connection.content_type}".split(",")
    types = [entry.partition(";")[0].strip() for entry in named]
    return [type_ for type_ in dict.fromkeys(types) if type_ and type_ not in (*KNOWN, "*/*", "application/*")]
