"""Where in a message the fields of a wire type are: wire types read a part of what is sent, so only that is parsed."""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass, field
from typing import Any

import msgspec

from koordsched.api.protobuf.fields import Field, messages


@dataclass(slots=True)
class Member:
    """One field of a wire type. `layout`: that of the message it holds, None for scalars and special kinds."""

    name: str
    source: Field
    is_optional: bool
    default: Any
    layout: Layout | None


@dataclass(slots=True)
class Layout:
    """A wire type as a message.

    `name` is the message's, unique among the layouts of one kind. `inline` holds, per embedded message, those fields
    that JSON writes among the others (the sources of a volume).
    """

    name: str
    struct: type[Any]
    members: list[Member] = field(default_factory=list)
    inline: list[tuple[Field, list[Member]]] = field(default_factory=list)


def layouts_of(struct: type[Any], definition: str) -> list[Layout]:
    """The layout of a type, and after it those of all types that it holds.

    Raises LookupError when the messages have no such field, TypeError for a type that has no protobuf form here.
    """
    found: dict[tuple[str, type], Layout] = {}
    _layout(struct, definition, found)
    return list(found.values())


def _layout(struct: type[Any], definition: str, found: dict[tuple[str, type], Layout]) -> Layout:
    known = found.get((definition, struct))
    if known is not None:
        return known
    layout = found[definition, struct] = Layout(f"{struct.__name__}{len(found)}", struct)
    own = {f.name: f for f in messages()[definition] if f.form != "inline"}
    embedded = [
        (outer, {f.name: f for f in messages()[outer.kind]})
        for outer in messages()[definition]
        if outer.form == "inline"
    ]
    inline: dict[Field, list[Member]] = {}
    for info in msgspec.structs.fields(struct):
        source = own.get(info.encode_name)
        if source is not None:
            layout.members.append(_member(info, source, found))
            continue
        for outer, inner in embedded:
            if info.encode_name in inner:
                member = _member(info, inner[info.encode_name], found)
                if member.layout is None or member.source.form:
                    raise TypeError(f"{definition}: {info.encode_name} is embedded, and not a single message")
                inline.setdefault(outer, []).append(member)
                break
        else:
            raise LookupError(f"{definition} has no field {info.encode_name}")
    layout.inline = list(inline.items())
    return layout


def _member(info: msgspec.structs.FieldInfo, source: Field, found: dict[tuple[str, type], Layout]) -> Member:
    is_union = typing.get_origin(info.type) in (types.UnionType, typing.Union)
    choices = set(typing.get_args(info.type)) if is_union else {info.type}
    is_optional = types.NoneType in choices
    choices.discard(types.NoneType)
    inner = choices.pop()
    if source.form == "list":
        inner = typing.get_args(inner)[0]
    elif source.form == "map":
        inner = typing.get_args(inner)[1]
    is_message = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
    holds = _layout(inner, source.kind, found) if is_message else None
    default = info.default if info.default_factory is msgspec.NODEFAULT else info.default_factory()
    return Member(info.name, source, is_optional, None if default is msgspec.NODEFAULT else default, holds)
