"""Functions of strings: the standard ones, and version 2 of cel-go's extension.

Offsets count code points. Where a result may be longer than the arguments, its length is known before it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from koordsched.plugins.dynamicresources.cel.declarations import Overload, function, method, tenths, traversal
from koordsched.plugins.dynamicresources.cel.errors import Failure, no_such_overload
from koordsched.plugins.dynamicresources.cel.frame import Frame
from koordsched.plugins.dynamicresources.cel.stringformat import format_text
from koordsched.plugins.dynamicresources.cel.values import Value, shown
from koordsched.plugins.dynamicresources.cel.work import WORK

_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_QUOTED = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\"}
_QUOTED['"'] = '\\"'


def _texts(run: Callable[[str, str], bool]) -> Callable[[Value, Value], bool]:
    def checked(text: Value, other: Value) -> bool:
        if type(text) is not str or type(other) is not str:
            raise no_such_overload()
        return run(text, other)

    return checked


def _out_of_range(index: int) -> Failure:
    return Failure(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return text.find(part, offset)


def _last_index_of(text: str, part: str, offset: int | None = None) -> int:
    if offset is None:
        return text.rfind(part)
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return -1 if offset >= len(text) else text.rfind(part, 0, offset + len(part))


def _replace(frame: Frame, text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old) if old else len(text) + 1
    count = count if limit < 0 else min(count, limit)
    frame.charge(tenths(2 * len(text)))
    frame.bound_characters(len(text) + count * (len(new) - len(old)))
    return text.replace(old, new, count)


def _split(frame: Frame, text: str, separator: str, limit: int = -1) -> tuple[str, ...]:
    frame.charge(tenths(2 * len(text)))
    if limit == 0:
        return ()
    if separator:
        parts = text.split(separator) if limit < 0 else text.split(separator, limit - 1)
    else:
        parts = list(text) if limit < 0 or limit >= len(text) else [*text[: limit - 1], text[limit - 1 :]]
    frame.bound_elements(len(parts))
    return tuple(parts)


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise Failure(f"invalid substring range. start: {start}, end: {end}")
    for index in (start,) if end is None else (start, end):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start:end]


def _join(frame: Frame, parts: tuple[Value, ...], separator: str = "") -> str:
    length = len(separator) * max(0, len(parts) - 1)
    WORK.spend(len(parts))
    for each in parts:
        if type(each) is not str:
            raise Failure(f"join: invalid input: {shown(each)}")
        length += len(each)
    frame.bound_characters(length)
    frame.charge(tenths(2 * length))
    return separator.join(parts)


def _quote(text: str) -> str:
    body = "".join(_QUOTED.get(character, character) for character in text)
    return f'"{body}"'


def _contains_cost(text: str, part: str) -> int:
    return tenths(len(text)) * tenths(len(part))


def _search_cost(text: str, *_: Value) -> int:
    return len(text.encode(errors="surrogatepass")) // 10


_METERED: Final = {"metered": True, "cost": 0}

OVERLOADS: Final[tuple[Overload, ...]] = (
    method(
        "contains",
        "contains_string",
        "string, string",
        "bool",
        _texts(lambda text, part: part in text),
        cost=_contains_cost,
        unguarded=True,
    ),
    method(
        "endsWith", "ends_with_string", "string, string", "bool", _texts(str.endswith), cost=traversal, unguarded=True
    ),
    method(
        "startsWith",
        "starts_with_string",
        "string, string",
        "bool",
        _texts(str.startswith),
        cost=traversal,
        unguarded=True,
    ),
    method("charAt", "string_char_at_int", "string, int", "string", _char_at),
    method("indexOf", "string_index_of_string", "string, string", "int", _index_of, cost=_search_cost),
    method("indexOf", "string_index_of_string_int", "string, string, int", "int", _index_of, cost=_search_cost),
    method("lastIndexOf", "string_last_index_of_string", "string, string", "int", _last_index_of, cost=_search_cost),
    method(
        "lastIndexOf",
        "string_last_index_of_string_int",
        "string, string, int",
        "int",
        _last_index_of,
        cost=_search_cost,
    ),
    method("lowerAscii", "string_lower_ascii", "string", "string", lambda text: text.translate(_LOWER), cost=traversal),
    method("upperAscii", "string_upper_ascii", "string", "string", lambda text: text.translate(_UPPER), cost=traversal),
    method("trim", "string_trim", "string", "string", lambda text: text.strip(_SPACE), cost=traversal),
    method("replace", "string_replace_string_string", "string, string, string", "string", _replace, **_METERED),
    method(
        "replace", "string_replace_string_string_int", "string, string, string, int", "string", _replace, **_METERED
    ),
    method("split", "string_split_string", "string, string", "list(string)", _split, **_METERED),
    method("split", "string_split_string_int", "string, string, int", "list(string)", _split, **_METERED),
    method("substring", "string_substring_int", "string, int", "string", _substring, cost=traversal),
    method("substring", "string_substring_int_int", "string, int, int", "string", _substring, cost=traversal),
    method("join", "list_join", "list(string)", "string", _join, **_METERED),
    method("join", "list_join_string", "list(string), string", "string", _join, **_METERED),
    method("format", "string_format", "string, list(dyn)", "string", format_text, metered=True, cost=traversal),
    function("strings.quote", "strings_quote", "string", "string", _quote, cost=traversal),
)
