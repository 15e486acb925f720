"""Typed decoding of JSON, lenient where Go is lenient and clear where it is not."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
import orjson

T = TypeVar("T")


class DecodeError(ValueError):
    """The bytes are not an object of the expected type; the message names the field."""


def without_nulls(value: Any) -> Any:
    """The same JSON value without null members: Go reads an explicit null as an absent field."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value


class Decoder(Generic[T]):
    """Decodes one type. The fast path is msgspec's; explicit nulls, which are rare, take a second pass."""

    __slots__ = ("_decoder", "_type")

    def __init__(self, kind: type[T]) -> None:
        self._type = kind
        self._decoder = msgspec.json.Decoder(kind, strict=True)

    def __call__(self, data: bytes | memoryview | msgspec.Raw) -> T:
        """The object. Raises DecodeError, never anything else."""
        try:
            return self._decoder.decode(data)
        except (msgspec.ValidationError, msgspec.DecodeError, RecursionError, UnicodeDecodeError) as first:
            try:
                return msgspec.convert(without_nulls(orjson.loads(bytes(data))), self._type, strict=True)
            except (ValueError, RecursionError):
                raise DecodeError(str(first)) from None


def convert(value: Any, kind: type[T]) -> T:
    """The typed form of already parsed JSON or YAML. Raises DecodeError."""
    try:
        return msgspec.convert(value, kind, strict=True)
    except (msgspec.ValidationError, RecursionError):
        pass  # explicit nulls, which are rare, or a mistake
    try:
        return msgspec.convert(without_nulls(value), kind, strict=True)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DecodeError(str(error)) from None
