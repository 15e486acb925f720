"""Regular expressions: matches(), find() and findAll(), in linear time with RE2, whose syntax is that of Go's."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import Any, Final

import re2

from koordsched.plugins.dynamicresources.cel.declarations import Overload, function, method, pattern_cost
from koordsched.plugins.dynamicresources.cel.errors import Failure, no_such_overload
from koordsched.plugins.dynamicresources.cel.frame import Frame
from koordsched.plugins.dynamicresources.cel.values import Value
from koordsched.plugins.dynamicresources.cel.work import WORK

_KEPT = 256

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


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    return options


_OPTIONS: Final = _options()


@lru_cache(maxsize=_KEPT)
def pattern(text: str) -> Any:
    """A compiled regular expression. Raises Failure with Go's text if it is none."""
    try:
        return re2.compile(text, _OPTIONS)
    except re2.error as error:
        problem, _, where = error.args[0].decode(errors="replace").partition(": ")
        if problem == "trailing \\":
            raise Failure("error parsing regexp: trailing backslash at end of expression: ``") from None
        if problem == "unexpected )" or problem == "missing )":
            where = text
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


def _valid(text: str) -> str:
    # Half of a surrogate pair, which Go would have read as U+FFFD.
    return text if text.isascii() else text.encode(errors="replace").decode()


def _matches(frame: Frame, text: Value, expression: Value) -> bool:
    if type(text) is not str or type(expression) is not str:
        raise no_such_overload()
    frame.charge(pattern_cost(text, expression))
    return _compiled(frame, expression).search(_valid(text)) is not None


def _find(frame: Frame, text: str, expression: str) -> str:
    frame.charge(pattern_cost(text, expression))
    found = _compiled(frame, expression, "Illegal regex: ").search(_valid(text))
    return "" if found is None else str(found.group())


def _find_all(frame: Frame, text: str, expression: str, limit: int = -1) -> tuple[str, ...]:
    frame.charge(pattern_cost(text, expression))
    found = _compiled(frame, expression, "Illegal regex: ").finditer(_valid(text))
    texts = []
    end = -1
    for match in found:
        # Go does not take an empty match right after another one.
        if match.start() == match.end() == end:
            continue
        WORK.spend(1)
        end = match.end()
        texts.append(match.group())
        if len(texts) == limit:
            break
    return tuple(islice(texts, max(limit, 0) if limit >= 0 else None))


OVERLOADS: Final[tuple[Overload, ...]] = (
    function("matches", "matches", "string, string", "bool", _matches, metered=True, cost=0),
    method("matches", "matches_string", "string, string", "bool", _matches, metered=True, cost=0),
    method("find", "string_find_string", "string, string", "string", _find, metered=True, cost=0),
    method("findAll", "string_find_all_string", "string, string", "list(string)", _find_all, metered=True, cost=0),
    method(
        "findAll", "string_find_all_string_int", "string, string, int", "list(string)", _find_all, metered=True, cost=0
    ),
)
