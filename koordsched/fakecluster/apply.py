"""Server-side apply: merge by the schema, remember in managedFields who applied what, remove what is no longer applied.

Follows structured-merge-diff for the fields of managers that apply. Fields written by other means have no manager here,
so only two appliers can conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import orjson

from koordsched.fakecluster import errors
from koordsched.fakecluster.clock import rfc3339
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.resources import Object, Resource
from koordsched.fakecluster.schemas import PREFIX, Schema, resolve

if TYPE_CHECKING:
    from koordsched.fakecluster.registry import Registry

FieldSet = dict[str, Any]
"""metav1.FieldsV1: `f:name` fields, `k:{keys}` elements of map lists, `v:value` elements of sets."""

_IDENTITY = ("apiVersion", "kind")
_OWN_METADATA = ("name", "namespace", "managedFields", "resourceVersion", "uid", "creationTimestamp", "generation")


def applier(
    registry: Registry, resource: Resource, applied: Any, manager: str, subresource: str, force: bool
) -> Callable[[Object], Object]:
    """The change that applying `applied` as `manager` makes; it raises 409 on conflict. 400 for a bad document."""
    if not isinstance(applied, dict) or not isinstance(applied.get("metadata", {}), dict):
        raise errors.bad_request("the applied configuration must be an object with metadata")
    if "managedFields" in applied.get("metadata", {}):
        raise errors.bad_request("metadata.managedFields must be nil")
    schema = schema_of(registry, resource)
    now = rfc3339(registry.clock.now())

    if subresource == "status":
        applied = {k: v for k, v in applied.items() if k in ("metadata", "status", *_IDENTITY)}
    elif "status" in resource.subresources:
        # What this path does not write, its managers do not own.
        applied = {k: v for k, v in applied.items() if k != "status"}

    def change(current: Object) -> Object:
        owned = field_set(_managed_part(applied), schema)
        entries = list((current.get("metadata") or {}).get("managedFields") or ())
        mine = next((e for e in entries if _is_mine(e, manager, subresource)), None)
        others = [e for e in entries if e is not mine and e.get("operation") == "Apply"]
        if current:
            _check_conflicts(current, applied, schema, others, entries, force)
        out = merge(current, applied, schema)
        if mine is not None:
            kept = [e.get("fieldsV1") or {} for e in entries if e is not mine]
            out = _without(out, mine.get("fieldsV1") or {}, [owned, *kept], schema)
        entry = {
            "manager": manager,
            "operation": "Apply",
            "apiVersion": resource.api_version,
            "time": mine["time"] if mine is not None and mine.get("fieldsV1") == owned else now,
            "fieldsType": "FieldsV1",
            "fieldsV1": owned,
        }
        if subresource:
            entry["subresource"] = subresource
        meta = dict(out.get("metadata") or {})
        meta["managedFields"] = [entry if e is mine else e for e in entries] if mine is not None else [*entries, entry]
        return {**out, "metadata": meta}

    return change


def _is_mine(entry: Object, manager: str, subresource: str) -> bool:
    return (
        entry.get("manager") == manager
        and entry.get("operation") == "Apply"
        and (entry.get("subresource") or "") == subresource
    )


def schema_of(registry: Registry, resource: Resource) -> Schema:
    """The schema of a kind, built in or custom."""
    if resource.definition:
        return {"$ref": PREFIX + resource.definition}
    return registry.strategy(resource).schema(resource)


def _managed_part(applied: Object) -> Object:
    part = {k: v for k, v in applied.items() if k not in _IDENTITY}
    part["metadata"] = {k: v for k, v in (applied.get("metadata") or {}).items() if k not in _OWN_METADATA}
    if not part["metadata"]:
        del part["metadata"]
    return part


def _property(schema: Schema, name: str) -> Schema:
    declared = (schema.get("properties") or {}).get(name)
    if isinstance(declared, dict):
        return declared
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        return extra
    if name == "metadata":
        return {"$ref": PREFIX + "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    return {}


def _list_keys(schema: Schema) -> list[str] | None:
    return list(schema["x-kubernetes-list-map-keys"]) if schema.get("x-kubernetes-list-type") == "map" else None


_KEY_DEFAULTS = {"protocol": "TCP"}


def _element_key(element: Any, keys: list[str]) -> str:
    """The `k:` name of an element; a key with a default may be left out by the applier."""
    values = {k: element.get(k, _KEY_DEFAULTS.get(k)) for k in sorted(keys)} if isinstance(element, dict) else {}
    return "k:" + orjson.dumps({k: v for k, v in values.items() if v is not None}).decode()


def _atomic(schema: Schema) -> bool:
    return schema.get("x-kubernetes-map-type") == "atomic"


def field_set(value: Any, schema: Schema) -> FieldSet:
    """The fields that a value sets."""
    holder, schema = schema, resolve(schema)
    if isinstance(value, dict) and not _atomic(schema) and not _atomic(holder):
        return {f"f:{k}": field_set(v, _property(schema, k)) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        keys = _list_keys(schema)
        if keys is not None:
            items = schema.get("items") or {}
            return {_element_key(e, keys): {".": {}, **field_set(e, items)} for e in value}
        if schema.get("x-kubernetes-list-type") == "set":
            return {"v:" + orjson.dumps(e).decode(): {} for e in value}
    return {}


def merge(current: Any, applied: Any, schema: Schema) -> Any:
    """`applied` over `current`; neither is changed."""
    holder, schema = schema, resolve(schema)
    if isinstance(applied, dict) and isinstance(current, dict) and not _atomic(schema) and not _atomic(holder):
        out = dict(current)
        for key, value in applied.items():
            if value is None:
                out.pop(key, None)
            else:
                out[key] = merge(current.get(key), value, _property(schema, key))
        return out
    if isinstance(applied, list) and isinstance(current, list):
        keys = _list_keys(schema)
        if keys is not None:
            items = schema.get("items") or {}
            places = {_element_key(e, keys): i for i, e in enumerate(current)}
            merged = list(current)
            for element in applied:
                place = places.get(_element_key(element, keys))
                if place is None:
                    merged.append(element)
                else:
                    merged[place] = merge(current[place], element, items)
            return merged
        if schema.get("x-kubernetes-list-type") == "set":
            return [*current, *(e for e in applied if e not in current)]
    return applied


def _without(value: Any, gone: FieldSet, kept: list[FieldSet], schema: Schema) -> Any:
    """`value` without the fields of `gone` that no set in `kept` has."""
    schema = resolve(schema)
    if isinstance(value, dict):
        out = dict(value)
        for name, below in gone.items():
            key = name.removeprefix("f:")
            if not name.startswith("f:") or key not in out:
                continue
            holders = [k[name] for k in kept if name in k]
            if not holders:
                del out[key]
            elif below:
                out[key] = _without(out[key], below, holders, _property(schema, key))
        return out
    if isinstance(value, list) and (keys := _list_keys(schema)) is not None:
        result = []
        for element in value:
            name = _element_key(element, keys)
            below = gone.get(name)
            holders = [k[name] for k in kept if name in k]
            if below is None:
                result.append(element)
            elif holders:
                result.append(_without(element, below, holders, schema.get("items") or {}))
        return result
    if isinstance(value, list) and schema.get("x-kubernetes-list-type") == "set":
        names = [("v:" + orjson.dumps(e).decode(), e) for e in value]
        return [e for name, e in names if name not in gone or any(name in k for k in kept)]
    return value


def _check_conflicts(
    current: Object, applied: Object, schema: Schema, others: list[Object], entries: list[Object], force: bool
) -> None:
    """409 when a field changes that another applier owns; with force that applier loses the field instead."""
    changed = list(_changes(current, _managed_part(applied), schema, ()))
    conflicts: list[tuple[str, str]] = []
    for other in others:
        for path in changed:
            if _owns(other.get("fieldsV1") or {}, path):
                conflicts.append((str(other.get("manager")), _dotted(path)))
                if force:
                    other["fieldsV1"] = _disowned(other.get("fieldsV1") or {}, path)
    if force:
        entries[:] = [e for e in entries if e.get("fieldsV1")]
        return
    if conflicts:
        lines = "; ".join(f'conflict with "{manager}": {path}' for manager, path in conflicts)
        causes = [
            {"reason": "FieldManagerConflict", "message": f'conflict with "{m}"', "field": p} for m, p in conflicts
        ]
        count = "1 conflict" if len(conflicts) == 1 else f"{len(conflicts)} conflicts"
        raise ApiStatusError(409, "Conflict", f"Apply failed with {count}: {lines}", {"causes": causes})


def _changes(current: Any, applied: Any, schema: Schema, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Paths of the leaves that applying would change."""
    holder, schema = schema, resolve(schema)
    if isinstance(applied, dict) and isinstance(current, dict) and not _atomic(schema) and not _atomic(holder):
        for key, value in applied.items():
            if key in current:
                yield from _changes(current[key], value, _property(schema, key), (*path, f"f:{key}"))
    elif isinstance(applied, list) and isinstance(current, list) and (keys := _list_keys(schema)) is not None:
        present = {_element_key(e, keys): e for e in current}
        for element in applied:
            name = _element_key(element, keys)
            if name in present:
                yield from _changes(present[name], element, schema.get("items") or {}, (*path, name))
    elif schema.get("x-kubernetes-list-type") != "set" and current != applied:
        yield path


def _owns(fields: FieldSet, path: tuple[str, ...]) -> bool:
    for name in path:
        if name not in fields:
            return False
        fields = fields[name]
    return True


def _disowned(fields: FieldSet, path: tuple[str, ...]) -> FieldSet:
    out = dict(fields)
    if len(path) == 1:
        out.pop(path[0], None)
    else:
        below = _disowned(out[path[0]], path[1:])
        if below:
            out[path[0]] = below
        else:
            del out[path[0]]
    return out


def _dotted(path: tuple[str, ...]) -> str:
    return "".join(f".{p[2:]}" if p.startswith("f:") else f"[{p[2:]}]" for p in path)
