"""Strict, complete decoding of plain values into frozen structs, and the way back.

A struct's fields say everything: JSON name, type, default (a required field that is absent becomes Go's zero value,
as validation, not decoding, asks for it). Every unknown or repeated field is reported, not just the
first, with the texts of `sigs.k8s.io/json`; a value of the wrong type is fatal, with the text of Go's encoding/json.
`null` leaves a field at its default.
"""

import base64
import binascii
import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin

import msgspec

from koordsched.api.quantity import QuantityError, parse
from koordsched.config.document import Object, Value
from koordsched.config.duration import Duration


@dataclass(frozen=True, slots=True)
class GoInteger:
    """The range of a Go integer type, and its name in messages."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class OmitEmpty:
    """The field is left out of the output when it holds its type's zero value."""


_INT32 = GoInteger("int32", -(1 << 31), (1 << 31) - 1)
Int32 = Annotated[int, _INT32]
Int64 = Annotated[int, GoInteger("int64", -(1 << 63), (1 << 63) - 1)]
OMIT_EMPTY = OmitEmpty()

_QUANTITY = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"


class Quantities(dict[str, str]):
    """A resource list: resource name -> quantity as text; numbers are taken as they are written."""


_TYPE_META = frozenset({"apiVersion", "kind"})


@dataclass(slots=True)
class DecodingErrors:
    """What decoding found: `strict` errors (unknown, repeated fields) and `fatal` ones (wrong types)."""

    strict: list[str] = field(default_factory=list)
    fatal: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands: its path for unknown fields, and Go's `Struct.path` for type errors."""

    path: str = ""
    struct: str = ""
    fields: str = ""


_Reader: TypeAlias = Callable[[Value, _Place, DecodingErrors], Any]
_S = TypeVar("_S", bound=msgspec.Struct)


def decode(kind: type[_S], value: Value, complaints: DecodingErrors) -> _S:
    """Decode an object that carries `apiVersion` and `kind` beside the fields of `kind`.

    Complaints are appended; what could not be read has its default in the result.
    """
    result: _S = _read_struct(kind, value, _Place(), complaints, ignore=_TYPE_META)
    return result


def encode(struct: msgspec.Struct) -> dict[str, Any]:
    """A struct as JSON values, by Go's `omitempty` rules: unset (None), empty lists and maps are left out."""
    output: dict[str, Any] = {}
    for info in _field_infos(type(struct)):
        value = getattr(struct, info.name)
        if value is None or (not value and (value in ((), {}) or OMIT_EMPTY in _annotations(info.type))):
            continue
        output[info.encode_name] = plain(value)
    return output


def plain(value: Any) -> Any:
    """A value made of structs, tuples, durations and the like, as JSON values."""
    if isinstance(value, msgspec.Struct):
        return encode(value)
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, Duration):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


