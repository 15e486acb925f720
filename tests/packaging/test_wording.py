"""Plain English: words that hide the subject of a sentence do not appear in the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "koordsched"
PACKAGES = tuple(sorted(path.parent.name for path in ROOT.glob("*/__init__.py")))
BANNED = re.compile(
    r"\b(whoever|nobody|somebody|anybody|whom|(?:became|becomes) of|told of|nothing to say|seen to"
    r"|a word (?:in|on|about))\b",
    re.I,
)


def banned(text: str) -> list[str]:
    """The banned words of a text; those that a line break divides, too."""
    return [match.group() for match in BANNED.finditer(re.sub(r"\s*\n[\s#:]*", " ", text))]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_banned_words(package: str) -> None:
    modules = sorted((ROOT / package).rglob("*.py"))
    assert modules
    found = {str(path.relative_to(ROOT)): words for path in modules if (words := banned(path.read_text()))}
    assert found == {}


@pytest.mark.parametrize("text", ["Nobody's", "it is told\n    # of it", "what\nbecame of it", "whom"])
def test_they_are_found(text: str) -> None:
    assert banned(text)
