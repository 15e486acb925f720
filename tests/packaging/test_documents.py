"""What the documents point at exists."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import click
import msgspec
import pytest

from koordsched.cli import main
from koordsched.cli.capacity import Plan, Unhelped
from koordsched.cli.capacity_report import CapacityReport, GroupSize
from koordsched.cli.nodegroups import NodeGroup
from koordsched.cli.removal import Removable
from koordsched.config.options import Options
from koordsched.engine.explain import NodeVerdict, Score
from koordsched.scheduling.advice import Advice, Change, Remedy
from koordsched.scheduling.answer import Answer
from koordsched.scheduling.decisions import Decision, Ranked, Rejection
from koordsched.scheduling.pendinggroups import PendingGroup
from koordsched.scheduling.scheduler import MAX_BINDING
from koordsched.shadow.judgement import Judgement
from koordsched.shadow.tally import Difference, Reason, Report, Times, Waited
from tests.cli.clusters import run
from tests.scheduling.test_releases import RELEASES
from tests.simulation.mutations import MUTATIONS
from tests.simulation.test_seeds import QUICK, SEEDS

COMMANDS = main.list_commands(click.Context(main))

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("config/**/*.md")])
_LINK = re.compile(r"\[[^\]]*\]\(([^)#]+)(?:#[^)]*)?\)")
_PATH = re.compile(r"`((?:koordsched|tests|config|docs|manifests|bench)/[\w./-]+)`")
_SCHEMA = [Answer, Decision, Ranked, Rejection, NodeVerdict, Score, Advice, Remedy, Change, PendingGroup]
_TEST = re.compile(r"`(tests/[\w/]+\.py)`((?: `test_\w+`,?)+)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_paths(document: Path) -> None:
    text = document.read_text()
    links = [link for link in _LINK.findall(text) if "://" not in link]
    missing = [link for link in links if not (document.parent / link).exists()]
    missing += [path for path in _PATH.findall(text) if not (ROOT / path).exists()]
    assert missing == []


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = f"{PROJECT['urls']['Homepage']}/blob/main/"
IMAGES = PAGES.replace("https://github.com/", "https://raw.githubusercontent.com/").replace("/blob/", "/")


def test_links_of_the_readme_work_where_the_package_index_shows_it() -> None:
    """It shows the text alone, so every link leads to the repository."""
    text = (ROOT / PROJECT["readme"]).read_text()
    links = [link for link in _LINK.findall(text) if not link.startswith("#")]
    assert len(links) > 20
    for link in links:
        path = link.removeprefix(IMAGES if link.endswith(".svg") else PAGES)
        assert path != link, f"{link}: not of {PROJECT['urls']['Homepage']}"
        assert (ROOT / path).exists(), link
    assert PROJECT["urls"]["Documentation"] == f"{PAGES}docs"
    assert PROJECT["urls"]["Changelog"] == f"{PAGES}CHANGELOG.md"


def test_the_changelog_has_this_version() -> None:
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()


def test_versions_of_kubernetes_are_those_that_are_tested() -> None:
    stated = f"API servers from 1.{min(RELEASES)} to 1.{max(RELEASES)}"
    assert stated in (ROOT / "README.md").read_text()
    assert stated in (ROOT / "docs" / "operations.md").read_text()


def test_the_number_of_bindings_is_the_same_everywhere() -> None:
    assert {field.name: field.default for field in fields(Options)}["max_pods_binding"] == MAX_BINDING
    for page in ("configuration", "deviations", "operations", "design"):
        text = (ROOT / "docs" / f"{page}.md").read_text()
        named = re.findall(
            r"max-pods-binding`(?: pods)? \((\d+)\)|at most (\d+)(?: bindings| \(`--max-pods-binding)", text
        )
        assert {int(first or second) for first, second in named} == {MAX_BINDING}, page


def test_reliability_counts_what_there_is() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text()
    assert f"holds {len(MUTATIONS)} deliberate defects" in text
    assert f"`make test` runs the first {QUICK} seeds, `make verify` {SEEDS};" in text


@pytest.mark.parametrize("struct", _SCHEMA, ids=lambda s: s.__name__)
def test_the_schema_of_explanations_is_documented(struct: type[msgspec.Struct]) -> None:
    text = (ROOT / "docs" / "explain.md").read_text()
    names = [field.encode_name for field in msgspec.structs.fields(struct)]
    assert [name for name in names if not re.search(rf"`(nodes\[\]\.)?{name}(\[\])?`", text)] == []


@pytest.mark.parametrize("struct", [Report, Times, Reason, Difference, Judgement, Waited], ids=lambda s: s.__name__)
def test_the_schema_of_trials_is_documented(struct: type[msgspec.Struct]) -> None:
    text = (ROOT / "docs" / "shadow.md").read_text()
    names = [field.encode_name for field in msgspec.structs.fields(struct)]
    assert [name for name in names if not re.search(rf"`{name}(\[\])?`", text)] == []


@pytest.mark.parametrize("struct", [CapacityReport, GroupSize, Plan, Unhelped, Removable], ids=lambda s: s.__name__)
def test_the_schema_of_node_groups_is_documented(struct: type[msgspec.Struct]) -> None:
    text = (ROOT / "docs" / "explain.md").read_text().partition("### Node groups")[2]
    names = [field.encode_name for field in msgspec.structs.fields(struct)]
    assert [name for name in names if not re.search(rf"`{name}(\[\])?`", text)] == []


def test_the_fields_of_node_groups_are_documented() -> None:
    text = (ROOT / "docs" / "explain.md").read_text().partition("### Node groups")[2]
    assert [field.name for field in msgspec.structs.fields(NodeGroup) if f"`{field.name}`" not in text] == []


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
