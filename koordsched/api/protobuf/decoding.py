"""Decoding of protobuf messages into wire types.

The protobuf library parses. What turns its messages into wire types is written out per type and compiled once, as
dataclasses do it: a pod takes half as long as with a loop over its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeVar

import orjson
from google.protobuf import message as protobuf

from koordsched.api.decoding import DecodeError
from koordsched.api.protobuf.fields import QUANTITY, RAW_EXTENSION, TIME, Field
from koordsched.api.protobuf.layout import Layout, Member, layouts_of
from koordsched.api.protobuf.messages import message_class

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1)


class ProtobufDecoder(Generic[T]):
    """Decodes the messages of one type; an object is the same as from the JSON that the server has for it.

    `definition` is the OpenAPI name of the kind. What decoding takes is made when the first message comes.
    """

    def __init__(self, kind: type[T], definition: str) -> None:
        self._kind = kind
        self._definition = definition

    @cached_property
    def _steps(self) -> tuple[Callable[[bytes], Any], Callable[[Any], T]]:
        layouts = layouts_of(self._kind, self._definition)
        return message_class(layouts).FromString, _converter(layouts)

    def __call__(self, data: bytes) -> T:
        """The object. Raises DecodeError, never anything else."""
        parse, convert = self._steps
        try:
            return convert(parse(data))
        except (protobuf.DecodeError, ValueError, OverflowError) as error:
            raise DecodeError(f"not a {self._kind.__name__} in protobuf: {error}") from None


def _converter(layouts: Sequence[Layout]) -> Callable[[Any], Any]:
    """The function that makes the first layout's type of its message; it may raise ValueError and OverflowError."""
    names: dict[str, Any] = dict(_SPECIAL.values()) | {"present": _present}
    functions, tables = [], []
    for layout in layouts:
        names[layout.name] = layout.struct
        # In the order of the type's fields, which is faster than by name; embedded fields come anywhere.
        named = "{0.name}={1}" if layout.inline else "{1}"
        arguments = [named.format(member, _attribute(member, names)) for member in layout.members]
        for outer, members in layout.inline:
            # One of many is set: the set ones are listed, instead of checking each.
            table = f"{layout.name}_{outer.name}"
            each = [f"{m.name!r}: lambda x: {_value('x', m.source, m.layout)}" for m in members]
            tables.append(f"{table} = {{{', '.join(each)}}}")
            arguments.append(f"**present(m.{outer.name}, {table})")
        functions.append(f"def make_{layout.name}(m):\n    return {layout.name}({', '.join(arguments)})")
    exec(compile("\n".join(functions + tables), "<wire types from protobuf>", "exec"), names)
    made: Callable[[Any], Any] = names[f"make_{layouts[0].name}"]
    return made


def _attribute(member: Member, names: dict[str, Any]) -> str:
    """The value of an attribute, as an expression of the message `m`. Defaults that have no literal go to `names`."""
    here = f"m.{member.name}"
    item = _value("x", member.source, member.layout)
    if member.source.form == "list":
        return f"{'tuple(v)' if item == 'x' else f'tuple([{item} for x in v])'} if (v := {here}) else ()"
    if member.source.form == "map":
        entry = _value("x.value", member.source, member.layout)
        return f"{{x.key: {entry} for x in {here}}}"
    value = _value(here, member.source, member.layout)
    if value == here and not member.is_optional and not member.default:
        # A scalar: what is absent reads as zero.
        return value
    if member.source.kind == "string" and member.default:
        # Go writes texts that are empty, which JSON leaves out.
        return f"{value} or {member.default!r}"
    default = f"default_{len(names)}"
    names[default] = member.default
    return f"{value} if m.HasField({member.name!r}) else {default}"


def _value(here: str, source: Field, layout: Layout | None) -> str:
    if layout is not None:
        return f"make_{layout.name}({here})"
    special = _SPECIAL.get(source.kind)
    return here if special is None else f"{special[0]}({here})"


def _present(message: Any, table: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
    return {field.name: table[field.name](value) for field, value in message.ListFields()}


@lru_cache(4096)
def _rfc3339(seconds: int) -> str:
    return f"{(_EPOCH + timedelta(seconds=seconds)).isoformat()}Z"


def _time(message: Any) -> str | None:
    """A point in time as JSON has it; Go writes an empty message for none."""
    return _rfc3339(message.seconds) if message.HasField("seconds") else None


def _quantity(message: Any) -> str:
    text: str = message.string
    return text


def _raw_extension(message: Any) -> Any:
    return orjson.loads(message.raw) if message.raw else None


_SPECIAL: dict[str, tuple[str, Callable[[Any], Any]]] = {
    TIME: ("time", _time),
    QUANTITY: ("quantity", _quantity),
    RAW_EXTENSION: ("raw_extension", _raw_extension),
}
"""By kind: the name that the written-out functions call it by, and the function."""
