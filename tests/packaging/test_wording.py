"""Plain English: words that hide the subject of a sentence do not appear in the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
ROOT = CHECKOUT / "koordsched"
DOCUMENTS = tuple(
    str(path.relative_to(CHECKOUT))
    for folder in ("docs", "config", "manifests")
    for path in sorted((CHECKOUT / folder).rglob("*"))
    if path.suffix in (".md", ".yaml")
)
PACKAGES = tuple(sorted(path.parent.name for path in ROOT.glob("*/__init__.py")))
BANNED = re.compile(
    r"\b(whoever|nobody|somebody|anybody|whom|(?:became|becomes) of|told of|nothing to say|seen to"
    r"|a word (?:in|on|about)|holds up writes|self-made|could take it, even without)\b",
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


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", *DOCUMENTS])
def test_no_banned_words_in_what_users_read(name: str) -> None:
    assert banned((CHECKOUT / name).read_text()) == []


@pytest.mark.parametrize("text", ["Nobody's", "it is told\n    # of it", "what\nbecame of it", "whom"])
def test_they_are_found(text: str) -> None:
    assert banned(text)
