"""Plugins of other distributions: the example is installed with pip and used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins.test_outoftree import MODULE, distribution

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
    # Of another length, else the module that pip compiled within the same second would count.
    module.write_text(module.read_text().replace("api_version=1", "api_version=1 + 1"))
    done = koordsched(newer, "check-config", str(EXAMPLE / "scheduler.yaml"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "error: initializing profiles: creating profile for scheduler name default-scheduler: "
        'initializing plugin "NodePrices": '
        "it cannot be used: koordsched-prices 0.1.0 is written for version 2 of the plugin interface, "
        "and this koordsched has version 1"
    )
    assert koordsched(newer, "check-config", "--strict", str(ROOT / "config" / "default.yaml")).returncode == 0


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
