"""Starting among running pods: what they are like, and one small run."""

import json
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from bench.runningpods import encoded
from koordsched.api import core
from koordsched.api.decoding import Decoder

ROOT = Path(__file__).resolve().parents[2]
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "1-2-3", "controller": True}


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(("unique_labels", "label_sets"), [(True, 50), (False, 3)])
def test_running_pods(unique_labels, label_sets, stored):
    texts = list(encoded(["a", "b", "c"], 50, owner=OWNER, unique_labels=unique_labels, stored=stored))
    assert all(4_500 < len(text) < 6_500 for text in texts)
    pods = [Decoder(core.Pod)(text) for text in texts]
    assert [pod.metadata.name for pod in pods] == [f"pod-{number}" for number in range(50)]
    assert [pod.spec.node_name for pod in pods[:4]] == ["a", "b", "c", "a"]
    assert len({tuple(sorted(pod.metadata.labels.items())) for pod in pods}) == label_sets
    assert len({pod.metadata.uid for pod in pods}) == (50 if stored else 1)
    assert [orjson.loads(text)["metadata"]["ownerReferences"] for text in texts] == [[OWNER]] * 50


@pytest.mark.slow
def test_a_small_start(tmp_path):
    command = [sys.executable, "-m", "bench.startup", "--nodes", "6", "--pods", "600", "--rounds", "1", "--relist"]
    done = subprocess.run([*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "startup.json").read_text())
    (start,) = report["starts"]
    # The pod that is to be bound comes after the listing. There are two pages of pods.
    assert start["listing"]["objects"] == 6 + 600
    assert start["x"] == pytest.approx(start["first_binding"] / start["listing"]["seconds"], rel=0.01)
    assert start["peak_rss_mib"] > 50
    relist = start["relist"]
    assert relist["seconds"] > 0
    for before, after in (relist["block_ms"], relist["block_cpu_ms"]):
        assert 0 < before <= after
    assert "listed anew in" in done.stdout


def test_only_the_embedded_server_can_be_told_to_forget(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}")
    command = [sys.executable, "-m", "bench.startup", "--relist", "--kubeconfig", str(kubeconfig)]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "bench: --relist is for the embedded server: no other can be told to forget its history\n"