@functools.cache
def _field_infos(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


@functools.cache
def _readers(kind: type[msgspec.Struct]) -> dict[str, tuple[str, _Reader]]:
    return {info.encode_name: (info.name, _reader(info.type)) for info in _field_infos(kind)}


@functools.cache
def _zeros(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {info.name: _zero(info.type) for info in _field_infos(kind) if info.required}


def _zero(annotation: Any) -> Any:
    base = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return base(**_zeros(base)) if issubclass(base, msgspec.Struct) else base()


def _read_struct(
    kind: type[msgspec.Struct],
    value: Value,
    place: _Place,
    complaints: DecodingErrors,
    ignore: frozenset[str] = frozenset(),
) -> Any:
    if not isinstance(value, dict):
        if value is not None:
            _mismatch(value, f"v1.{kind.__name__}", place, complaints)
        return kind(**_zeros(kind))
    readers = _readers(kind)
    repeated = value.repeated if isinstance(value, Object) else ()
    attributes = dict(_zeros(kind))
    for name, item in value.items():
        path = f"{place.path}.{name}" if place.path else name
        if name in repeated:
            complaints.strict.append(f'duplicate field "{path}"')
        if name in readers:
            if item is not None:
                attribute, reader = readers[name]
                fields = f"{place.fields}.{name}" if place.fields else name
                attributes[attribute] = reader(item, _Place(path, kind.__name__, fields), complaints)
        elif name not in ignore:
            complaints.strict.append(f'unknown field "{path}"')
    return kind(**attributes)


def _reader(annotation: Any) -> _Reader:
    """The function that reads one field's type. Raises TypeError for a type no configuration struct may use."""
    origin = get_origin(annotation)
    if origin is Annotated:
        base, *marks = get_args(annotation)
        integers = [mark for mark in marks if isinstance(mark, GoInteger)]
        return functools.partial(_read_integer, integers[0]) if integers else _reader(base)
    if origin in (Union, types.UnionType):
        (inner,) = (option for option in get_args(annotation) if option is not type(None))
        return _reader(inner)
    if origin is tuple:
        return functools.partial(_read_list, get_args(annotation)[0])
    if origin in (dict, Mapping):
        return functools.partial(_read_map, get_args(annotation)[1])
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return functools.partial(_read_struct, annotation)
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    raise TypeError(f"no reader for configuration fields of type {annotation!r}")


def _go_name(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        base, *marks = get_args(annotation)
        return next((mark.name for mark in marks if isinstance(mark, GoInteger)), _go_name(base))
    if annotation in _GO_NAMES:
        return _GO_NAMES[annotation]
    return f"v1.{annotation.__name__}"


def _annotations(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()


def _read_integer(go: GoInteger, value: Value, place: _Place, complaints: DecodingErrors) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        _mismatch(value, go.name, place, complaints)
        return 0
    if not isinstance(value, int) or not go.low <= value <= go.high:
        _mismatch(value, go.name, place, complaints, exact=True)
        return 0
    return value


def _read_list(item_type: Any, value: Value, place: _Place, complaints: DecodingErrors) -> tuple[Any, ...]:
    if not isinstance(value, list):
        _mismatch(value, f"[]{_go_name(item_type)}", place, complaints)
        return ()
    reader = _reader(item_type)
    return tuple(
        reader(item, _Place(f"{place.path}[{i}]", place.struct, place.fields), complaints)
        for i, item in enumerate(value)
    )


def _read_map(item_type: Any, value: Value, place: _Place, complaints: DecodingErrors) -> dict[str, Any]:
    if not isinstance(value, dict):
        _mismatch(value, f"map[string]{_go_name(item_type)}", place, complaints)
        return {}
    reader = _reader(item_type)
    return {
        name: _zero(item_type)
        if item is None
        else reader(item, _Place(f"{place.path}.{name}", place.struct, place.fields), complaints)
        for name, item in value.items()
    }


def _read_quantities(value: Value, place: _Place, complaints: DecodingErrors) -> Quantities:
    if not isinstance(value, dict):
        _mismatch(value, "v1.ResourceList", place, complaints)
        return Quantities()
    found = Quantities()
    for name, item in value.items():
        try:
            if isinstance(item, bool) or not isinstance(item, (str, int, float)):
                raise QuantityError
            parse(item)
            found[name] = str(item)
        except QuantityError:
            complaints.fatal.append(f"quantities must match the regular expression '{_QUANTITY}'")
    return found


def _read_text(value: Value, place: _Place, complaints: DecodingErrors) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        _mismatch(value, "string", place, complaints)
        return ""
    return value


def _read_bool(value: Value, place: _Place, complaints: DecodingErrors) -> bool:
    if not isinstance(value, bool):
        _mismatch(value, "bool", place, complaints)
        return False
    return value


def _read_float(value: Value, place: _Place, complaints: DecodingErrors) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        _mismatch(value, "float32", place, complaints)
        return 0.0
    if not abs(value) <= 3.4028234663852886e38:
        _mismatch(value, "float32", place, complaints, exact=True)
        return 0.0
    return float(value)


def _read_duration(value: Value, place: _Place, complaints: DecodingErrors) -> Duration:
    if not isinstance(value, str):
        _mismatch(value, "string", place, complaints)
        return Duration(0)
    try:
        return Duration.parse(value)
    except ValueError as error:
        complaints.fatal.append(f"{place.path}: {error}")
        return Duration(0)


def _read_bytes(value: Value, place: _Place, complaints: DecodingErrors) -> bytes:
    if not isinstance(value, str):
        _mismatch(value, "[]uint8", place, complaints)
        return b""
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        complaints.fatal.append(f"{place.path}: illegal base64 data: {error}")
        return b""


def _read_raw(value: Value, place: _Place, complaints: DecodingErrors) -> Value:
    return value


_GO_NAMES: dict[Any, str] = {str: "string", int: "int32", bool: "bool"}
_SCALARS: dict[Any, _Reader] = {
    int: functools.partial(_read_integer, _INT32),  # what the core types leave unsaid: they have no other integer
    str: _read_text,
    bool: _read_bool,
    float: _read_float,
    Duration: _read_duration,
    Quantities: _read_quantities,
    bytes: _read_bytes,
    Any: _read_raw,
}


def _mismatch(value: Value, go_type: str, place: _Place, complaints: DecodingErrors, *, exact: bool = False) -> None:
    kinds = {bool: "bool", str: "string", int: "number", float: "number", list: "array"}
    shown = kinds.get(type(value), "object") + (f" {value}" if exact else "")
    target = f"struct field {place.struct}.{place.fields} of type" if place.struct else "value of type"
    complaints.fatal.append(f"json: cannot unmarshal {shown} into Go {target} {go_type}")
