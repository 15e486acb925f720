"""The demonstration's expectations: what counts as a difference, and that the data is right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cli.demo.expectations import Expectations, differences, load_expectations
from koordsched.cli.demo.observation import Observation, Tally
from koordsched.plugins.loadaware.kinds import NODE_METRICS
from tests.cli.clusters import run_json
from tests.plugins.nodenumaresource.machines import detail, topology

EXAMPLES = Path(__file__).parents[2] / "config" / "examples"

EXPECTED = """\
nodes: 2
workloads:
  - workload: Deployment ns/web
    running: 2
    nodes: 2
    zones: {a: 1, b: 1}
  - workload: Job ns/job
    succeeded: 1
  - workload: Pod ns/p
    pending: [{count: 1, reason: Unschedulable, message: too big}]
"""


@pytest.fixture
def expected(tmp_path: Path) -> Expectations:
    (tmp_path / "expected.yaml").write_text(EXPECTED)
    return load_expectations(tmp_path / "expected.yaml")


def tallies(**changes: Any) -> dict[str, Tally]:
    """What is expected, but for the fields of the Deployment that are given."""
    web = Tally(running=2, nodes={"n1", "n2"}, zones=Counter(a=1, b=1))
    for name, value in changes.items():
        setattr(web, name, value)
    pending = Tally(pending=Counter({("Unschedulable", "too big"): 1}))
    return {"Deployment ns/web": web, "Job ns/job": Tally(succeeded=1, nodes={"n1"}), "Pod ns/p": pending}


@pytest.mark.parametrize(
    "changes, texts",
    [
        ({}, []),
        ({"running": 1}, ["1 running, not 2"]),
        ({"succeeded": 1}, ["1 succeeded, not 0"]),
        ({"nodes": {"n1"}}, ["on 1 nodes, not 2"]),
        ({"zones": Counter(a=2)}, ["in zones a 2, not a 1, b 1"]),
        ({"pending": Counter({("Unschedulable", "x"): 2})}, ["2 pending, not 0, because of Unschedulable: x"]),
    ],
)
def test_differences(expected: Expectations, changes: dict[str, Any], texts: list[str]) -> None:
    assert differences(expected, tallies(**changes)) == [f"Deployment ns/web: {text}" for text in texts]


def test_missing_and_unexpected_workloads(expected: Expectations) -> None:
    found = tallies()
    del found["Job ns/job"]
    found["Pod ns/q"] = Tally(running=1)
    assert differences(expected, found) == ["Job ns/job: 0 succeeded, not 1", "Pod ns/q: was not expected"]
    found = tallies()
    found["Pod ns/p"] = Tally(pending=Counter({("Unschedulable", "other"): 1}))
    assert sorted(differences(expected, found)) == [
        "Pod ns/p: 0 pending, not 1, because of Unschedulable: too big",
        "Pod ns/p: 1 pending, not 0, because of Unschedulable: other",
    ]


def test_a_typing_error_is_found(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text("nodes: 2\nworkloads: [{workload: a, runing: 1}]")
    with pytest.raises(ValueError, match=r"e\.yaml: Object contains unknown field `runing` - at `\$\.workloads\[0\]`"):
        load_expectations(tmp_path / "e.yaml")


def reports(*nodes: tuple[str, str]) -> list[dict[str, Any]]:
    """NodeMetrics of nodes that use so many CPUs."""
    return [
        {
            "apiVersion": NODE_METRICS.api_version,
            "kind": NODE_METRICS.name,
            "metadata": {"name": name},
            "status": {
                "updateTime": "2026-01-01T00:00:00Z",
                "nodeMetric": {"nodeUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}}},
            },
        }
        for name, cpu in nodes
    ]


def test_the_data_agrees_with_an_offline_simulation(tmp_path: Path) -> None:
    """The scheduler alone, without time and API server, leaves the same pods pending for the same reasons."""
    (tmp_path / "metrics.yaml").write_text(yaml.dump_all(reports(("busy-0", "6"), ("quiet-0", "0"), ("quiet-1", "0"))))
    cpus = topology(detail(sockets=2, numa_per_socket=1, cores=16, apart=True))
    (tmp_path / "topology.yaml").write_text(yaml.dump(cpus | {"metadata": cpus["metadata"] | {"name": "large-2"}}))
    expected = load_expectations(EXAMPLES / "expected.yaml")
    template = EXAMPLES / "node-templates" / "demo.yaml"
    objects = "-f", str(EXAMPLES / "workloads"), "-f", str(tmp_path), "--config", str(EXAMPLES / "demo-scheduler.yaml")
    _, report = run_json("simulate", *objects, "--nodes", "100", "--node-template", str(template))
    placed = Counter(entry["workload"] for entry in report["pods"] if "node" in entry)
    pending = Counter((entry["workload"], entry["message"]) for entry in report["pods"] if "node" not in entry)
    for workload in expected.workloads:
        if workload.workload != "Job demo/report":  # three of its six pods at a time
            assert placed.pop(workload.workload, 0) == workload.running
        for group in workload.pending:
            if group.reason != "SchedulingGated":  # the API server's words, not the scheduler's
                assert pending.pop((workload.workload, group.message), 0) == group.count
    assert (placed, [workload for workload, _ in pending]) == ({"Job demo/report": 3}, ["Pod demo/gated"])


# --- what is observed --------------------------------------------------------------------------------------------


def pod(uid: str, node: str = "", phase: str = "Pending", message: str = "", cpu: str = "0") -> core.Pod:
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "R", "message": message}] if message else []
    return convert(
        {
            "metadata": {"name": uid, "namespace": "ns", "uid": uid},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": phase, "conditions": conditions},
        },
        core.Pod,
    )


def test_observation() -> None:
    now = [10.0]
    seen = Observation(lambda: now[0], {"n1": "a"})
    seen.upsert(pod("x"))
    assert seen.tallies() == {"Pod ns/x": Tally(waiting=1)}
    assert seen.placing("Pod ns/x") == (0, 0.0)
    now[0] = 12.5
    seen.upsert(pod("x", "n1"))
    assert seen.tallies() == {"Pod ns/x": Tally(starting=1, nodes={"n1"}, zones=Counter(a=1))}
    now[0] = 20.0
    seen.upsert(pod("x", "n1", "Running"))
    assert seen.placing("Pod ns/x") == (1, 2.5)
    seen.upsert(pod("y", message="m"))
    assert seen.tallies()["Pod ns/y"] == Tally(pending=Counter({("R", "m"): 1}))
    seen.upsert(pod("z", "n2", "Succeeded"))
    assert seen.tallies()["Pod ns/z"] == Tally(succeeded=1, nodes={"n2"})
    seen.delete(pod("z"))
    assert sorted(key.name for key in seen.known()) == ["x", "y"]
    seen.upsert(pod("v", "n1", "Running", cpu="250m"))
    seen.upsert(pod("w", "n1", cpu="1"))
    seen.upsert(pod("u", "n1", "Failed", cpu="1"))
    seen.upsert(pod("t", "n2", "Running", cpu="1"))
    assert (seen.requested_cpu("n1"), seen.requested_cpu("n3")) == (1.25, 0.0)
    assert (seen.requested_by("ns/v"), seen.requested_by("ns/q")) == (0.25, 0.0)
    for key in seen.known():
        seen.delete_key(key)
    assert seen.tallies() == {}
