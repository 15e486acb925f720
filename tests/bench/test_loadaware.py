"""`python -m bench.loadaware` as a whole, on small clusters, and what its simulation reckons with."""

import json
from itertools import pairwise
from random import Random

import pytest
from click.testing import CliRunner

from bench.loadaware.__main__ import main
from bench.loadaware.simulation import Simulation
from bench.loadaware.workload import KINDS, NODE_CPU, Burst, bursts
from koordsched import config
from koordsched.fakecluster.hollow.usage import USAGE, read_usage

DEFAULT = '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}'
SCHEDULER = "default-scheduler"


def simulation(workload, nodes=2):
    return Simulation(config.resolve(config.load(DEFAULT)), nodes, workload, seed=1)


def pod(name, cpu, usage, lifetime):
    requests = {"cpu": cpu, "memory": "1Gi"}
    metadata = {"namespace": "default", "name": name, "uid": name, "labels": {"app": name}}
    metadata["annotations"] = {USAGE: json.dumps(usage)}
    spec = {"schedulerName": SCHEDULER, "containers": [{"name": "c", "resources": {"requests": requests}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, lifetime


def test_what_pods_use_while_they_run():
    # One node is taken as a whole by a pod that uses a quarter, the other one is asked for more than it has.
    first = Burst(0.0, [pod("a", str(NODE_CPU), {"cpu": str(NODE_CPU // 4)}, 600.0)])
    second = Burst(130.0, [pod("b", "1", {"cpu": "48"}, 300.0), pod("c", str(NODE_CPU), {"cpu": "1"}, 60.0)])
    moments = simulation([first, second]).run(900)
    found = {
        moment.minutes: (moment.highest, moment.over, moment.missing, moment.running, moment.pending)
        for moment in moments
    }
    assert found[1] == (25.0, 0, 0.0, 1, 0)
    assert found[3] == (150.0, 1, 16.0, 2, 1)
    # b has ended, and left its node to c, which ends, too.
    assert found[8] == (25.0, 0, 0.0, 2, 0)
    assert found[11] == (0.0, 0, 0.0, 0, 0)


def test_every_node_reports_once_a_minute():
    run, reports = simulation([Burst(0.0, [pod("a", "2", {"cpu": "3"}, 9000.0)])], nodes=8), {}
    add = run._offline.add

    def listening(thing):
        if thing["kind"] == "NodeMetric":
            reports.setdefault(thing["metadata"]["name"], []).append((run._clock.now, thing["status"]))
        return add(thing)

    run._offline.add = listening
    run.run(600)
    assert len(reports) == 8
    for told in reports.values():
        assert all(later - earlier == 60 for (earlier, _), (later, _) in pairwise(told))
    # In every quarter of a minute a quarter of the nodes.
    assert sorted({told[0][0] % 60 for told in reports.values()}) == [0, 15, 30, 45]
    busy = [told[-1][1] for told in reports.values() if told[-1][1]["podsMetric"]]
    assert [status["nodeMetric"]["nodeUsage"]["resources"]["cpu"] for status in busy] == ["3"]


def test_the_workload_is_the_same_for_every_configuration():
    one, other = (list(bursts(20, 1800, SCHEDULER, Random(5))) for _ in range(2))
    assert one == other
    assert {pod["metadata"]["labels"]["app"] for burst in one for pod, _ in burst.pods} <= {kind.name for kind in KINDS}
    for kind in KINDS:
        read_usage(json.dumps(kind.usage))


def test_the_command(tmp_path):
    packed = tmp_path / "packed.yaml"
    strategy = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    args = [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}]
    packed.write_text(json.dumps({**json.loads(DEFAULT), "profiles": [{"pluginConfig": args}]}))
    flags = ["--nodes", "12", "--minutes", "40", "--config", f"packed={packed}", "--out", str(tmp_path / "out")]
    ran = CliRunner().invoke(main, flags, catch_exceptions=False)
    assert ran.exit_code == 0
    moments = json.loads((tmp_path / "out" / "loadaware.json").read_text())["moments"]
    assert {name: len(found) for name, found in moments.items()} == {"by requests": 40, "packed": 40}
    # Pods that are packed by what they request do not spread what they use.
    assert sum(m["missing"] for m in moments["packed"]) > sum(m["missing"] for m in moments["by requests"])
    assert (tmp_path / "out" / "loadaware.svg").read_text().count("<polyline") == 4


@pytest.mark.parametrize("given, message", [("none.yaml", "expected NAME=FILE"), ("a=none.yaml", "none.yaml")])
def test_what_cannot_be_run(given, message, tmp_path):
    ran = CliRunner().invoke(main, ["--config", given, "--out", str(tmp_path)])
    assert ran.exit_code != 0
    assert message in str(ran.exception)
