"""Tokens of the language, and what string literals stand for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from koordsched.plugins.dynamicresources.cel.source import Issues, SyntaxFailure

_ESCAPE = r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
_TOKEN = re.compile(
    rf"""
    (?P<SPACE>[\t\ \r\n\f]+|//[^\n]*)
  | (?P<TEXT>[bB]?(?:
        [rR](?:\"\"\"(?:.|\n)*?\"\"\"|'''(?:.|\n)*?'''|"[^"\n\r]*"|'[^'\n\r]*')
      | \"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\"|'''(?:{_ESCAPE}|[^\\])*?'''
      | "(?:{_ESCAPE}|[^\\"\n\r])*"|'(?:{_ESCAPE}|[^\\'\n\r])*'))
  | (?P<NUM_FLOAT>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
  | (?P<NUM_UINT>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
  | (?P<NUM_INT>0x[0-9a-fA-F]+|[0-9]+)
  | (?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<ESC_IDENTIFIER>`[A-Za-z0-9_.\-/\ ]+`)
  | (?P<OPERATOR>==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%])
    """,
    re.VERBOSE,
)
WORDS = frozenset(("in", "true", "false", "null"))
"""Identifiers that are tokens of their own."""

END = "<EOF>"


@dataclass(slots=True, frozen=True)
class Token:
    """`kind` is the text itself for operators and words, else the rule of the grammar."""

    kind: str
    text: str
    position: int


def tokenize(text: str, issues: Issues) -> list[Token]:
    """The tokens of a text, END at last. Raises SyntaxFailure at a character that begins none."""
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            shown = text[position : position + 1] if text[position] not in "\"'" else _broken_string(text, position)
            issues.report(position, f"Syntax error: token recognition error at: '{shown}'")
            raise SyntaxFailure
        rule, found = match.lastgroup or "", match.group()
        if rule == "TEXT":
            tokens.append(Token("BYTES" if found[0] in "bB" else "STRING", found, position))
        elif rule == "OPERATOR" or (rule == "IDENTIFIER" and found in WORDS):
            tokens.append(Token(found, found, position))
        elif rule != "SPACE":
            tokens.append(Token(rule, found, position))
        position = match.end()
    tokens.append(Token(END, END, len(text)))
    return tokens


_PARTIAL_ESCAPE = re.compile(r"\\(?:[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|[0-3][0-7]?)?")


def _broken_string(text: str, position: int) -> str:
    """What there is of a string literal up to the character that breaks it."""
    quote = text[position]
    body = re.compile(rf"{quote}(?:{_ESCAPE}|[^\\{quote}\n\r])*").match(text, position)
    assert body is not None
    end = body.end()
    if (partial := _PARTIAL_ESCAPE.match(text, end)) is not None:
        end = partial.end()
    shown = text[position : end + 1]
    return shown.replace("\t", "\\t").replace("\r", "\\r").replace("\n", "\\n")


_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LARGEST_RUNE = 0x10FFFF


class EscapeError(Exception):
    """An escape sequence stands for nothing."""


def _body(token: str) -> tuple[str, bool]:
    raw = token[0] in "rR"
    if raw:
        token = token[1:]
    quotes = 3 if token[:3] in ('"""', "'''") and len(token) >= 6 else 1
    return token[quotes:-quotes].replace("\r\n", "\n").replace("\r", "\n"), raw


def unquote(token: str) -> str:
    """The value of a string literal. Raises EscapeError for a code point that is none."""
    body, raw = _body(token)
    if raw or "\\" not in body:
        return body
    return re.sub(_ESCAPE, _character, body)


def _character(match: re.Match[str]) -> str:
    escape = match.group()[1:]
    if escape[0] in "xXuU":
        number = int(escape[1:], 16)
    elif escape[0].isdigit():
        number = int(escape, 8)
    else:
        return _SIMPLE.get(escape, escape)
    if number > _LARGEST_RUNE or 0xD800 <= number < 0xE000:
        raise EscapeError("invalid unicode code point")
    return chr(number)


def unquote_bytes(token: str) -> bytes:
    """The value of a bytes literal, `b` and all; \\x and octal escapes are bytes, all else is UTF-8."""
    body, raw = _body(token[1:])
    if raw or "\\" not in body:
        return body.encode(errors="surrogatepass")
    parts = []
    end = 0
    for match in re.finditer(_ESCAPE, body):
        parts.append(body[end : match.start()].encode(errors="surrogatepass"))
        escape = match.group()[1:]
        if escape[0] in "uU":
            raise EscapeError("unable to unescape string")
        if escape[0] in "xX":
            parts.append(bytes((int(escape[1:], 16),)))
        else:
            parts.append(bytes((int(escape, 8),)) if escape[0].isdigit() else _character(match).encode())
        end = match.end()
    parts.append(body[end:].encode(errors="surrogatepass"))
    return b"".join(parts)
