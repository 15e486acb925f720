"""Defects that no test once found, planted in a copy of the code: each has a test now that finds it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLANTED = json.loads((Path(__file__).parent / "planted.json").read_bytes())
"""What the defect does -> file, sound code, defective code, the tests that find it."""


@pytest.mark.parametrize("defect", PLANTED)
def test_what_is_planted_fits_the_code(defect):
    file, sound, _, tests = PLANTED[defect]
    assert (ROOT / file).read_text().count(sound) == 1
    assert (ROOT / tests).is_file()


def outcome(checkout, tests):
    """What pytest answers with: 0 if all passed, 1 if one failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", tests]
    environment = os.environ | {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, timeout=300, check=False)


@pytest.fixture
def checkout(tmp_path):
    """A copy of the code, with everything else as it is."""
    for thing in ROOT.iterdir():
        if thing.name == "koordsched":
            shutil.copytree(thing, tmp_path / thing.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif not thing.name.startswith("."):
            (tmp_path / thing.name).symlink_to(thing)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("defect", PLANTED)
def test_each_is_found(defect, checkout):
    file, sound, defective, tests = PLANTED[defect]
    target = checkout / file
    target.write_text(target.read_text().replace(sound, defective))
    found = outcome(checkout, tests)
    assert found.returncode == 1, found.stdout.decode()[-2000:]


@pytest.mark.slow
def test_the_same_tests_pass_without(checkout):
    for tests in sorted({planted[3] for planted in PLANTED.values()}):
        found = outcome(checkout, tests)
        assert found.returncode == 0, found.stdout.decode()[-2000:]
