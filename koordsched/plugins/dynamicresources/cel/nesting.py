"""How deep expressions are nested, and room on the stack for those that are allowed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from koordsched.plugins.dynamicresources.cel.parser import MOST_NESTED
from koordsched.plugins.dynamicresources.cel.source import NOWHERE, Issues
from koordsched.plugins.dynamicresources.cel.syntax import Call, Node, Select
from koordsched.plugins.dynamicresources.cel.validation import children

_ROOM = 20_000
"""Calls of Python functions within each other: those of the deepest tree, several per level. They take memory, not the
stack of C."""


def check_depth(tree: Node, issues: Issues) -> int:
    """The levels of a tree; reports a tree with more selections and calls within each other than cel-go allows."""
    deepest = 0
    waiting = [(tree, 0, 0)]
    seen: set[Node] = set()
    while waiting:
        node, level, counted = waiting.pop()
        if node in seen:
            continue  # the target of optMap: the longer way to it, behind the shorter one, was taken first
        seen.add(node)
        deepest = max(deepest, level)
        if isinstance(node, Select) or (isinstance(node, Call) and node.function not in _UNCOUNTED):
            counted += 1
        if counted > MOST_NESTED and not issues.found:
            issues.report(NOWHERE, "max recursion depth exceeded")
        waiting += [(each, level + 1, counted) for each in children(node)]
    return deepest


_UNCOUNTED = frozenset(("_&&_", "_||_", "!_", "-_", "@not_strictly_false"))


@contextmanager
def room() -> Iterator[None]:
    """Lets functions call each other more deeply than Python does by default."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _ROOM))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
