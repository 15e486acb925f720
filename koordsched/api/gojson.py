"""What Go's `encoding/json` says about JSON that it cannot read, for messages that users know.

Source: go `encoding/json/{scanner.go,decode.go}`.
"""

from __future__ import annotations

import re

import orjson

_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")
_SPACE = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_DIGITS = re.compile(r"[0-9]*")
_CLOSINGS = {"{": "}", "[": "]"}
_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\"}
_LITERALS = {"t": "true", "f": "false", "n": "null"}
_DEEPEST = 10_000
_END = "unexpected end of JSON input"


class _SyntaxError(Exception):
    pass


def message(text: str, error: Exception, go_type: str) -> str:
    """Go's message for a text that is to be read as a value of a type, which `error` says is not possible.

    For a wrong type inside the value it is the message of `error`.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return syntax_error(text) or str(error)  # Go reads some texts that we do not
    kinds = {bool: "bool", str: "string", int: "number", float: "number", list: "array"}
    kind = kinds.get(type(value))
    return str(error) if kind is None else f"json: cannot unmarshal {kind} into Go value of type {go_type}"


def syntax_error(text: str) -> str:
    """Go's message for a text that is no JSON; "" if it is."""
    try:
        end = _space(text, _value(text))
        if end < len(text):
            _invalid(text, end, "after top-level value")
    except _SyntaxError as error:
        return str(error)
    return ""


def _invalid(text: str, at: int, where: str) -> None:
    if at >= len(text):
        raise _SyntaxError(_END)
    character = text[at]
    shown = "\\'" if character == "'" else _ESCAPES.get(character, character)
    raise _SyntaxError(f"invalid character '{shown}' {where}")


def _space(text: str, at: int) -> int:
    return _past(_SPACE, text, at)


def _past(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Behind what matches at a position; the pattern matches everything, or nothing."""
    matched = pattern.match(text, at)
    assert matched is not None, "a pattern of any length"
    return matched.end()


def _value(text: str) -> int:
    """Where the first value ends."""
    closings: list[str] = []
    at = 0
    while True:
        at = _space(text, at)
        first = text[at : at + 1]
        if len(closings) > _DEEPEST:
            raise _SyntaxError("exceeded max depth")
        closing = _CLOSINGS.get(first)
        if closing is None:
            at = _scalar(text, at, first)
        else:
            at = _space(text, at + 1)
            if text[at : at + 1] != closing:
                closings.append(closing)
                at = _key(text, at) if closing == "}" else at
                continue
            at += 1
        while closings and text[(at := _space(text, at)) : at + 1] == closings[-1]:
            closings.pop()
            at += 1
        if not closings:
            return at
        pair = closings[-1] == "}"
        if text[at : at + 1] != ",":
            _invalid(text, at, "after object key:value pair" if pair else "after array element")
        at = _key(text, _space(text, at + 1)) if pair else at + 1


def _key(text: str, at: int) -> int:
    """Where the value begins whose key begins at a position."""
    if text[at : at + 1] != '"':
        _invalid(text, at, "looking for beginning of object key string")
    at = _space(text, _string(text, at + 1))
    if text[at : at + 1] != ":":
        _invalid(text, at, "after object key")
    return at + 1


def _scalar(text: str, at: int, first: str) -> int:
    if first == '"':
        return _string(text, at + 1)
    if first in _LITERALS:
        return _literal(text, at, _LITERALS[first])
    if first and first in "-0123456789":
        return _number(text, at)
    _invalid(text, at, "looking for beginning of value")
    return at


def _string(text: str, at: int) -> int:
    while True:
        at = _past(_PLAIN, text, at)
        character = text[at : at + 1]
        if character == '"':
            return at + 1
        if character == "\\":
            at += 1
            if text[at : at + 1] == "u":
                for digit in range(at + 1, at + 5):
                    if text[digit : digit + 1] not in _HEXADECIMAL:
                        _invalid(text, digit, "in \\u hexadecimal character escape")
                at += 4
            elif not text[at : at + 1] or text[at] not in 'bfnrt\\/"':
                _invalid(text, at, "in string escape code")
        else:
            _invalid(text, at, "in string literal")
        at += 1


def _literal(text: str, at: int, literal: str) -> int:
    for offset, expected in enumerate(literal):
        if text[at + offset : at + offset + 1] != expected:
            _invalid(text, at + offset, f"in literal {literal} (expecting '{expected}')")
    return at + len(literal)


def _number(text: str, at: int) -> int:
    if text[at] == "-":
        at += 1
        _check_digit(text, at, "in numeric literal")
    at = at + 1 if text[at] == "0" else _past(_DIGITS, text, at)
    if text[at : at + 1] == ".":
        _check_digit(text, at + 1, "after decimal point in numeric literal")
        at = _past(_DIGITS, text, at + 1)
    if text[at : at + 1] in ("e", "E"):
        at += 1
        if text[at : at + 1] in ("+", "-"):
            at += 1
        _check_digit(text, at, "in exponent of numeric literal")
        at = _past(_DIGITS, text, at)
    return at


def _check_digit(text: str, at: int, where: str) -> None:
    if _past(_DIGITS, text, at) == at:
        _invalid(text, at, where)
