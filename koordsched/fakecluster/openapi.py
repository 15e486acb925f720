"""OpenAPI v2 and v3 documents: the kinds' schemas, and of each path what clients look for.

kubectl asks two things of them: whether the server validates fields (the `fieldValidation` parameter of PATCH), and by
which keys lists merge.
"""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from koordsched.fakecluster import errors
from koordsched.fakecluster.messages import Request, Response, json_response
from koordsched.fakecluster.registry import Registry
from koordsched.fakecluster.resources import Object, Resource
from koordsched.fakecluster.schemas import PREFIX, Schema, definitions

_V3_PREFIX = "#/components/schemas/"
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")


class OpenApi:
    """Answers /openapi/…. Documents are kept until a resource comes or goes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._cache: dict[str, bytes] = {}
        self._epoch = -1

    def answer(self, request: Request, parts: list[str]) -> Response:
        """A GET below /openapi. 406 for the protobuf form of v2."""
        if self._epoch != self._registry.resource_epoch:
            self._cache.clear()
            self._epoch = self._registry.resource_epoch
        accept = request.headers.get("accept", "")
        if accept and "json" not in accept and "*/*" not in accept:
            raise errors.ApiStatusError(406, "NotAcceptable", "only application/json is served", {})
        path = "/".join(parts[1:])
        if path == "v2":
            return json_response(self._cached(path, self._version_2))
        if path == "v3":
            return json_response(self._cached(path, self._index))
        if parts[1] == "v3":
            group_version = "/".join(parts[2:])
            if any(r for r in self._registry.resources() if _path(r) == group_version):
                return json_response(self._cached(path, lambda: self._version_3(group_version)))
        raise errors.no_such_path()

    def _cached(self, key: str, make: Any) -> bytes:
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = orjson.dumps(make())
        return found

    def _index(self) -> Object:
        paths: Object = {}
        for resource in self._registry.resources():
            path = _path(resource)
            if path not in paths:
                document = self._cached(f"v3/{path}", lambda path=path: self._version_3(path))
                digest = hashlib.sha256(document).hexdigest()[:32].upper()
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
        return {"paths": paths}

    def _schemas(self, resources: list[Resource]) -> dict[str, Schema]:
        """The definitions that the resources need, by name."""
        found: dict[str, Schema] = {}
        waiting: list[Schema] = []
        for resource in resources:
            name = definition_name(resource)
            schema = definitions()[name] if resource.definition else self._custom(resource)
            found[name] = schema
            waiting.append(schema)
        while waiting:
            for name in _references(waiting.pop()):
                if name not in found and name in definitions():
                    found[name] = definitions()[name]
                    waiting.append(found[name])
        return found

    def _custom(self, resource: Resource) -> Schema:
        schema = dict(self._registry.strategy(resource).schema(resource)) or {"type": "object"}
        properties = dict(schema.get("properties") or {})
        properties |= {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"$ref": PREFIX + _OBJECT_META},
        }
        schema["properties"] = properties
        schema["x-kubernetes-group-version-kind"] = [
            {"group": resource.group, "version": resource.version, "kind": resource.kind}
        ]
        return schema

    def _version_3(self, group_version: str) -> Object:
        resources = [r for r in self._registry.resources() if _path(r) == group_version]
        schemas = {n: _for_version_3(s, n) for n, s in self._schemas(resources).items()}
        paths: Object = {}
        for resource in resources:
            paths |= _paths(resource, True)
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": "v1.36.0"},
            "paths": paths,
            "components": {"schemas": schemas},
        }

    def _version_2(self) -> Object:
        resources = self._registry.resources()
        paths: Object = {}
        for resource in resources:
            paths |= _paths(resource, False)
        return {
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": "v1.36.0"},
            "paths": paths,
            "definitions": self._schemas(resources),
        }


def definition_name(resource: Resource) -> str:
    """The name of a kind's schema: as published, or made from the group of a custom one."""
    if resource.definition:
        return resource.definition
    return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])


def _path(resource: Resource) -> str:
    return f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"


def _references(value: Any) -> set[str]:
    found: set[str] = set()
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref" and isinstance(item, str):
                found.add(item.removeprefix(PREFIX))
            else:
                found |= _references(item)
    elif isinstance(value, list):
        for item in value:
            found |= _references(item)
    return found


def _for_version_3(schema: Any, name: str = "") -> Any:
    """References point into components; what is of several types says so, as OpenAPI 3 can."""
    if name.endswith("intstr.IntOrString"):
        return {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}
    if name.endswith("resource.Quantity"):
        return {"oneOf": [{"type": "string"}, {"type": "number"}]}
    if isinstance(schema, dict):
        reference = schema.get("$ref")
        if isinstance(reference, str):
            rest = {k: v for k, v in schema.items() if k != "$ref"}
            target = {"$ref": _V3_PREFIX + reference.removeprefix(PREFIX)}
            # A reference stands alone in OpenAPI 3; what belongs to the field goes beside an allOf.
            return {"allOf": [target], **rest} if rest else target
        return {k: _for_version_3(v) for k, v in schema.items()}
    if isinstance(schema, list):
        return [_for_version_3(v) for v in schema]
    return schema


def _paths(resource: Resource, version_3: bool) -> Object:
    base = f"/{_path(resource)}"
    collection = (
        f"{base}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{base}/{resource.plural}"
    )
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    patches = ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"]
    if resource.definition:
        patches.append("application/strategic-merge-patch+json")
    reference = (_V3_PREFIX if version_3 else PREFIX) + definition_name(resource)
    answer: Object = {"description": "OK"}
    if version_3:
        answer["content"] = {"application/json": {"schema": {"$ref": reference}}}
    else:
        answer["schema"] = {"$ref": reference}

    def operation(action: str, writes: bool) -> Object:
        out: Object = {
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
            "responses": {"200": answer},
        }
        if writes:
            named = [_parameter(p, version_3) for p in _PARAMETERS]
            out["parameters"] = named
        if action == "patch":
            if version_3:
                out["requestBody"] = {"content": {p: {"schema": {"type": "object"}} for p in patches}}
            else:
                out["consumes"] = patches
        return out

    on_collection: Object = {}
    if "list" in resource.verbs:
        on_collection["get"] = operation("list", False)
    if "create" in resource.verbs:
        on_collection["post"] = operation("post", True)
    paths: Object = {collection: on_collection}
    if "get" in resource.verbs:
        paths[collection + "/{name}"] = {
            "get": operation("get", False),
            **({"put": operation("put", True)} if "update" in resource.verbs else {}),
            **({"patch": operation("patch", True)} if "patch" in resource.verbs else {}),
            **({"delete": operation("delete", False)} if "delete" in resource.verbs else {}),
        }
    return paths


def _parameter(name: str, version_3: bool) -> Object:
    typed: Object = {"schema": {"type": "string"}} if version_3 else {"type": "string"}
    return {"in": "query", "name": name, **typed}
