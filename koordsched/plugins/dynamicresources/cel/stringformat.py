"""`'%s has %.2f'.format([...])`: cel-go's formatting of strings, with its errors.

The same reading of the format serves the evaluation and the check at compile time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple

from koordsched.plugins.dynamicresources.cel.errors import Failure
from koordsched.plugins.dynamicresources.cel.frame import MOST_CHARACTERS, Frame
from koordsched.plugins.dynamicresources.cel.gofloat import general
from koordsched.plugins.dynamicresources.cel.times import Duration, Timestamp, duration_text, timestamp_text
from koordsched.plugins.dynamicresources.cel.values import Map, TypeValue, Uint, Value, shown, type_name
from koordsched.plugins.dynamicresources.cel.work import WORK

_DEFAULT_PRECISION = 6
_MOST_PRECISE = 1000
"""Digits; more are refused, since their number is all that bounds the length."""

WANTED = {
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and "
    "timestamps, was given {}",
    "d": "decimal clause can only be used on integers, was given {}",
    "f": "fixed-point clause can only be used on doubles, was given {}",
    "e": "scientific clause can only be used on doubles, was given {}",
    "b": "only integers and bools can be formatted as binary, was given {}",
    "x": "only integers, byte buffers, and strings can be formatted as hex, was given {}",
    "o": "octal clause can only be used on integers, was given {}",
}
"""What an error says of an argument that does not go with its clause."""

_SPECIAL_TEXTS = {"NaN": "NaN", "Infinity": "∞", "-Infinity": "-∞"}


class Clause(NamedTuple):
    """Plain text, or how an argument is shown there: the letter of the clause, and the precision if it is given."""

    text: str
    letter: str = ""
    precision: int | None = None


def clauses(template: str, count: int) -> list[Clause]:
    """The parts of a template for that many arguments. Raises Failure where it is none."""
    parts = []
    index = used = 0
    while index < len(template):
        end = template.find("%", index)
        if end != index:
            end = len(template) if end < 0 else end
            parts.append(Clause(template[index:end]))
            index = end
            continue
        if template.startswith("%%", index):
            parts.append(Clause("%"))
            index += 2
            continue
        if used >= count:
            raise Failure(f"index {used} out of range")
        if index + 1 >= len(template):
            raise Failure("unexpected end of string")
        used += 1
        clause, index = _clause(template, index + 1)
        parts.append(clause)
    return parts


def _clause(template: str, index: int) -> tuple[Clause, int]:
    prefix = "could not parse formatting clause: "
    precision = None
    if template[index] == ".":
        digits = re.compile(r"\d*", re.ASCII).match(template, index + 1)
        assert digits is not None
        index = digits.end()
        if index >= len(template):
            raise Failure(f"{prefix}error while parsing precision: could not find end of precision specifier")
        text = digits.group()
        if not text or len(text) > 18:
            what = "value out of range" if text else "invalid syntax"
            problem = f'error while converting precision to integer: strconv.Atoi: parsing "{text}": {what}'
            raise Failure(f"{prefix}error while parsing precision: {problem}")
        precision = int(text)
    letter = template[index]
    if letter not in "sdfebxXo":
        raise Failure(f'{prefix}unrecognized formatting clause "{letter}"')
    return Clause("", letter, precision), index + 1


def format_text(frame: Frame, template: str, arguments: tuple[Value, ...]) -> str:
    """The template with its clauses replaced. Raises Failure for clauses and arguments that do not go together."""
    pieces = []
    length = index = 0
    for clause in clauses(template, len(arguments)):
        if not clause.letter:
            piece = clause.text
        else:
            try:
                piece = _formatted(clause, arguments[index])
            except Failure as error:
                raise Failure(f"error during formatting: {error}") from None
            index += 1
        length += len(piece)
        frame.bound_characters(length)
        pieces.append(piece)
    return "".join(pieces)


def _formatted(clause: Clause, value: Value) -> str:
    letter = clause.letter.lower()
    run = _CLAUSES[letter]
    result = run(value, clause)
    if result is None:
        raise Failure(WANTED[letter].format(type_name(value)))
    return result


def _string(value: Value, _: Clause) -> str | None:
    return _printed(value)


def _decimal(value: Value, _: Clause) -> str | None:
    return str(int(value)) if type(value) in (int, Uint) else None


def _number(value: Value) -> float | str | None:
    if type(value) is str:
        return _SPECIAL_TEXTS.get(value)
    if type(value) is not float:
        return None
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "∞", "-inf": "-∞"}[repr(value)]
    return value


def _digits(clause: Clause) -> int:
    precision = _DEFAULT_PRECISION if clause.precision is None else clause.precision
    if precision > _MOST_PRECISE:
        raise Failure(f"precision {precision} exceeds maximum allowed precision {_MOST_PRECISE}")
    return precision


def _fixed(value: Value, clause: Clause) -> str | None:
    number = _number(value)
    return f"{number:,.{_digits(clause)}f}" if isinstance(number, float) else number


_EXPONENTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def _scientific(value: Value, clause: Clause) -> str | None:
    number = _number(value)
    if not isinstance(number, float):
        return number
    mantissa, exponent = f"{number:.{_digits(clause)}e}".split("e")
    # The English locale's notation, as golang.org/x/text prints it.
    power = f"{'⁻' if exponent[0] == '-' else ''}{exponent[1:].translate(_EXPONENTS)}"
    return f"{mantissa}\u202f×\u202f10{power}"


def _binary(value: Value, _: Clause) -> str | None:
    return format(int(value), "b") if type(value) in (int, Uint, bool) else None


def _hexadecimal(value: Value, clause: Clause) -> str | None:
    kind = type(value)
    if kind in (int, Uint):
        result = format(int(value), "x")
    elif kind is str:
        result = value.encode(errors="surrogatepass").hex()
    elif kind is bytes:
        result = value.hex()
    else:
        return None
    return result.upper() if clause.letter == "X" else result


def _octal(value: Value, _: Clause) -> str | None:
    return format(int(value), "o") if type(value) in (int, Uint) else None


_CLAUSES: dict[str, Callable[[Value, Clause], str | None]] = {
    "s": _string,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "x": _hexadecimal,
    "o": _octal,
}


def _printed(value: Value) -> str | None:
    """The text of a value by itself; None if its type has none."""
    match value:
        case bool() | None:
            return shown(value)
        case str():
            return value
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise Failure("could not convert argument to string") from None
        case float():
            return general(value)
        case int():
            return str(int(value))
        case TypeValue():
            return value.name
        case Duration():
            return duration_text(value)
        case Timestamp():
            return timestamp_text(value)
        case tuple():
            WORK.spend(len(value) + 1)
            return _bounded("[", ", ", (_nested(each) for each in value), "]")
        case Map():
            WORK.spend(len(value) + 1)
            pairs = sorted((_key(key), _nested(each)) for key, each in value.items())
            return _bounded("{", ", ", (f"{key}:{each}" for key, each in pairs), "}")
    return None


def _bounded(opening: str, separator: str, parts: object, closing: str) -> str:
    pieces: list[str] = []
    length = 0
    for each in parts:  # type: ignore[attr-defined]
        pieces.append(each)
        length += len(each) + len(separator)
        WORK.spend(len(each) // 10)
        if length > MOST_CHARACTERS:
            WORK.spend(MOST_CHARACTERS)
    return opening + separator.join(pieces) + closing


def _key(key: Value) -> str:
    return quoted(key) if type(key) is str else shown(key) if type(key) is bool else str(int(key))


def _nested(value: Value) -> str:
    """The text of a value inside of a collection, a literal of the language."""
    match value:
        case str():
            return quoted(value)
        case bytes():
            return f"b{quoted(value.decode(errors='replace'))}"
        case float() if value != value or value in (float("inf"), float("-inf")):
            return f'"{general(value)}"'
        case float():
            return f"{Decimal(value):.6f}"
        case Duration():
            return f'duration("{duration_text(value)}")'
        case Timestamp():
            return f'timestamp("{timestamp_text(value)}")'
    printed = _printed(value)
    if printed is None:
        raise Failure(f"no formatting function for {type_name(value)}")
    return printed


_ESCAPED = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\"}
_ESCAPED['"'] = '\\"'


def quoted(text: str) -> str:
    """The text in quotation marks, as Go's %q writes it."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
