"""A Reservation that cannot be read, and the reading of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from koordsched.api import gojson
from koordsched.api.core import Quantities
from koordsched.api.decoding import DecodeError, Decoder
from koordsched.api.quantity import NANO, QuantityError, nano_value

T = TypeVar("T")

_TOO_MUCH = NANO << 63


class MalformedReservation(ValueError):
    """A field of a Reservation, or of a pod that acts as one, cannot be read; the message names the field."""


def annotation(annotations: Mapping[str, str], key: str, decode: Decoder[T], go_type: str) -> T | None:
    """The value of an annotation; None if it is absent, empty or null. Raises MalformedReservation."""
    text = annotations.get(key, "")
    if not text or text.strip() == "null":
        return None
    try:
        return decode(text.encode())
    except (DecodeError, UnicodeEncodeError) as error:
        raise MalformedReservation(f"annotation {key}: {gojson.message(text, error, f'extension.{go_type}')}") from None


def check_quantities(quantities: Quantities, path: str) -> None:
    """Raises MalformedReservation for what is no quantity, has no room in 64 bits, or is below 0.

    An amount below 0 would make room that does not exist.
    """
    for name, quantity in quantities.items():
        try:
            amount = nano_value(quantity)
        except QuantityError as error:
            raise MalformedReservation(f"{path}.{name[:64]}: {error}") from None
        if not 0 <= amount < _TOO_MUCH:
            problem = "negative" if amount < 0 else "too large"
            raise MalformedReservation(f"{path}.{name[:64]}: quantity {str(quantity)[:64]!r} is {problem}")
