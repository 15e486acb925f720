"""Plugins of other distributions: what is wrong with one is said, and harms no other."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

from koordsched.framework.declaration import API_VERSION, Declaration
from koordsched.plugins import IN_TREE, outoftree


def distribution(folder: Path, name: str, points: str, module: str = "") -> None:
    """An installed distribution that has one module of its name, and these entry points."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[koordsched.plugins]\n{points}\n")
    (folder / f"{name}.py").write_text(dedent(module))


MODULE = """
from koordsched.config.catalog import entry
from koordsched.framework.declaration import Declaration

D = Declaration("X", None, entry("filter"){more})
NONE = 3
"""


def declared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Declaration]:
    monkeypatch.syspath_prepend(folder)
    return {each.name: each for each in outoftree.declarations(IN_TREE.keys())}


def reason(declaration: Declaration) -> str:
    handle: Any = SimpleNamespace()
    with pytest.raises(ValueError, match="it cannot be used: ") as caught:
        declaration.factory(None, handle)
    return str(caught.value).removeprefix("it cannot be used: ")


@pytest.mark.parametrize(
    ("points", "module", "expected"),
    [
        ("X = one_a:D", MODULE.format(more=""), "one_a 1.0 does not say for which version of the plugin interface"),
        (
            "X = one_b:D",
            MODULE.format(more=", api_version=7"),
            "one_b 1.0 is written for version 7 of the plugin interface",
        ),
        ("X = one_c:NONE", MODULE.format(more=""), "one_c:NONE of one_c 1.0 is not a Declaration"),
        ("X = one_d:missing", MODULE.format(more=""), "one_d 1.0 cannot be loaded: AttributeError: "),
        ("X = one_e:D", "import nothing_of_this_name", "one_e 1.0 cannot be loaded: ModuleNotFoundError: "),
        ("X = one_f:D", "1 / 0", "one_f 1.0 cannot be loaded: ZeroDivisionError: "),
        ("Y = one_g:D", MODULE.format(more=f", api_version={API_VERSION}"), "one_g 1.0 declares it as X"),
    ],
)
def test_what_is_wrong_is_said(
    points: str, module: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(tmp_path, points.split()[2].partition(":")[0], points, module)
    found = declared(tmp_path, monkeypatch)[points.split()[0]]
    assert reason(found).startswith(expected)


def test_two_of_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("two_a", "two_b"):
        distribution(tmp_path, name, f"X = {name}:D", MODULE.format(more=f", api_version={API_VERSION}"))
    found = declared(tmp_path, monkeypatch)
    assert reason(found["X"]) == "several distributions have it: two_a 1.0 and two_b 1.0"


def test_no_built_in_plugin_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    distribution(tmp_path, "three", "NodeResourcesFit = three:D", MODULE.format(more=", api_version=1"))
    with caplog.at_level(logging.WARNING):
        assert "NodeResourcesFit" not in declared(tmp_path, monkeypatch)
    assert "plugin NodeResourcesFit of three 1.0 is ignored: there is a built-in one of this name" in caplog.text


def test_a_module_that_is_being_imported_while_plugins_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = "from koordsched.plugins import outoftree\nFOUND = outoftree.declarations(())\n"
    distribution(tmp_path, "five", "X = five:D", f"{looks}{MODULE.format(more=', api_version=1')}")
    monkeypatch.syspath_prepend(tmp_path)
    [found] = importlib.import_module("five").FOUND
    assert reason(found) == "five was imported before koordsched.plugins; import that first"
