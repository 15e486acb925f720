"""The published schemas of the built-in kinds: field names, types, list and merge keys."""

from __future__ import annotations

from functools import cache
from importlib import resources as package_files
from typing import Any

import orjson

Schema = dict[str, Any]

PREFIX = "#/definitions/"


@cache
def definitions() -> dict[str, Schema]:
    """All definitions by name (`data/openapi.json`). Shared: read only."""
    text = package_files.files("koordsched.fakecluster").joinpath("data/openapi.json").read_bytes()
    loaded: dict[str, Schema] = orjson.loads(text)
    return loaded


def resolve(schema: Schema) -> Schema:
    """The schema itself, or the definition it refers to."""
    reference = schema.get("$ref")
    return definitions().get(reference.removeprefix(PREFIX), {}) if isinstance(reference, str) else schema
