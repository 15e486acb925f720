"""`make test-all-pythons`: which interpreters it takes, and what it says of those that are missing or fail."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("pythons", ROOT / "tools" / "pythons.py")
assert _SPEC is not None
pythons: Any = importlib.util.module_from_spec(_SPEC)
assert _SPEC.loader is not None
_SPEC.loader.exec_module(pythons)


def interpreter(path: Path, says: str, code: int = 0) -> Path:
    """A program in the place of an interpreter that answers so to every question."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {says}\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of the path, and pyenv's root."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    (tmp_path / "bin").mkdir()
    return tmp_path


def test_the_one_on_the_path_comes_first(machine: Path) -> None:
    interpreter(machine / "pyenv" / "versions" / "3.12.1" / "bin" / "python3.12", "12")
    first = interpreter(machine / "bin" / "python3.12", "12")
    assert pythons.find(12) == first


def test_what_pyenv_puts_on_the_path_and_refuses_is_passed_over(machine: Path) -> None:
    interpreter(machine / "bin" / "python3.13", "'pyenv: python3.13: command not found'", 127)
    real = interpreter(machine / "pyenv" / "versions" / "3.13.0" / "bin" / "python3.13", "13")
    assert pythons.find(13) == real


def test_none_is_none(machine: Path) -> None:
    interpreter(machine / "bin" / "python3.14", "12")
    assert pythons.find(14) is None


def test_absent_ones_are_named_and_failures_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = sys.version_info.minor
    good, bad, absent = [minor for minor in pythons.MINORS if minor != own][:3]

    def test(python: Path, minor: int) -> str:
        if minor == bad:
            raise pythons.Failed("install: no wheel")
        return "612 passed"

    monkeypatch.setattr(pythons, "find", lambda minor: None if minor == absent else Path("python"))
    monkeypatch.setattr(pythons, "test", test)
    assert pythons.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert f"python 3.{own}: this one, see make test" in lines
    assert f"python 3.{good}: 612 passed" in lines
    assert f"python 3.{bad}: FAILED after 0 s: install: no wheel" in lines
    assert f"python 3.{absent}: skipped, not installed" in lines
    monkeypatch.setattr(pythons, "find", lambda minor: None)
    assert pythons.main() == 0


def test_what_is_run_exists_and_versions_are_those_declared() -> None:
    assert [path for path in pythons.SMOKE if not (ROOT / path).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [c.rpartition(" ")[2] for c in project["classifiers"] if c.startswith("Programming Language :: Python")]
    assert declared == [f"3.{minor}" for minor in pythons.MINORS]
    assert "make test-all-pythons || failed=1" in (ROOT / ".ci" / "run").read_text().splitlines()
