"""`python -m bench.shadow` as a whole, on a small cluster."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("beside", ["binder", "koordsched"])
def test_a_small_trial(beside, tmp_path):
    command = [sys.executable, "-m", "bench.shadow", "--nodes", "20", "--pods", "60", "--rate", "200"]
    done = subprocess.run(
        [*command, "--beside", beside, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"60 decisions beside the {beside} on 20 nodes" in done.stdout
    measured = json.loads((tmp_path / "shadow.json").read_text())
    assert 0 < measured["cpu_ms_per_pod"] < 50
    assert sum(measured["report"]["kinds"].values()) == measured["report"]["decisions"] == 60
