"""The representation that the client wants: whole objects, their metadata alone, or a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from koordsched.fakecluster import errors
from koordsched.fakecluster.messages import Request
from koordsched.fakecluster.resources import Object, Resource
from koordsched.fakecluster.store import Record
from koordsched.fakecluster.table import columns_of, table

if TYPE_CHECKING:
    from koordsched.fakecluster.registry import Registry

PLAIN = "plain"
TABLE = "Table"
PARTIAL = "PartialObjectMetadata"
PARTIAL_LIST = "PartialObjectMetadataList"


@dataclass(frozen=True, slots=True)
class Representation:
    """How objects are encoded for one request."""

    form: str = PLAIN
    include: str = "Metadata"
    """What a table row carries of its object: None, Metadata or Object."""


_PLAIN = Representation()


def negotiate(request: Request) -> Representation:
    """The first form in the Accept header that can be had; 406 when there is none."""
    accept = request.headers.get("accept", "")
    if not accept or accept in ("application/json", "*/*"):
        return _PLAIN
    for entry in accept.split(","):
        media, *parameters = [p.strip() for p in entry.split(";")]
        values = dict(p.split("=", 1) for p in parameters if "=" in p)
        wanted = values.get("as", "")
        if media not in ("application/json", "*/*", "application/*", "application/yaml"):
            continue
        if not wanted:
            return _PLAIN
        if values.get("g", "meta.k8s.io") != "meta.k8s.io" or values.get("v", "v1") != "v1":
            continue
        if wanted == TABLE:
            return Representation(TABLE, request.query.get("includeObject", "Metadata"))
        if wanted in (PARTIAL, PARTIAL_LIST):
            return Representation(PARTIAL)
    if "application/" not in accept and "*" not in accept:
        raise errors.ApiStatusError(
            406, "NotAcceptable", "only the following media types are accepted: application/json", {}
        )
    return _PLAIN


def partial(obj: Object) -> Object:
    """The object's metadata alone."""
    return {"kind": PARTIAL, "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def encoder(registry: Registry, resource: Resource, wanted: Representation) -> Callable[[Record], bytes]:
    """Encodes single objects (also those in watch events) as wanted."""
    if wanted.form == TABLE:
        columns = columns_of(registry, resource)
        return lambda record: orjson.dumps(
            table(columns, [registry.owned(resource, record)], wanted.include, registry.clock.now(), str(record.rv))
        )
    if wanted.form == PARTIAL:
        return lambda record: orjson.dumps(partial(record.obj()))
    if not resource.converted:
        return lambda record: record.data
    return lambda record: registry.body(resource, record)
