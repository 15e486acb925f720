"""Strategic merge patch: merging lists by the merge keys that the schema of the kind declares.

Source: apimachinery `pkg/util/strategicpatch/patch.go`. Works on decoded JSON; neither argument is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]
"""An OpenAPI schema, as far as it says how lists are merged."""
Resolve = Callable[[Schema], Schema]
"""The schema itself, or what it refers to."""

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_DELETE_PRIMITIVE = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


class PatchError(ValueError):
    """The patch cannot be applied; the message says why."""


def strategic_merge(
    current: Any, patch: dict[str, Any], schema: Schema, resolve: Resolve = lambda schema: schema
) -> dict[str, Any]:
    """`patch` merged into `current`, an object of `schema`. Raises PatchError, as for an element without its key."""
    return _merge_map(current if isinstance(current, dict) else {}, patch, schema, resolve)


def _property(schema: Schema, name: str) -> Schema:
    declared = schema.get("properties", {}).get(name)
    if declared is not None:
        return dict(declared) if isinstance(declared, dict) else {}
    extra = schema.get("additionalProperties")
    return extra if isinstance(extra, dict) else {}


def _clean(value: Any) -> Any:
    """A patch's value that meets nothing to merge with: directives are spent, nulls delete nothing."""
    if isinstance(value, dict):
        return {
            k: _clean(v)
            for k, v in value.items()
            if v is not None and k not in (_DIRECTIVE, _RETAIN) and not k.startswith((_DELETE_PRIMITIVE, _ORDER))
        }
    if isinstance(value, list):
        return [_clean(v) for v in value if not (isinstance(v, dict) and v.get(_DIRECTIVE) == "delete")]
    return value


def _merge_map(current: dict[str, Any], patch: dict[str, Any], schema: Schema, resolve: Resolve) -> dict[str, Any]:
    schema = resolve(schema)
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {k: _clean(v) for k, v in patch.items() if k != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise PatchError(f"Unknown patch type: {directive}")
    out = dict(current)
    if isinstance(retained := patch.get(_RETAIN), list):
        out = {k: v for k, v in out.items() if k in retained}
    for key, value in patch.items():
        if key in (_DIRECTIVE, _RETAIN) or key.startswith(_ORDER):
            continue
        if key.startswith(_DELETE_PRIMITIVE):
            name = key.removeprefix(_DELETE_PRIMITIVE)
            if isinstance(out.get(name), list):
                out[name] = [v for v in out[name] if v not in value]
            continue
        if value is None:
            out.pop(key, None)
            continue
        declared = _property(schema, key)
        if isinstance(value, dict):
            target = out.get(key)
            merged = _merge_map(target if isinstance(target, dict) else {}, value, declared, resolve)
            if value.get(_DIRECTIVE) == "delete":
                out.pop(key, None)
            else:
                out[key] = merged
        elif isinstance(value, list):
            order = patch.get(_ORDER + key)
            out[key] = _merge_list(out.get(key), value, declared, order if isinstance(order, list) else None, resolve)
        else:
            out[key] = value
    for key, order in patch.items():
        if not key.startswith(_ORDER) or not isinstance(order, list):
            continue
        name = key.removeprefix(_ORDER)
        if name not in patch and isinstance(out.get(name), list):
            out[name] = _ordered(out[name], order, _property(schema, name).get("x-kubernetes-patch-merge-key"))
    return out


def _merge_list(
    current: Any, patch: list[Any], declared: Schema, order: list[Any] | None, resolve: Resolve
) -> list[Any]:
    strategy = str(declared.get("x-kubernetes-patch-strategy", ""))
    key = declared.get("x-kubernetes-patch-merge-key")
    if "merge" not in strategy.split(","):
        return [_clean(v) for v in patch]
    existing = current if isinstance(current, list) else []
    if key is None:
        merged = [*existing, *(v for v in patch if v not in existing)]
        return _ordered(merged, order, None) if order is not None else merged
    if any(isinstance(v, dict) and v.get(_DIRECTIVE) == "replace" for v in patch):
        return [
            _clean(v) for v in patch if not (isinstance(v, dict) and v.get(_DIRECTIVE) == "replace" and len(v) == 1)
        ]
    out = list(existing)
    for element in patch:
        if not isinstance(element, dict):
            raise PatchError(f"expected an object in a list merged by key {key!r}, got {element!r}")
        if element.get(key) is None:
            raise PatchError(f"map: {element} does not contain declared merge key: {key}")
        place = next((i for i, e in enumerate(out) if isinstance(e, dict) and e.get(key) == element[key]), None)
        if element.get(_DIRECTIVE) == "delete":
            out = [e for e in out if not (isinstance(e, dict) and e.get(key) == element[key])]
        elif place is None:
            out.append(_clean(element))
        else:
            out[place] = _merge_map(out[place], element, declared.get("items", {}), resolve)
    return _ordered(out, order, key) if order is not None else out


def _ordered(merged: list[Any], order: list[Any], key: str | None) -> list[Any]:
    """The list in the order of `$setElementOrder`; elements that only the server knows keep their relative places."""

    def identity(element: Any) -> Any:
        return element.get(key) if key is not None and isinstance(element, dict) else element

    wanted = [identity(o) for o in order]
    listed = [e for e in merged if identity(e) in wanted]
    listed.sort(key=lambda e: wanted.index(identity(e)))
    result: list[Any] = []
    pending = iter(listed)
    upcoming = next(pending, None)
    for element in merged:
        if identity(element) in wanted:
            if upcoming is not None:
                result.append(upcoming)
                upcoming = next(pending, None)
        else:
            result.append(element)
    return result
