"""What the documents point at exists."""

from __future__ import annotations

import re
from pathlib import Path

import click
import msgspec
import pytest

from koordsched.cli import main
from koordsched.engine.explain import NodeVerdict, Score
from koordsched.scheduling.advice import Advice, Advised, Change, Remedy
from tests.cli.clusters import run

COMMANDS = main.list_commands(click.Context(main))

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("config/**/*.md")])
_LINK = re.compile(r"\[[^\]]*\]\(([^)#]+)(?:#[^)]*)?\)")
_PATH = re.compile(r"`((?:koordsched|tests|config|docs|manifests|bench)/[\w./-]+)`")
_TEST = re.compile(r"`(tests/[\w/]+\.py)`((?: `test_\w+`,?)+)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_paths(document: Path) -> None:
    text = document.read_text()
    links = [link for link in _LINK.findall(text) if "://" not in link]
    missing = [link for link in links if not (document.parent / link).exists()]
    missing += [path for path in _PATH.findall(text) if not (ROOT / path).exists()]
    assert missing == []


@pytest.mark.parametrize("struct", [Advised, NodeVerdict, Score, Advice, Remedy, Change], ids=lambda s: s.__name__)
def test_the_schema_of_explanations_is_documented(struct: type[msgspec.Struct]) -> None:
    text = (ROOT / "docs" / "explain.md").read_text()
    names = [field.encode_name for field in msgspec.structs.fields(struct)]
    assert [name for name in names if not re.search(rf"`(nodes\[\]\.)?{name}(\[\])?`", text)] == []


def test_cases_of_the_deviations_exist() -> None:
    named = _TEST.findall((ROOT / "docs" / "deviations.md").read_text())
    assert len(named) > 5
    for path, tests in named:
        source = (ROOT / path).read_text()
        for test in re.findall(r"`(test_\w+)`", tests):
            assert f"def {test}(" in source, f"{path}: {test}"


def test_the_readme_names_the_commands_there_are() -> None:
    text = (ROOT / "README.md").read_text()
    named = re.findall(rf"koordsched ({'|'.join(COMMANDS)})\b", text)
    assert set(named) == set(COMMANDS)


def test_every_command_has_help() -> None:
    for command in COMMANDS:
        result = run(command, "--help")
        assert (result.exit_code, result.stdout.startswith("Usage: ")) == (0, True)
    assert run("--version").stdout == run("version").stdout == "koordsched 0.1.0\n"
