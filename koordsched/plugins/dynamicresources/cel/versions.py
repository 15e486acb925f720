"""Semantic versions, parsed as github.com/blang/semver does, with its errors: semver(), isSemver() and methods."""

from __future__ import annotations

import re
from typing import Final

from koordsched.cluster.kept import kept
from koordsched.plugins.dynamicresources.cel import types
from koordsched.plugins.dynamicresources.cel.declarations import Overload, function, method, traversal
from koordsched.plugins.dynamicresources.cel.errors import Failure, no_such_overload
from koordsched.plugins.dynamicresources.cel.stringformat import quoted
from koordsched.plugins.dynamicresources.cel.values import LARGEST_UINT, Opaque, Value

_DIGITS = re.compile(r"[0-9]*", re.ASCII)
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]*", re.ASCII)

_BUDGET = 4 << 20
"""Bytes of texts that are known."""

Numbers = tuple[int, int, int]
Pre = tuple[tuple[int, int, str], ...]
"""Parts of a pre-release, in their order: numbers before texts."""


class Semver(Opaque):
    """A version: `numbers` are major, minor and patch; a build does not count, but is part of the text."""

    __slots__ = ("_key", "numbers", "text")
    type = types.SEMVER
    go_name = "cel.Semver"

    def __init__(self, numbers: Numbers, pre: Pre, text: str) -> None:
        self.numbers = numbers
        self.text = text
        # A version without a pre-release comes after those with one.
        self._key = (numbers, not pre, pre)

    def equals(self, other: Value) -> bool:
        """Neither is greater. Raises Failure if the other is no version."""
        if type(other) is not Semver:
            raise no_such_overload()
        return self._key == other._key

    def compare(self, other: Semver) -> int:
        """-1, 0 or 1."""
        return int(self._key > other._key) - int(self._key < other._key)

    def __str__(self) -> str:
        return self.text


@kept(_BUDGET)
def parse_semver(text: str) -> Semver:
    """A version. Raises Failure with the library's text if it is none."""
    if not text:
        raise Failure("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise Failure("No Major.Minor.Patch elements found")
    major = _number("Major", parts[0])
    minor = _number("Minor", parts[1])
    patch, plus, build = parts[2].partition("+")
    patch, dash, pre = patch.partition("-")
    numbers = major, minor, _number("Patch", patch)
    version = Semver(numbers, _pre_release(pre) if dash else (), text)
    for each in build.split(".") if plus else ():
        if not each:
            raise Failure("Build meta data is empty")
        if not _IDENTIFIER.fullmatch(each):
            raise Failure(f"Invalid character(s) found in build meta data {quoted(each)}")
    return version


def _number(name: str, text: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise Failure(f"Invalid character(s) found in {name.lower()} number {quoted(text)}")
    if len(text) > 1 and text[0] == "0":
        raise Failure(f"{name} number must not contain leading zeroes {quoted(text)}")
    return _parsed(text)


def _parsed(text: str) -> int:
    if not text:
        raise Failure('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > len(str(LARGEST_UINT)) or int(text) > LARGEST_UINT:
        raise Failure(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def _pre_release(text: str) -> Pre:
    parts = []
    for each in text.split("."):
        if not each:
            raise Failure("Prerelease is empty")
        if _DIGITS.fullmatch(each):
            if len(each) > 1 and each[0] == "0":
                raise Failure(f"Numeric PreRelease version must not contain leading zeroes {quoted(each)}")
            parts.append((0, _parsed(each), ""))
        elif _IDENTIFIER.fullmatch(each):
            parts.append((1, 0, each))
        else:
            raise Failure(f"Invalid character(s) found in prerelease {quoted(each)}")
    return tuple(parts)


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped[:1] and stripped[0] in "0123456789" else f"0{stripped}"
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise Failure("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def _semver(text: str, normalize: bool = False) -> Semver:
    return parse_semver(_normalized(text) if normalize else text)


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        _semver(text, normalize)
    except Failure:
        return False
    return True


def _int64(number: int) -> int:
    return number if number < 1 << 63 else number - (1 << 64)


OVERLOADS: Final[tuple[Overload, ...]] = (
    function("semver", "string_to_semver", "string", "Semver", _semver, cost=traversal),
    function("semver", "string_bool_to_semver", "string, bool", "Semver", _semver, cost=traversal),
    function("isSemver", "is_semver_string", "string", "bool", _is_semver, cost=traversal),
    function("isSemver", "is_semver_string_bool", "string, bool", "bool", _is_semver, cost=traversal),
    method(
        "isGreaterThan", "semver_is_greater_than", "Semver, Semver", "bool", lambda one, other: one.compare(other) > 0
    ),
    method("isLessThan", "semver_is_less_than", "Semver, Semver", "bool", lambda one, other: one.compare(other) < 0),
    method("compareTo", "semver_compare_to", "Semver, Semver", "int", Semver.compare),
    method("major", "semver_major", "Semver", "int", lambda version: _int64(version.numbers[0])),
    method("minor", "semver_minor", "Semver", "int", lambda version: _int64(version.numbers[1])),
    method("patch", "semver_patch", "Semver", "int", lambda version: _int64(version.numbers[2])),
)
