"""Regular expressions: matches(), find() and findAll(), in linear time with RE2, whose syntax is that of Go's."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import re2

from koordsched.plugins.dynamicresources.cel.declarations import Overload, function, method, pattern_cost
from koordsched.plugins.dynamicresources.cel.errors import Failure, no_such_overload
from koordsched.plugins.dynamicresources.cel.frame import Frame
from koordsched.plugins.dynamicresources.cel.values import Value
from koordsched.plugins.dynamicresources.cel.work import WORK

_KEPT = 256

_LARGEST = 512 * 1024
"""Bytes that a compiled pattern may take, with what it needs to match: that is `.{1000}` a few times over, and takes a
few milliseconds to compile. RE2 and Go take larger ones, which are compiled for a third of a second each.
"""

_GO_TEXTS = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
"""What Go says for RE2's errors, where it is not the same."""


_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = _LARGEST


@lru_cache(maxsize=_KEPT)
def pattern(text: str) -> Any:
    """A compiled regular expression. Raises Failure with Go's text if it is none."""
    try:
        return re2.compile(text, _OPTIONS)
    except re2.error as error:
        problem, _, where = error.args[0].decode(errors="replace").partition(": ")
        if problem == "trailing \\":
            raise Failure("error parsing regexp: trailing backslash at end of expression: ``") from None
        if problem == "pattern too large - compile failed":
            raise Failure("error parsing regexp: expression too large") from None
        raise Failure(f"error parsing regexp: {_GO_TEXTS.get(problem, problem)}: `{where}`") from None
    except UnicodeEncodeError:
        raise Failure(f"error parsing regexp: invalid UTF-8: `{text.encode(errors='replace').decode()}`") from None


def _compiled(frame: Frame, text: str, prefix: str = "") -> Any:
    before = pattern.cache_info().misses
    try:
        return pattern(text)
    except Failure as error:
        raise Failure(f"{prefix}{error}") from None
    finally:
        if pattern.cache_info().misses != before:
            frame.compile_pattern()


def _encoded(text: str) -> bytes:
    # RE2 would encode each time it is asked. Half of a surrogate pair, which is no text to Go, is a question mark.
    return text.encode(errors="replace")


def _matches(frame: Frame, text: Value, expression: Value) -> bool:
    if type(text) is not str or type(expression) is not str:
        raise no_such_overload()
    frame.charge(pattern_cost(text, expression))
    return _compiled(frame, expression).search(_encoded(text)) is not None


def _find(frame: Frame, text: str, expression: str) -> str:
    frame.charge(pattern_cost(text, expression))
    found = _compiled(frame, expression, "Illegal regex: ").search(_encoded(text))
    return "" if found is None else _decoded(found.group())


def _find_all(frame: Frame, text: str, expression: str, limit: int = -1) -> tuple[str, ...]:
    frame.charge(pattern_cost(text, expression))
    found = _compiled(frame, expression, "Illegal regex: ").finditer(_encoded(text))
    texts: list[str] = []
    end = -1
    for match in found:
        if 0 <= limit <= len(texts):
            break
        WORK.spend(_MATCH)
        # Go takes no empty match right after another one, nor inside of a character.
        if match.start() == match.end() and (match.start() == end or _inside(match.string, match.start())):
            continue
        end = match.end()
        texts.append(_decoded(match.group()))
    return tuple(texts)


_MATCH = 4
"""Work of a match, which takes longer than a comparison."""


def _inside(text: bytes, index: int) -> bool:
    return index < len(text) and text[index] & 0xC0 == 0x80


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace")


OVERLOADS: Final[tuple[Overload, ...]] = (
    function("matches", "matches", "string, string", "bool", _matches, metered=True, cost=0, unguarded=True),
    method("matches", "matches_string", "string, string", "bool", _matches, metered=True, cost=0, unguarded=True),
    method("find", "string_find_string", "string, string", "string", _find, metered=True, cost=0),
    method("findAll", "string_find_all_string", "string, string", "list(string)", _find_all, metered=True, cost=0),
    method(
        "findAll", "string_find_all_string_int", "string, string, int", "list(string)", _find_all, metered=True, cost=0
    ),
)
