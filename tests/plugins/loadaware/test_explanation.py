"""The numbers behind what LoadAwareScheduling says of a node, as `koordsched explain` shows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.clusters import run, run_json
from tests.plugins.objects import container, node, pod

FUTURE, PAST = "2999-01-01T00:00:00Z", "2020-01-01T00:00:00Z"
THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"
PLUGIN = "LoadAwareScheduling"


def config(folder: Path, **args: Any) -> str:
    """A configuration whose only plugins that know nodes apart are requests and loads."""
    enabled = [{"name": name} for name in ("PrioritySort", "NodeResourcesFit", "LoadAwareScheduling", "DefaultBinder")]
    profile = {
        "plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}},
        "pluginConfig": [{"name": PLUGIN, "args": args}],
    }
    path = folder / "config.yaml"
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    path.write_text(yaml.safe_dump({**head, "profiles": [profile]}))
    return str(path)


def metric(name: str, cpu: str | None, memory: str = "256Gi", at: str | None = FUTURE, **more: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"updateTime": at} if at else {}
    if cpu is not None:
        usage = {"nodeUsage": {"resources": {"cpu": cpu, "memory": memory}}}
        status["nodeMetric"] = {**usage, **more.pop("node_metric", {})}
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": name},
        "status": {**status, **more},
    }


def big(name: str, **annotations: str) -> dict[str, Any]:
    made: dict[str, Any] = node(name, cpu="96", memory="512Gi")
    made["metadata"]["annotations"] = annotations
    return made


def recent(name: str, on: str, cpu: str = "4", memory: str = "8Gi", **more: Any) -> dict[str, Any]:
    """A pod of production that the report cannot contain."""
    made: dict[str, Any] = pod(name, container(cpu=cpu, memory=memory), on=on, priority=9000, **more)
    return made


def details(folder: Path, *things: dict[str, Any], of: str = "new", **args: Any) -> dict[str, tuple[bool, list[str]]]:
    """Node -> whether it is feasible, and what is said of it."""
    (folder / "cluster.yaml").write_text("\n---\n".join(map(json.dumps, things)))
    file, configuration = str(folder / "cluster.yaml"), config(folder, **args)
    _, answer = run_json("explain", of, "-f", file, "--config", configuration)
    return {found["name"]: (found["feasible"], found["details"].get(PLUGIN, [])) for found in answer["nodes"]}


NEW = pod("new", priority=9000)
MEMORY = "memory 50% of 512Gi (threshold 95%): 256Gi measured + 0Gi for recent pods + 0.2Gi for this pod"


def test_measured_estimated_and_allowed(tmp_path: Path) -> None:
    nodes = [big("cool"), big("hot")]
    metrics = [metric("cool", "20"), metric("hot", "60")]
    things = [*nodes, *metrics, recent("a", "cool"), recent("b", "hot"), NEW]
    assert details(tmp_path, *things) == {
        "cool": (
            True,
            [
                "cpu 25% of 96 (threshold 65%): 20 measured + 3.4 for recent pods + 0.25 for this pod",
                "memory 51% of 512Gi (threshold 95%): 256Gi measured + 5.6Gi for recent pods + 0.2Gi for this pod",
            ],
        ),
        "hot": (
            False,
            [
                "cpu 66% of 96 (threshold 65%): 60 measured + 3.4 for recent pods + 0.25 for this pod",
                "memory 51% of 512Gi (threshold 95%): 256Gi measured + 5.6Gi for recent pods + 0.2Gi for this pod",
            ],
        ),
    }


@pytest.mark.parametrize(
    "metrics, args, feasible, lines",
    [
        ([], {}, True, ["there is no NodeMetric: the load of the node is unknown, and it scores 0"]),
        ([metric("n", None)], {}, True, ["nothing is measured yet: the node scores 0"]),
        ([metric("n", "1", at=PAST)], {}, False, [f"the NodeMetric of {PAST} has expired"]),
        ([metric("n", "1", at=None)], {}, False, ["the NodeMetric has no update time"]),
        (
            [metric("n", "1", at=PAST)],
            {"enableScheduleWhenNodeMetricsExpired": True},
            True,
            [f"the NodeMetric of {PAST} has expired: the node scores 0"],
        ),
        (
            [metric("n", "90", at=PAST)],
            {"filterExpiredNodeMetrics": False},
            False,
            [
                f"the NodeMetric of {PAST} has expired: the node scores 0",
                "cpu 94% of 96 (threshold 65%): 90 measured + 0 for recent pods + 0.25 for this pod",
                MEMORY,
            ],
        ),
    ],
)
def test_reports_that_say_nothing(
    tmp_path: Path, metrics: list[dict[str, Any]], args: dict[str, Any], feasible: bool, lines: list[str]
) -> None:
    # The newest time in the files says when they were written.
    assert details(tmp_path, big("n"), *metrics, metric("gone", "1"), NEW, **args) == {"n": (feasible, lines)}


def test_production_by_what_production_uses(tmp_path: Path) -> None:
    reported = {
        "namespace": "default",
        "name": "old",
        "priority": "koord-prod",
        "podUsage": {"resources": {"cpu": "2"}},
    }
    status = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": PAST}]}
    old = {**recent("old", "n"), "status": status}
    things = [big("n"), metric("n", "60", podsMetric=[reported]), old, recent("young", "n"), NEW]
    (said,) = details(tmp_path, *things, prodUsageThresholds={"cpu": 5}).values()
    assert said == (
        False,
        [
            "cpu 6% of 96 (threshold 5%): 2 measured of production + 3.4 for recent pods + 0.25 for this pod",
            "memory 1% of 512Gi: 0Gi measured of production + 5.6Gi for recent pods + 0.2Gi for this pod",
            "scored by cpu 66% of 96: 60 measured + 3.4 for recent pods + 0.25 for this pod",
            "scored by memory 51% of 512Gi: 256Gi measured + 5.6Gi for recent pods + 0.2Gi for this pod",
        ],
    )


def test_statistics(tmp_path: Path) -> None:
    usage = {"p95": {"resources": {"cpu": "40", "memory": "256Gi"}}}
    reported = {"aggregatedNodeUsages": [{"duration": "5m0s", "usage": usage}]}
    things = [big("n"), metric("n", "20", node_metric=reported), recent("a", "n"), NEW]
    profile = {"usageThresholds": {"cpu": 30}, "usageAggregationType": "p95", "scoreAggregationType": "p95"}
    periods = {"usageAggregatedDuration": "5m", "scoreAggregatedDuration": "10m"}
    (said,) = details(tmp_path, *things, aggregated={**profile, **periods}).values()
    assert said == (
        False,
        [
            "cpu 45% of 96 (threshold 30%): 40 measured (p95 of 5m0s) + 3.4 for recent pods + 0.25 for this pod",
            "memory 51% of 512Gi: 256Gi measured (p95 of 5m0s) + 5.6Gi for recent pods + 0.2Gi for this pod",
            "scored by cpu 4% of 96: 3.4 estimated for all pods (p95 of 10m0s is not reported) + 0.25 for this pod",
            "scored by memory 1% of 512Gi: 5.6Gi estimated for all pods (p95 of 10m0s is not reported) + "
            "0.2Gi for this pod",
        ],
    )


def test_an_annotation_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (said,) = details(tmp_path, big("n", **{THRESHOLDS: "{"}), metric("n", "20"), NEW).values()
    assert said[1][0].startswith("its annotations: ")
    assert said[1][1].startswith("cpu 21% of 96 (threshold 65%)")


def advice(folder: Path, *things: dict[str, Any], **args: Any) -> tuple[str, list[str]]:
    """The verdict, and what would have to change."""
    (folder / "cluster.yaml").write_text("\n---\n".join(map(json.dumps, things)))
    _, answer = run_json("explain", "new", "-f", str(folder / "cluster.yaml"), "--config", config(folder, **args))
    remedies = answer["advice"]["remedies"]
    return answer["advice"]["verdict"], [change["text"] for remedy in remedies for change in remedy["changes"]]


def test_pods_wait_for_a_load_to_ease(tmp_path: Path) -> None:
    """What is measured says nothing about the node when it is empty: the pod waits, it is not hopeless."""
    assert advice(tmp_path, big("hot"), metric("hot", "70"), NEW) == ("waits", ["7.371 cpu less in use"])
    old = [big("old"), metric("old", "1", at=PAST), metric("gone", "1")]
    assert advice(tmp_path, *old, NEW) == ("waits", ["a new NodeMetric"])


def test_a_pod_that_alone_is_too_much_never_fits(tmp_path: Path) -> None:
    greedy = pod("new", container(cpu="80", memory="1Gi"), priority=9000)
    assert advice(tmp_path, big("idle"), metric("idle", "0"), greedy) == (
        "never",
        ["a node with less load, or a higher threshold"],
    )
    assert advice(tmp_path, big("idle"), metric("idle", "0"), greedy, usageThresholds={"cpu": 80})[0] == "fits"


def test_the_table_shows_them(tmp_path: Path) -> None:
    things = [big("cool"), big("hot"), metric("cool", "20"), metric("hot", "70"), NEW]
    (tmp_path / "cluster.yaml").write_text("\n---\n".join(map(json.dumps, things)))
    shown = run("explain", "new", "-f", str(tmp_path / "cluster.yaml"), "--config", config(tmp_path)).stdout
    assert "hot, LoadAwareScheduling:\n  cpu 73% of 96 (threshold 65%): 70 measured + 0 for recent pods" in shown
    assert "cool, LoadAwareScheduling:\n  cpu 21% of 96 (threshold 65%): 20 measured + 0 for recent pods" in shown


def test_in_an_old_dump_reports_are_as_old_as_they_were(tmp_path: Path) -> None:
    things = [big("n"), big("m"), metric("n", "20", at="2020-01-01T00:10:00Z"), metric("m", "20", at=PAST), NEW]
    (tmp_path / "cluster.yaml").write_text("\n---\n".join(map(json.dumps, things)))
    shown = run("explain", "new", "-f", str(tmp_path / "cluster.yaml"), "--config", config(tmp_path))
    assert shown.stderr == "note: the age of reports is as of 2020-01-01T00:10:00Z, the newest time in the input\n"
    assert "Goes to n: 1 of 2 nodes feasible." in shown.stdout
    assert "m, LoadAwareScheduling:\n  the NodeMetric of 2020-01-01T00:00:00Z has expired" in shown.stdout


def test_times_of_dumps_that_cannot_be_read(tmp_path: Path) -> None:
    """They are passed over; the node without a time has expired, as in a cluster."""
    things = [big("n"), big("m"), metric("n", "20", at="yesterday"), metric("m", "20"), NEW]
    assert [feasible for feasible, _ in details(tmp_path, *things).values()] == [True, False]
