"""The text of an expression, and errors at places of it, as cel-go shows them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from koordsched.plugins.dynamicresources.cel.errors import CompileError

NOWHERE = -1
"""The position of errors that are about the whole text."""

_MOST_ERRORS = 100
_LONGEST_LINE = 16_384
_WIDE_DOT, _WIDE_MARK = "\uff0e", "\uff3e"


class SyntaxFailure(Exception):
    """Parsing cannot go on; the issue is reported."""


@dataclass
class Issues:
    """Errors found in `text`; positions are indices of code points."""

    text: str
    found: list[tuple[int, str]] = field(default_factory=list)

    def report(self, position: int, message: str) -> None:
        """Adds an error."""
        self.found.append((position, message))

    def raise_any(self) -> None:
        """Raises CompileError if there are errors."""
        if self.found:
            raise CompileError(f"compilation failed: {self}")

    def __str__(self) -> str:
        """All errors in the order of the text, each with its line and a mark below."""
        starts = [0] + [index + 1 for index, character in enumerate(self.text) if character == "\n"]
        shown = [self._show(starts, *each) for each in sorted(self.found[:_MOST_ERRORS], key=lambda each: each[0])]
        if (more := len(self.found) - _MOST_ERRORS) > 0:
            shown.append(f"{more} more errors were truncated")
        return "\n".join(shown)

    def _show(self, starts: list[int], position: int, message: str) -> str:
        if position == NOWHERE:
            return f"ERROR: <input>:-1:0: {message}"
        line = bisect_right(starts, position) - 1
        column = position - starts[line]
        shown = f"ERROR: <input>:{line + 1}:{column + 1}: {message}"
        code = self.text[starts[line] :].partition("\n")[0].replace("\t", " ")
        if len(code.encode(errors="surrogatepass")) > _LONGEST_LINE:
            return shown
        dots = "".join("." if character < "\x80" else _WIDE_DOT for character in code[:column])
        mark = "^" if column >= len(code) or code[column] < "\x80" else _WIDE_MARK
        return f"{shown}\n | {code}\n | {dots}{mark}"
