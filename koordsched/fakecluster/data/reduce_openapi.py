"""Makes `openapi.json` from the OpenAPI v2 document that Kubernetes publishes (api/openapi-spec/swagger.json).

    python koordsched/fakecluster/data/reduce_openapi.py swagger.json > koordsched/fakecluster/data/openapi.json

Kept: names, types, formats, required fields, list types and merge keys of the kinds that the embedded server serves.
Left out: all prose, all paths.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson

from koordsched.fakecluster.resources import builtin_resources

_KEPT = {
    "$ref", "additionalProperties", "format", "items", "properties", "required", "type",
    "x-kubernetes-int-or-string", "x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-map-type",
    "x-kubernetes-patch-merge-key", "x-kubernetes-patch-strategy", "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-unions", "x-kubernetes-group-version-kind",
}  # fmt: skip
_PREFIX = "#/definitions/"
_EXTRA_ROOTS = (
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
    "io.k8s.api.policy.v1.Eviction",
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.api.authentication.v1.TokenRequest",
)


def reduce(schema: dict[str, Any], top: bool) -> dict[str, Any]:
    """The schema without prose; group-version-kinds only where a whole kind is described."""
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key not in _KEPT or (key == "x-kubernetes-group-version-kind" and not top):
            continue
        if key == "properties":
            out[key] = {name: reduce(s, False) for name, s in sorted(value.items())}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            out[key] = reduce(value, False)
        else:
            out[key] = value
    return out


def references(schema: Any) -> set[str]:
    """Names of the definitions that a schema refers to."""
    found: set[str] = set()
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                found.add(value.removeprefix(_PREFIX))
            else:
                found |= references(value)
    elif isinstance(schema, list):
        for value in schema:
            found |= references(value)
    return found


def main(path: str) -> None:
    definitions = orjson.loads(Path(path).read_bytes())["definitions"]
    waiting = [*_EXTRA_ROOTS, *(r.definition for r in builtin_resources())]
    kept: dict[str, Any] = {}
    while waiting:
        name = waiting.pop()
        if name in kept:
            continue
        kept[name] = reduce(definitions[name], True)
        waiting.extend(references(kept[name]))
    sys.stdout.buffer.write(orjson.dumps(kept, option=orjson.OPT_SORT_KEYS))


if __name__ == "__main__":
    main(sys.argv[1])
