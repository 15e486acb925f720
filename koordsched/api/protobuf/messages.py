"""Message classes of the protobuf library for layouts: what it parses is what the wire types read, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from koordsched.api.protobuf.fields import QUANTITY, RAW_EXTENSION, TIME, Field
from koordsched.api.protobuf.layout import Layout, Member

_Proto = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": _Proto.TYPE_STRING,
    "bytes": _Proto.TYPE_BYTES,
    "bool": _Proto.TYPE_BOOL,
    "int32": _Proto.TYPE_INT32,
    "int64": _Proto.TYPE_INT64,
}
_SPECIAL = {
    TIME: [(1, "seconds", "int64")],
    QUANTITY: [(1, "string", "string")],
    RAW_EXTENSION: [(1, "raw", "bytes")],
}
"""Messages that JSON writes as one value (apimachinery `meta/v1`, `api/resource`, `runtime`)."""

_PACKAGE = "koordsched"

Parts = Sequence[tuple[int, str, str]]
"""(number, name, kind) of the fields of a message; a kind with [] behind it is repeated."""


def message_class(layouts: Sequence[Layout]) -> Any:
    """The class of messages laid out as the first of these says; the others are the layouts that it holds."""
    file = _file()
    for kind, parts in _SPECIAL.items():
        _add_plain(file, _short(kind), parts)
    for layout in layouts:
        message = file.message_type.add(name=layout.name)
        for member in layout.members:
            _add(message, layout.name, member)
        for outer, members in layout.inline:
            name = f"{layout.name}{outer.name}"
            embedded = file.message_type.add(name=name)
            for member in members:
                _add(embedded, name, member)
            _add_field(message, outer.name, outer.number, name, _Proto.LABEL_OPTIONAL)
    return _classes(file)[layouts[0].name]


def plain_messages(messages: Mapping[str, Parts]) -> dict[str, Any]:
    """The classes of messages that are written down here, by name; they may hold each other."""
    file = _file()
    for name, parts in messages.items():
        _add_plain(file, name, parts)
    return _classes(file)


def _file() -> descriptor_pb2.FileDescriptorProto:
    # As proto2, which Kubernetes uses, but for texts that are no UTF-8: they are refused.
    return descriptor_pb2.FileDescriptorProto(
        name="wire.proto", package=_PACKAGE, syntax="editions", edition=descriptor_pb2.EDITION_2023
    )


def _classes(file: descriptor_pb2.FileDescriptorProto) -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{message.name}"))
        for message in file.message_type
    }


def _add_plain(file: descriptor_pb2.FileDescriptorProto, name: str, parts: Parts) -> None:
    message = file.message_type.add(name=name)
    for number, field, kind in parts:
        label = _Proto.LABEL_REPEATED if kind.endswith("[]") else _Proto.LABEL_OPTIONAL
        _add_field(message, field, number, kind.removesuffix("[]"), label)


def _add(message: descriptor_pb2.DescriptorProto, owner: str, member: Member) -> None:
    source = member.source
    kind = _kind_of(source, member.layout)
    if source.form == "map":
        name = "".join(part.capitalize() for part in member.name.split("_")) + "Entry"
        # Entries, not a map of the library, which forgets their order: decisions must not depend on hashes.
        entry = message.nested_type.add(name=name)
        _add_field(entry, "key", 1, "string", _Proto.LABEL_OPTIONAL)
        _add_field(entry, "value", 2, kind, _Proto.LABEL_OPTIONAL)
        kind = f"{owner}.{name}"
    label = _Proto.LABEL_REPEATED if source.form else _Proto.LABEL_OPTIONAL
    _add_field(message, member.name, source.number, kind, label)


def _kind_of(source: Field, layout: Layout | None) -> str:
    if layout is not None:
        return layout.name
    if source.kind in _SPECIAL:
        return _short(source.kind)
    if source.kind in _TYPES:
        return source.kind
    raise TypeError(f"{source.name}: {source.kind} is not read from protobuf")


def _add_field(
    message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str, label: _Proto.Label.ValueType
) -> None:
    added = message.field.add(name=name, number=number, label=label)
    if kind in _TYPES:
        added.type = _TYPES[kind]
    else:
        added.type = _Proto.TYPE_MESSAGE
        added.type_name = f".{_PACKAGE}.{kind}"


def _short(definition: str) -> str:
    return definition.rpartition(".")[2]
