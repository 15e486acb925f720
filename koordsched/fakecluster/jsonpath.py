"""The part of JSONPath that printer columns, selectable fields and scale paths use."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_STEP = re.compile(
    r"\.?\[\?\(\s*@\.(?P<fkey>[\w.\\/-]+)\s*==\s*(?P<quote>['\"])(?P<fvalue>.*?)(?P=quote)\s*\)\]"
    r"|\.?\[(?P<q>['\"])(?P<quoted>.*?)(?P=q)\]"
    r"|\.?\[(?P<index>-?\d+|\*)\]"
    r"|\.(?P<name>(?:\\.|[^.\[\\])+)",
)


class JsonPathError(ValueError):
    """The path uses something that is not supported."""


Step = Callable[[list[Any]], list[Any]]


def compile_path(path: str) -> Callable[[Any], list[Any]]:
    """A function from an object to the values at the path. Raises JsonPathError."""
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    if text.startswith("$"):
        text = text[1:]
    if text and text[0] not in ".[":
        text = "." + text
    steps: list[Step] = []
    at = 0
    while at < len(text):
        matched = _STEP.match(text, at)
        if matched is None:
            raise JsonPathError(f"cannot read JSONPath {path!r} at {text[at:]!r}")
        steps.append(_step(matched))
        at = matched.end()

    def read(obj: Any) -> list[Any]:
        values = [obj]
        for step in steps:
            values = step(values)
        return values

    return read


def _step(matched: re.Match[str]) -> Step:
    if matched["fkey"] is not None:
        keys, wanted = matched["fkey"].split("."), matched["fvalue"]
        return lambda values: [
            item for v in values if isinstance(v, list) for item in v if str(_at(item, keys)) == wanted
        ]
    if matched["index"] is not None:
        if matched["index"] == "*":
            return lambda values: [
                item
                for v in values
                if isinstance(v, list | dict)
                for item in (v if isinstance(v, list) else v.values())
            ]
        index = int(matched["index"])
        return lambda values: [v[index] for v in values if isinstance(v, list) and -len(v) <= index < len(v)]
    name = matched["quoted"] if matched["quoted"] is not None else re.sub(r"\\(.)", r"\1", matched["name"])
    return lambda values: [v[name] for v in values if isinstance(v, dict) and name in v]


def _at(item: Any, keys: list[str]) -> Any:
    for key in keys:
        item = item.get(key) if isinstance(item, dict) else None
    return item
