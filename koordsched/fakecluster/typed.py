"""Bodies of built-in kinds, checked against their published schema: types, unknown fields, nulls.

The schemas become msgspec structs, so that a body is checked at the speed of its decoding. As in Go, null means absent.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Annotated, Any

import msgspec
import orjson

from koordsched.fakecluster.preencoded import Preencoded, preencode
from koordsched.fakecluster.schemas import PREFIX, Schema, definitions, resolve

Object = dict[str, Any]

_INT32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
_INT64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_INT_OR_STRING = int | str
_MANAGED = "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_QUANTITY = int | float | str
_OPAQUE = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _QUANTITY,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _INT_OR_STRING,
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": str,
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": str,
    # Never looked into, so never decoded: kept as the bytes they came in.
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": msgspec.Raw,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": msgspec.Raw,
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps": dict[str, Any],
}


class WrongBody(ValueError):
    """The body does not decode into the kind: the message says what is wrong and where."""


@cache
def _struct(definition: str, strict: bool) -> Any:
    schema = definitions()[definition]
    fields, rename = [], {}
    for i, (name, declared) in enumerate(schema.get("properties", {}).items()):
        attribute = f"f{i}"
        rename[attribute] = name
        type_ = _type(declared, strict)
        # msgspec takes Raw in no union.
        fields.append((attribute, type_ if type_ is msgspec.Raw else type_ | None, None))
    return msgspec.defstruct(
        definition.rpartition(".")[2], fields, rename=rename, omit_defaults=True, forbid_unknown_fields=strict, gc=False
    )


def _type(schema: Schema, strict: bool) -> Any:
    reference = schema.get("$ref")
    if reference is not None:
        name = reference.removeprefix(PREFIX)
        if name in _OPAQUE:
            return _OPAQUE[name]
        target = definitions()[name]
        return _struct(name, strict) if target.get("properties") else _type(target, strict)
    kind = schema.get("type")
    if kind == "string":
        return _INT_OR_STRING if schema.get("format") == "int-or-string" else str
    if kind == "integer":
        return _INT32 if schema.get("format") == "int32" else _INT64
    if kind == "number":
        return float
    if kind == "boolean":
        return bool
    if kind == "array":
        return list[_type(schema["items"], strict)]  # type: ignore[misc]  # a type made at run time
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return dict[str, _type(schema["additionalProperties"], strict)]  # type: ignore[misc]  # as above
    return msgspec.Raw


@cache
def _decoder(definition: str, strict: bool) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_struct(definition, strict))


_encoder = msgspec.json.Encoder()


@cache
def _has_raw(definition: str) -> bool:
    """Whether the kind has opaque parts besides managedFields, which only JSON can carry over."""
    seen: set[str] = set()
    waiting = [definition]
    while waiting:
        name = waiting.pop()
        if name in seen or name == _MANAGED:
            continue
        seen.add(name)
        if name in _OPAQUE:
            if _OPAQUE[name] is msgspec.Raw:
                return True
            continue
        # A definition without properties is a type like any other, or an object of which nothing is known.
        for declared in definitions()[name].get("properties", {"": definitions()[name]}).values():
            inner = declared
            while isinstance(inner.get("items") or inner.get("additionalProperties"), dict):
                inner = inner.get("items") or inner["additionalProperties"]
            if "$ref" in inner:
                waiting.append(inner["$ref"].removeprefix(PREFIX))
            elif inner.get("type") in (None, "object"):
                return True
    return False


@cache
def _managed_fields(definition: str) -> tuple[str, str] | None:
    """The struct attributes that lead to metadata.managedFields."""
    attribute = _attribute(definition, "metadata")
    if attribute is None or definitions()[definition]["properties"]["metadata"].get("$ref") != PREFIX + OBJECT_META:
        return None
    inner = _attribute(OBJECT_META, "managedFields")
    return (attribute, inner) if inner is not None else None


def _attribute(definition: str, name: str) -> str | None:
    names = list(definitions()[definition].get("properties", {}))
    return f"f{names.index(name)}" if name in names else None


def decode(body: bytes, definition: str, opaque: bool = False) -> tuple[Object, list[str]]:
    """The object in `body` without nulls and without unknown fields, and the paths of the unknown fields.

    With `opaque`, metadata.managedFields stays encoded (an orjson.Fragment): it is the larger part of a real pod, and
    nothing reads it on the way to the store. Raises WrongBody when a value has the wrong type.
    """
    unknown: list[str] = []
    try:
        typed = _decoder(definition, True).decode(body)
    except msgspec.ValidationError:
        try:
            typed = _decoder(definition, False).decode(body)
        except msgspec.ValidationError as problem:
            raise WrongBody(str(problem).replace("$.", "").replace(" | null", "")) from None
        _collect_unknown(orjson.loads(body), {"$ref": PREFIX + definition}, "", unknown)
    if opaque:
        return _with_opaque_managed_fields(typed, definition), unknown
    obj: Object = orjson.loads(_encoder.encode(typed))
    return obj, unknown


def _with_opaque_managed_fields(typed: Any, definition: str) -> Object:
    path = _managed_fields(definition)
    meta = getattr(typed, path[0]) if path is not None else None
    managed = None
    if path is not None and meta is not None and (managed := getattr(meta, path[1])):
        setattr(meta, path[1], None)
    obj = _builtins(typed, definition)
    if managed:
        obj["metadata"]["managedFields"] = orjson.Fragment(_encoder.encode(managed))
    return obj


def _builtins(typed: Any, definition: str) -> Object:
    obj: Object = orjson.loads(_encoder.encode(typed)) if _has_raw(definition) else msgspec.to_builtins(typed)
    return obj


@cache
def _split(definition: str) -> tuple[msgspec.json.Decoder[Any], str, str] | None:
    """A strict decoder that leaves the spec encoded, the struct attribute of the spec, and the spec's definition."""
    declared = definitions()[definition].get("properties", {}).get("spec", {})
    attribute = _attribute(definition, "spec")
    if attribute is None or "$ref" not in declared:
        return None
    whole = _struct(definition, True)
    fields: list[tuple[str, Any, Any]] = [
        (f.name, msgspec.Raw if f.name == attribute else f.type, None) for f in msgspec.structs.fields(whole)
    ]
    rename = {f.name: f.encode_name for f in msgspec.structs.fields(whole)}
    name = f"Split{whole.__name__}"
    struct = msgspec.defstruct(name, fields, rename=rename, omit_defaults=True, forbid_unknown_fields=True, gc=False)
    return msgspec.json.Decoder(struct), attribute, declared["$ref"].removeprefix(PREFIX)


