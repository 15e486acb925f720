"""Plugins of other distributions: the example is installed with pip and used; what is wrong with one is said."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

from koordsched.framework.declaration import API_VERSION, Declaration
from koordsched.plugins import IN_TREE, outoftree

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "config" / "examples" / "plugin"
WITHIN = 120.0
FILES = ("-f", str(EXAMPLE / "cluster.yaml"), "--config", str(EXAMPLE / "scheduler.yaml"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has installed the example."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(EXAMPLE, folder / "source")  # setuptools builds beside the source
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder / "site")]
    subprocess.run([*command, str(folder / "source")], check=True, timeout=WITHIN)
    return folder / "site"


def koordsched(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "koordsched", *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{site}"},
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )


def test_the_example_is_a_plugin_like_others(site: Path) -> None:
    done = koordsched(site, "simulate", "-o", "json", *FILES)
    assert done.returncode == 3, done.stderr
    pods = {each["pod"]: each for each in json.loads(done.stdout)["pods"]}
    assert pods["default/report"]["node"] == "spot-0"
    assert pods["default/batch"]["message"].startswith("0/2 nodes are available: 2 node(s) cost more than the pod may.")
    assert pods["default/batch"]["advice"]["remedies"][0]["changes"][0]["text"] == (
        "a max price of 30 (this pod has 20)"
    )
    assert koordsched(site, "check-config", "--strict", str(EXAMPLE / "scheduler.yaml")).returncode == 0


def test_its_arguments_are_checked(site: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "scheduler.yaml"
    wrong.write_text((EXAMPLE / "scheduler.yaml").read_text().replace("label:", "lable:"))
    done = koordsched(site, "check-config", str(wrong))
    assert (done.returncode, 'unknown field "lable"' in done.stderr) == (1, True), done.stderr


def test_without_it_the_name_is_unknown(tmp_path: Path) -> None:
    done = koordsched(tmp_path, "check-config", str(EXAMPLE / "scheduler.yaml"))
    assert (done.returncode, '"NodePrices" does not exist' in done.stderr) == (1, True)


def test_one_that_cannot_be_used_harms_only_who_names_it(site: Path, tmp_path: Path) -> None:
    newer = shutil.copytree(site, tmp_path / "site")
    module = newer / "koordsched_prices" / "__init__.py"
    module.write_text(module.read_text().replace("api_version=1", "api_version=2"))
    done = koordsched(newer, "check-config", str(EXAMPLE / "scheduler.yaml"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "error: initializing profiles: creating profile for scheduler name default-scheduler: "
        'initializing plugin "NodePrices": '
        "it cannot be used: koordsched-prices 0.1.0 is written for version 2 of the plugin interface, "
        "and this koordsched has version 1"
    )
    assert koordsched(newer, "check-config", "--strict", str(ROOT / "config" / "default.yaml")).returncode == 0


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


def test_a_module_that_is_being_imported(tmp_path: Path) -> None:
    """It imports what looks for plugins, and so itself."""
    distribution(tmp_path, "four", "X = four:D", f"import koordsched.plugins\n{MODULE.format(more=', api_version=1')}")
    program = "import four; from koordsched.plugins import IN_TREE; IN_TREE['X'](None, None)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines()[-1] == (
        "ValueError: it cannot be used: four was imported before koordsched.plugins; import that first"
    )
