"""`koordsched load nodes` on files: the table for people, and the answer for programs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.cli.clusters import run, run_json
from tests.plugins.loadaware.test_explanation import PAST, THRESHOLDS, big, config, metric, recent

TABLE = """
NODE REPORT RESOURCE TOTAL MEASURED ESTIMATED USE THRESHOLD PROD
hot fresh, AGE cpu 96.0 24.0 3.4 29% 20% - refuses pods
memory 512.0Gi 256.0Gi 5.6Gi 51% - -
silent expired, AGE cpu 96.0 48.0 0.0 50% 65% - refuses pods
memory 512.0Gi 256.0Gi 0.0Gi 50% - -
wrong none cpu 96.0 0.0 0.0 0% 65% -
memory 512.0Gi 0.0Gi 0.0Gi 0% - -
wrong: PROBLEM
"""


def test_the_load_of_all_nodes(tmp_path: Path) -> None:
    things = (
        big("hot", **{THRESHOLDS: '{"usageThresholds": {"cpu": 20}}'}),
        metric("hot", "24"),
        recent("new", "hot"),
        big("silent"),
        metric("silent", "48", at=PAST),
        big("wrong", **{THRESHOLDS: "{"}),
    )
    path = tmp_path / "cluster.yaml"
    path.write_text("\n---\n".join(map(json.dumps, things)))
    arguments = ("load", "nodes", "-f", str(path), "--config", config(tmp_path, usageThresholds={"cpu": 65}))
    shown = run(*arguments)
    assert shown.exit_code == 0, shown.output
    lines = (re.sub(r"-?\d+ s", "AGE", " ".join(line.split())) for line in shown.stdout.splitlines())
    assert [re.sub("^wrong: .+", "wrong: PROBLEM", line) for line in lines] == TABLE.split("\n")[1:-1]
    first, *_ = run_json(*arguments)[1]["nodes"]
    assert first["refuses"]
    assert first["resources"][0] == {
        "resource": "cpu",
        "total": 96_000,
        "measured": 24_000,
        "estimated": 3_400,
        "threshold": 20,
        "prodThreshold": 0,
    }