_KNOWN_SPECS = 256
"""Specs of recent requests that are remembered."""
_came_before = [0] * 4096
"""Hashes of encoded specs, each in the slot that it maps to: a spec that comes only once is not worth remembering."""


@lru_cache(_KNOWN_SPECS)
def _sealed_spec(encoded: bytes, definition: str) -> Preencoded:
    return preencode(_spec(encoded, definition))


def _spec(encoded: bytes, definition: str) -> Object:
    return _builtins(_decoder(definition, True).decode(encoded), definition)


def decode_new(body: bytes, definition: str) -> Object | None:
    """As `decode` with `opaque`, for a body in which nothing is unknown.

    A spec that came before, byte for byte, is returned pre-encoded and is not decoded again. None when the body has no
    spec or `decode` has a warning or an error about it.
    """
    split = _split(definition)
    if split is None:
        return None
    decoder, attribute, spec_definition = split
    try:
        typed = decoder.decode(body)
        raw = getattr(typed, attribute)
        if raw is None:
            return None
        encoded = bytes(raw)
        fingerprint = hash(encoded)
        slot = fingerprint % len(_came_before)
        if _came_before[slot] == fingerprint:
            spec: Object = _sealed_spec(encoded, spec_definition)
        else:
            _came_before[slot] = fingerprint
            spec = _spec(encoded, spec_definition)
    except ValueError:
        # Also of msgspec.ValidationError; the exact complaint comes from a decoding of the whole.
        return None
    setattr(typed, attribute, None)
    obj = _with_opaque_managed_fields(typed, definition)
    obj["spec"] = spec
    return obj


def _collect_unknown(value: Any, schema: Schema, path: str, found: list[str]) -> None:
    if schema.get("$ref", "").removeprefix(PREFIX) in _OPAQUE:
        return
    schema = resolve(schema)
    if isinstance(value, dict):
        declared = schema.get("properties")
        extra = schema.get("additionalProperties")
        for key, item in value.items():
            where = f"{path}.{key}" if path else key
            if declared is not None:
                if key not in declared:
                    found.append(where)
                else:
                    _collect_unknown(item, declared[key], where, found)
            elif isinstance(extra, dict):
                _collect_unknown(item, extra, where, found)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for i, item in enumerate(value):
            _collect_unknown(item, schema["items"], f"{path}[{i}]", found)
