"""`koordsched simulate`: what is made of the input, where pods go, what is said when it cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from koordsched.fakecluster import snapshot
from koordsched.fakecluster.cluster import new_cluster
from tests.cli.clusters import bound, node, pod, run, run_json, write

EXAMPLES = Path(__file__).parents[2] / "config" / "examples"


def outcomes(report: Any) -> dict[str, str]:
    return {entry["pod"]: entry.get("node", "") for entry in report["pods"]}


def test_all_placed(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", node("n1"), pod("a", "3"), pod("b", "1"))
    code, report = run_json("simulate", "-f", file)
    assert (code, report["nodes"], report["placed"], report["pending"], report["seed"]) == (0, 1, 2, 0, 0)
    assert report["pods"] == [
        {
            "pod": "default/a",
            "profile": "default-scheduler",
            "workload": "Pod default/a",
            "node": "n1",
            "feasibleNodes": 1,
        },
        {
            "pod": "default/b",
            "profile": "default-scheduler",
            "workload": "Pod default/b",
            "node": "n1",
            "feasibleNodes": 1,
        },
    ]


def test_some_pending(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", node("n1"), pod("a", "3"), pod("b", "2"), pod("c", "1"))
    code, report = run_json("simulate", "-f", file)
    assert code == 3
    assert outcomes(report) == {"default/a": "n1", "default/b": "", "default/c": "n1"}
    (pending,) = (entry for entry in report["pods"] if "node" not in entry)
    assert pending["reason"] == "Unschedulable"
    assert pending["message"].startswith("0/1 nodes are available: 1 Insufficient cpu. ")
    assert pending["advice"]["verdict"] == "waits"
    assert pending["advice"]["emptyNode"] == "n1"


def test_priority_decides_who_comes_first(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.yaml",
        node("n1"),
        pod("low", "3"),
        pod("high", "3", priorityClassName="important"),
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "important"},
            "value": 1000,
        },
    )
    _, report = run_json("simulate", "-f", file)
    assert outcomes(report) == {"default/high": "n1", "default/low": ""}


def test_manifests_are_completed_as_by_an_api_server(tmp_path: Path) -> None:
    limited = pod("limited")
    limited["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "3"}}  # becomes the request
    del limited["metadata"]["namespace"]
    defaulted = pod("defaulted", namespace="small")
    defaulted["spec"]["containers"][0]["resources"] = {}
    limits = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "small"},
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "2"}}]},
    }
    file = write(tmp_path / "a.yaml", node("n1"), limited, defaulted, limits)
    code, report = run_json("simulate", "-f", file)
    # 3 + 2 CPUs do not fit into 4.
    assert (code, outcomes(report)) == (3, {"default/limited": "n1", "small/defaulted": ""})


def test_pods_of_others_are_counted_and_left_alone(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.yaml",
        node("n1"),
        bound("running", "n1", "3"),
        pod("other", schedulerName="volcano"),
        pod("a", "2"),
        {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}},
    )
    code, report = run_json("simulate", "-f", file)
    assert (code, outcomes(report)) == (3, {"default/a": ""})
    assert "1 pending pods left to another scheduler: volcano" in report["notes"]
    assert "1 of kind Widget (example.com/v1) ignored" in report["notes"]


def test_workloads_are_expanded_only_where_their_pods_are_missing(tmp_path: Path) -> None:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod("x")["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "a"}}, "template": template},
    }
    code, report = run_json("simulate", "-f", write(tmp_path / "a.yaml", node("n1"), deployment))
    assert (code, report["placed"]) == (0, 3)
    assert "Deployment default/web: has no pods in the input, 3 made from it" in report["notes"]
    replica = bound("web-5f-x", "n1")
    replica["metadata"]["labels"] = {"app": "a", "pod-template-hash": "5f"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5f", "uid": "u", "controller": True}
    replica["metadata"]["ownerReferences"] = [owner]
    code, report = run_json("simulate", "-f", write(tmp_path / "b.yaml", node("n1"), deployment, replica))
    assert (code, report["pods"]) == (0, [])


def test_preemption_is_shown_and_not_done(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", node("n1"), bound("victim", "n1", "4", priority=0), pod("a", "2", priority=5))
    # A priority by number is what only stored pods have.
    documents = list(yaml.safe_load_all(Path(file).read_text()))
    documents[2]["metadata"]["uid"] = "uid-a"
    code, report = run_json("simulate", "-f", write(tmp_path / "a.yaml", *documents))
    (entry,) = report["pods"]
    assert (code, entry["nominatedNode"], entry["victims"]) == (3, "n1", ["default/victim"])


def test_a_snapshot_directory_is_accepted(tmp_path: Path) -> None:
    registry = new_cluster()
    for plural, obj in (("nodes", node("n1")), ("pods", pod("a")), ("pods", pod("b", "9"))):
        namespace = obj["metadata"].get("namespace")
        registry.create(registry.resource("", "v1", plural), namespace, obj)
    snapshot.dump(registry, tmp_path / "dump")
    code, report = run_json("simulate", "-f", str(tmp_path / "dump"))
    assert (code, outcomes(report)) == (3, {"default/a": "n1", "default/b": ""})


def test_the_same_seed_gives_the_same_placements(tmp_path: Path) -> None:
    nodes = [node(f"n{i}") for i in range(8)]
    file = write(tmp_path / "a.yaml", *nodes, *(pod(f"p{i}", "100m") for i in range(12)))
    placements = {seed: outcomes(run_json("simulate", "-f", file, "--seed", seed)[1]) for seed in "1112"}
    assert outcomes(run_json("simulate", "-f", file, "--seed", "1")[1]) == placements["1"]
    assert placements["1"] != placements["2"]


def test_tables(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", node("n1"), pod("a", "1"), pod("big", "64"))
    result = run("simulate", "-f", file)
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert result.exit_code == 3
    assert lines[:2] == ["POD        NODE  FEASIBLE NODES", "default/a  n1                 1"]
    assert "pending: default/big" in lines
    assert "  No node could run this pod, even if empty." in lines
    assert "  Closest: n1, needed: a node with 64 cpu (this one has 4)" in lines
    assert lines[-1] == "1 of 2 pending pods placed on 1 node of 1"


def test_many_pods_are_shown_by_workload() -> None:
    template = EXAMPLES / "node-templates" / "demo.yaml"
    result = run("simulate", "-f", str(EXAMPLES / "workloads"), "--nodes", "100", "--node-template", str(template))
    assert result.exit_code == 3
    rows = {
        line.rpartition("  zone")[0].split()[1]: line.split() for line in result.stdout.splitlines() if "zone-a" in line
    }
    assert rows["demo/node-agent"][2:4] == ["100", "100"]
    assert rows["demo/trainer"][2:4] == ["6", "6"]


def test_nodes_of_a_template_have_their_devices(tmp_path: Path) -> None:
    template = EXAMPLES / "node-templates" / "gpu-a100.yaml"
    pods = []
    for name, gpus in (("a", "1600"), ("b", "800"), ("c", "100"), ("d", "800")):
        pods.append(pod(name))
        resources = pods[-1]["spec"]["containers"][0]["resources"]
        resources["limits"] = {"koordinator.sh/gpu": gpus}
    file = write(tmp_path / "pods.yaml", *pods)
    code, report = run_json("simulate", "-f", file, "--nodes", "2", "--node-template", str(template))
    assert (code, outcomes(report)["default/a"]) == (3, "")
    placed = [outcomes(report)[f"default/{name}"] for name in "bcd"]
    assert sorted(placed) == ["", "a100-0", "a100-1"]
    bad = {"templates": [{"count": 1, "capacity": {}, "annotations": {"koordsched.io/devices": "[]"}}]}
    result = run("simulate", "-f", file, "--node-template", write(tmp_path / "bad.yaml", bad))
    assert result.exit_code == 1
    assert "bad.yaml: node 1: koordsched.io/devices: Expected `object`, got `array`" in " ".join(result.output.split())


@pytest.mark.parametrize(
    "change, complaint",
    [
        ({"containers": []}, 'Pod "a" is invalid: spec.containers: Required value'),
        ({"priorityClassName": "none"}, 'pods "a" is forbidden: no PriorityClass with name none was found'),
        ({"nodeSelectr": {}}, 'unknown field "spec.nodeSelectr"'),
        ({"containers": "c"}, "Expected `array`, got `str` - at `spec.containers`"),
        ({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1x"}}}]}, "quantit"),
    ],
)
def test_bad_pods_are_named(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    bad = pod("a")
    bad["spec"] |= change
    file = write(tmp_path / "a.yaml", node("n1"), bad)
    result = run("simulate", "-f", file)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {file}: document 2: ")
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1


STORED = {"name": "a", "namespace": "default", "uid": "u"}


@pytest.mark.parametrize(
    "obj, complaint",
    [
        ({"apiVersion": "v1", "kind": "Pod", "metadata": STORED, "spec": []}, "Pod a: spec: an object was expected"),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": STORED, "spec": {"containers": 3}},
            "Pod a: Expected `array`, got `int` - at `$.spec.containers`",
        ),
        (
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": STORED, "spec": {"replicas": "three"}},
            "Expected `int`, got `str` - at `spec.replicas`",
        ),
        (
            {"apiVersion": "v1", "kind": "Node", "metadata": STORED, "spec": {"taints": ["t"]}},
            "Expected `object`, got `str` - at `spec.taints[0]`",
        ),
        (
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": STORED, "spec": {"replicas": 2_000_000_000}},
            "ReplicaSet a: 2000000000 pods are more than can be simulated (1000000)",
        ),
        ({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": STORED}, "spec.containers: Required value"),
    ],
)
def test_stored_objects_of_another_form_are_named(tmp_path: Path, obj: dict[str, Any], complaint: str) -> None:
    file = write(tmp_path / "a.yaml", node("n1"), obj)
    for command in (["simulate"], ["explain", "a"]):
        result = run(*command, "-f", file)
        assert result.exit_code == 1
        assert result.stderr.startswith(f"error: {file}: document 2: ")
        assert complaint in result.stderr
        assert result.stderr.count("\n") == 1


def test_bad_input_of_other_kinds(tmp_path: Path) -> None:
    good = write(tmp_path / "good.yaml", node("n1"))
    twice = run("simulate", "-f", good, "-f", good)
    assert (twice.exit_code, twice.stderr) == (1, f"error: {good}: Node n1 is also in {good}\n")
    (tmp_path / "config.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nbogus: 1\n"
    )
    config = run("simulate", "-f", good, "--config", str(tmp_path / "config.yaml"))
    assert config.exit_code == 1
    assert config.stderr == f'error: {tmp_path / "config.yaml"}: strict decoding error: unknown field "bogus"\n'
    (tmp_path / "deep.yaml").write_text("[" * 100_000)
    deep = run("simulate", "-f", good, "--node-template", str(tmp_path / "deep.yaml"))
    assert (deep.exit_code, deep.stderr.startswith(f"error: {tmp_path / 'deep.yaml'}: not valid YAML: ")) == (1, True)
    template = run("simulate", "-f", good, "--node-template", str(tmp_path / "none.yaml"))
    assert (template.exit_code, template.stderr) == (1, f"error: {tmp_path / 'none.yaml'}: No such file or directory\n")


def test_garbage_allocatable_is_reported_and_counts_as_zero(tmp_path: Path) -> None:
    broken = node("n1", cpu="lots")
    broken["metadata"]["uid"] = "u"
    code, report = run_json("simulate", "-f", write(tmp_path / "a.yaml", broken, pod("a")))
    assert code == 3
    (note,) = (note for note in report["notes"] if note.startswith("node n1"))
    assert note.startswith("node n1: allocatable cpu: quantity 'lots' must match")
