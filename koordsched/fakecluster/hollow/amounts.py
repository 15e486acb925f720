"""Amounts of usage: milli-cores of CPU, bytes of memory."""

from __future__ import annotations

from typing import Any

from koordsched.api import quantity


def amount(resource: str, text: Any) -> float:
    """Milli-units of `cpu`, whole units of all else. Raises ValueError for what is no quantity, or negative."""
    if not isinstance(text, str | int | float):
        raise ValueError("not a quantity")
    if quantity.parse(text) < 0:
        raise ValueError(f"{text!r} must not be negative")
    return float(quantity.milli_value(text) if resource == "cpu" else quantity.value(text))


def resource_list(cpu: float, memory: float) -> dict[str, str]:
    """The amounts as a ResourceList, in the form of canonical quantities."""
    return {"cpu": milli_text(round(cpu)), "memory": quantity.format_bytes(round(memory))}


def milli_text(milli: int) -> str:
    """Milli-units as a canonical quantity."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)
