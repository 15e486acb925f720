"""requirements.lock: complete, exact, with digests, and what the image takes of it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SECTION = re.compile(r"^# --- to (\w+)$", re.MULTILINE)
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+) \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


def sections() -> dict[str, dict[str, str]]:
    """Section -> package -> version."""
    parts = SECTION.split((ROOT / "requirements.lock").read_text())[1:]
    return {
        name: {canonicalize_name(package): version for package, version, _ in _PIN.findall(text)}
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def test_every_line_belongs_to_a_pin_with_digests() -> None:
    text = (ROOT / "requirements.lock").read_text()
    rest = _PIN.sub("", text)
    assert [line for line in rest.splitlines() if line and not line.startswith("# ")] == []


@pytest.mark.parametrize(
    "section, requirements",
    [
        ("run", PROJECT["project"]["dependencies"]),
        ("build", PROJECT["build-system"]["requires"]),
        ("develop", PROJECT["project"]["optional-dependencies"]["dev"]),
    ],
)
def test_what_the_project_asks_for_is_pinned(section: str, requirements: list[str]) -> None:
    pins = sections()[section]
    for requirement in map(Requirement, requirements):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), requirement


def test_no_package_is_in_two_sections() -> None:
    run, build, develop = (set(packages) for packages in sections().values())
    assert not run & develop
    assert not build & (run | develop)


def test_the_image_takes_the_sections_that_run_and_build() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    (pattern,) = re.findall(r"sed '/(\^# --- to \w+)/,\$d' requirements\.lock", dockerfile)
    assert pattern == "^# --- to develop"
    assert list(sections()) == ["run", "build", "develop"]


def test_the_examples_and_the_definitions_are_part_of_the_package() -> None:
    examples = ROOT / "koordsched" / "cli" / "data" / "examples"
    assert examples.resolve() == ROOT / "config" / "examples"
    assert examples.with_name("crds").resolve() == ROOT / "manifests" / "crds"
    assert "cli/data/**/*" in PROJECT["tool"]["setuptools"]["package-data"]["koordsched"]
