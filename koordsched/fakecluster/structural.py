"""Structural schemas of custom kinds: pruning, defaulting, validation.

Source: apiextensions-apiserver `pkg/apiserver/schema` (pruning, defaulting); validation by the jsonschema library.
"""

from __future__ import annotations

import copy
import json
from functools import lru_cache
from typing import Any

from jsonschema import Draft4Validator
from jsonschema.exceptions import ValidationError

from koordsched.fakecluster.errors import FieldError, invalid_value, not_supported, required

Schema = dict[str, Any]

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_EMBEDDED = "x-kubernetes-embedded-resource"
_ROOT = ("apiVersion", "kind", "metadata")


def prune(value: Any, schema: Schema, root: bool = True, path: str = "") -> list[str]:
    """Remove from a decoded object what its schema does not specify, in place; returns the paths removed."""
    gone: list[str] = []
    if isinstance(value, dict):
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        kept = _ROOT if root or schema.get(_EMBEDDED) else ()
        for key in list(value):
            where = f"{path}.{key}" if path else key
            if key in properties and not (key in kept and root):
                gone += prune(value[key], properties[key], False, where)
            elif key in kept:
                continue
            elif isinstance(extra, dict):
                gone += prune(value[key], extra, False, where)
            elif extra is not True and not schema.get(_PRESERVE):
                del value[key]
                gone.append(where)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for i, item in enumerate(value):
            gone += prune(item, schema["items"], False, f"{path}[{i}]")
    return gone


def fill_defaults(value: Any, schema: Schema) -> None:
    """Set the defaults that a schema declares, in place; null counts as absent where it is not allowed."""
    if isinstance(value, dict):
        for name, declared in (schema.get("properties") or {}).items():
            if "default" in declared and (name not in value or (value[name] is None and not declared.get("nullable"))):
                value[name] = copy.deepcopy(declared["default"])
            if name in value:
                fill_defaults(value[name], declared)
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            for name, item in value.items():
                if name not in (schema.get("properties") or {}):
                    fill_defaults(item, extra)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            fill_defaults(item, schema["items"])


_COPIED = (
    "allOf", "anyOf", "enum", "exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength", "maxProperties",
    "maximum", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "not", "oneOf", "pattern", "required",
    "uniqueItems",
)  # fmt: skip


def _json_schema(schema: Any, root: bool = False) -> Any:
    """As plain JSON schema (draft 4, whose exclusive bounds are booleans, as in OpenAPI v3)."""
    if not isinstance(schema, dict):
        return schema
    out: Schema = {}
    for key in _COPIED:
        if key in schema:
            value = schema[key]
            if key in ("allOf", "anyOf", "oneOf") and isinstance(value, list):
                value = [_json_schema(v) for v in value]
            elif key == "not":
                value = _json_schema(value)
            if key == "required" and not value:
                continue
            out[key] = value
    kind = schema.get("type")
    if schema.get(_INT_OR_STRING):
        kind = ["integer", "string"]
    if kind:
        types = kind if isinstance(kind, list) else [kind]
        out["type"] = [*types, "null"] if schema.get("nullable") else types
    if schema.get("nullable") and isinstance(out.get("enum"), list) and None not in out["enum"]:
        out["enum"] = [*out["enum"], None]
    properties = schema.get("properties")
    if properties and not isinstance(properties, dict):
        out["properties"] = properties  # is no schema
    elif properties:
        skipped = _ROOT if root else ()
        out["properties"] = {k: _json_schema(v) for k, v in properties.items() if k not in skipped}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            out[key] = _json_schema(schema[key])
    return out


@lru_cache(maxsize=128)
def _compiled(schema: str) -> Draft4Validator:
    """Kept, since a definition's schemas are checked first and served later, and to check one takes long."""
    converted = _json_schema(json.loads(schema), root=True)
    Draft4Validator.check_schema(converted)
    return Draft4Validator(converted)


class Validator:
    """Validates objects of one schema."""

    def __init__(self, schema: Schema) -> None:
        """Raises jsonschema.SchemaError when the schema is not one."""
        self._validator = _compiled(json.dumps(schema))

    def errors(self, obj: Any) -> list[FieldError]:
        """What is wrong with an object, in the words of the real server where it has some."""
        return [e for problem in self._validator.iter_errors(obj) for e in _translate(problem)]


def _path(problem: ValidationError) -> str:
    text = ""
    for part in problem.absolute_path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


_BOUNDS = {
    "minimum": "should be greater than or equal to",
    "maximum": "should be less than or equal to",
    "multipleOf": "should be a multiple of",
    "minLength": "should be at least {} chars long",
    "maxLength": "should be at most {} chars long",
    "minItems": "should have at least {} items",
    "maxItems": "should have at most {} items",
    "pattern": "should match '{}'",
}
_NAMES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}


def _translate(problem: ValidationError) -> list[FieldError]:
    path = _path(problem)
    value: Any = problem.instance
    rule: Any = problem.validator_value
    kind = str(problem.validator)
    if kind == "required":
        missing = [name for name in rule if name not in value]
        return [required(f"{path}.{name}" if path else name) for name in missing]
    if kind == "type":
        wanted = rule[0] if isinstance(rule, list) else rule
        got = _NAMES.get(type(value), "null")
        text = f'{path} in body must be of type {wanted}: "{got}"'
        return [FieldError(path, "FieldValueTypeInvalid", invalid_value(path, got, text).text)]
    if kind == "enum":
        return [not_supported(path, value, [str(v) for v in rule])]
    if kind in _BOUNDS:
        words = _BOUNDS[kind]
        return [
            invalid_value(
                path, value, f"{path} in body " + (words.format(rule) if "{}" in words else f"{words} {rule}")
            )
        ]
    return [invalid_value(path, value, f"{path} in body {problem.message}")]
