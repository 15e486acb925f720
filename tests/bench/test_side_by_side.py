"""Schedulers side by side: command lines, and one small run of everything."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import _commands
from bench.processes import Command, CommandFailed, write_config
from koordsched import config

ROOT = Path(__file__).resolve().parents[2]


def test_command_with_placeholders():
    command = Command.parse("go=kube-scheduler --config {config} -v 2")
    assert command.name == "go"
    assert command.arguments({"config": "/a b/c.json"}) == ["kube-scheduler", "--config", "/a b/c.json", "-v", "2"]


@pytest.mark.parametrize(("score_every_node", "percentage"), [(False, None), (True, 100)])
def test_configuration_without_client_limits(tmp_path, score_every_node, percentage):
    path = tmp_path / "config.json"
    write_config(path, "bench-1", Path("/k"), {"plugins": {"score": {}}}, score_every_node=score_every_node)
    written = json.loads(path.read_text())
    assert written["clientConnection"] == {"kubeconfig": "/k", "qps": -1, "burst": 100000}
    assert written["profiles"] == [{"plugins": {"score": {}}, "schedulerName": "bench-1"}]
    assert written.get("percentageOfNodesToScore") == percentage
    resolved = config.resolve(config.load(path.read_text()))
    assert resolved.rate_limit is None
    assert not resolved.leader_election.leader_elect


@pytest.mark.parametrize("text", ["", "name", "name=", "=command", "name=  "])
def test_bad_commands(text):
    with pytest.raises(ValueError, match="is not of the form"):
        Command.parse(text)


@pytest.mark.parametrize("template", ["x {nothing}", "x {", "x {0}"])
def test_bad_placeholders(template):
    with pytest.raises(CommandFailed, match="a: unknown placeholder or stray brace"):
        Command("a", template).arguments({"name": "n"})


@pytest.mark.parametrize(
    ("with_yardstick", "ceiling_only", "names"),
    [
        (True, False, ["bare binder", "bare binder + events", "go"]),
        (True, True, ["bare binder + events", "go"]),
        (False, False, ["go"]),
        (False, True, ["go"]),
    ],
)
def test_yardsticks_that_take_part(with_yardstick, ceiling_only, names):
    commands = _commands(("go=kube-scheduler",), with_yardstick=with_yardstick, ceiling_only=ceiling_only)
    assert [command.name for command in commands] == names
    assert [command.decides for command in commands] == [name == "go" for name in names]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=180
    )


@pytest.mark.slow
@pytest.mark.parametrize("rate", ["0", "200"])
def test_everybody_binds_all_pods(tmp_path, rate):
    done = run("--nodes", "20", "--pods", "60", "--rate", rate, "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "results.json").read_text())
    assert [result["scheduler"] for result in report["results"]] == [
        "bare binder",
        "bare binder + events",
        "koordsched",
    ]
    for result in report["results"]:
        assert (result["bound"], result["nodes"], result["error"]) == (60, 20, "")
        assert sum(result["series"]) == 60
        assert result["cpu_ms_per_pod"] > 0
        assert (result["latency"] is None) == (rate == "0")
        # Only ours says for how long its event loop was blocked.
        assert (result["block_ms"] is not None) == (result["scheduler"] == "koordsched")
    assert [result["events_written"] for result in report["results"]] == [0, 60, 60]
    assert (tmp_path / "SchedulingBasic.svg").read_text().startswith("<svg")
    (row,) = [line for line in (tmp_path / "table.md").read_text().splitlines() if "SchedulingBasic" in line]
    assert row.startswith("| SchedulingBasic (20 nodes, 60 pods) | koordsched |")


@pytest.mark.slow
def test_a_scheduler_that_ends_is_reported(tmp_path):
    done = run(
        "--no-yardstick",
        "--nodes",
        "2",
        "--pods",
        "2",
        "--out",
        str(tmp_path),
        "--scheduler",
        "broken=/bin/false {name}",
    )
    assert done.returncode == 1
    (result,) = json.loads((tmp_path / "results.json").read_text())["results"]
    assert "ended with code 1" in result["error"]
