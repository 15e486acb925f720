"""How deep YAML may be nested."""

from __future__ import annotations

from typing import Any

import yaml

MAX_DEPTH = 1000
"""Levels of nesting in a YAML document."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def check_depth(text: str) -> None:
    """Raises ValueError for collections nested so deeply that the C loader would run out of stack, and crash.

    A level takes a bracket, or further characters on a line, so most texts need not be looked at twice. Raises
    yaml.YAMLError for what is no YAML, if it is looked at.
    """
    if text.count("[") + text.count("{") <= MAX_DEPTH and max(map(len, text.splitlines()), default=0) <= MAX_DEPTH:
        return
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
