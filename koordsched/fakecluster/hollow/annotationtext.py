"""JSON texts in annotations."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode_text(text: str, kind: type[T], longest: int) -> T:
    """Decodes a text of at most this many characters. Raises ValueError with what is wrong."""
    if len(text) > longest:
        raise ValueError(f"longer than {longest} characters")
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        raise ValueError("nested too deeply") from None
