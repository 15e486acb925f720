"""Objects as JSON has them, in Kubernetes' protobuf encoding."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from typing import Any

import orjson

from koordsched.api.protobuf.fields import (
    FIELDS_V1,
    INT_OR_STRING,
    MICRO_TIME,
    QUANTITY,
    RAW_EXTENSION,
    TIME,
    Field,
    messages,
)
from koordsched.fakecluster.protobufmessages import whole_message

Shape = Callable[[Any], Any]
"""Makes what the library takes of what JSON has."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_MICROSECOND = timedelta(microseconds=1)


class ProtobufEncoder:
    """Encodes objects of one kind; `definition` is its OpenAPI name. What messages have no field for is left out.

    What encoding takes is made when the first object comes.
    """

    def __init__(self, definition: str) -> None:
        self._definition = definition

    @cached_property
    def _steps(self) -> tuple[Any, Shape]:
        return whole_message(self._definition), _shaping(self._definition)

    def __call__(self, obj: Mapping[str, Any]) -> bytes:
        """The message, without envelope. Raises ValueError, TypeError or AttributeError for what is no such object."""
        make, shape = self._steps
        return bytes(make(**shape(obj)).SerializeToString())


@cache
def _shaping(definition: str) -> Shape:
    fields = {f.name: _shape_of(f) for f in messages()[definition] if f.form != "inline"}
    inline = [f for f in messages()[definition] if f.form == "inline"]
    embedded = {inner.name: outer for outer in inline for inner in messages()[outer.kind]}

    def shape(obj: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in obj.items():
            if value is None:
                continue
            if name in fields:
                shape_of_field = fields[name]
                made[name] = value if shape_of_field is None else shape_of_field(value)
            elif name in embedded and embedded[name].name not in made:
                outer = embedded[name]
                made[outer.name] = _shaping(outer.kind)(obj)
        return made

    return shape


def _shape_of(field: Field) -> Shape | None:
    """None where the library takes the value as JSON has it."""
    shape = _shape(field.kind)
    if field.form == "list":
        return None if shape is None else lambda values: [shape(value) for value in values]
    if field.form == "map":
        return lambda values: [
            {"key": key, "value": value if shape is None else shape(value)} for key, value in values.items()
        ]
    return shape


def _shape(kind: str) -> Shape | None:
    if kind == "bytes":
        return base64.b64decode
    if kind in _SPECIAL:
        return _SPECIAL[kind]
    if kind not in messages():
        return None
    # Kinds hold each other (a schema its parts), so what they are made of is asked for when it is needed.
    return lambda value: _list_or_message(value, kind)


def _list_or_message(value: Any, kind: str) -> dict[str, Any]:
    # A named list type is its list alone in JSON.
    made: dict[str, Any] = {"items": value} if isinstance(value, list) else _shaping(kind)(value)
    return made


def _point_in_time(text: str) -> dict[str, int]:
    since = datetime.fromisoformat(text) - _EPOCH
    return {"seconds": since // _SECOND, "nanos": since % _SECOND // _MICROSECOND * 1000}


def _int_or_string(value: int | str) -> dict[str, int | str]:
    return {"type": 1, "strVal": value} if isinstance(value, str) else {"type": 0, "intVal": value}


_SPECIAL: dict[str, Shape] = {
    TIME: _point_in_time,
    MICRO_TIME: _point_in_time,
    QUANTITY: lambda value: {"string": str(value)},
    INT_OR_STRING: _int_or_string,
    RAW_EXTENSION: lambda value: {"raw": orjson.dumps(value)},
    FIELDS_V1: lambda value: {"Raw": orjson.dumps(value)},
}
