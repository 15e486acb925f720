"""Pods of workloads that have none in the input."""

from __future__ import annotations

from typing import Any

import pytest

from koordsched.api.meta import OwnerReference
from koordsched.cli.workloads import expand, owners_with_pods, workload_of
from tests.cli.clusters import node

TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def workload(kind: str, api_version: str = "apps/v1", **spec: Any) -> dict[str, Any]:
    meta = {"name": "w", "namespace": "ns", "uid": "u"}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": {"template": TEMPLATE, **spec}}


def made(obj: dict[str, Any], *nodes: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["kind"], one["metadata"]["name"]) for one in expand(obj, nodes)]


@pytest.mark.parametrize(
    "obj, expected",
    [
        (workload("ReplicaSet", replicas=2), ["w-1", "w-2"]),
        (workload("ReplicaSet"), ["w-1"]),
        (workload("ReplicaSet", replicas=0), []),
        (workload("ReplicationController", "v1", replicas=1), ["w-1"]),
        (workload("StatefulSet", replicas=2, ordinals={"start": 5}), ["w-5", "w-6"]),
        (workload("Job", "batch/v1", parallelism=3), ["w-1", "w-2", "w-3"]),
        (workload("Job", "batch/v1", parallelism=3, completions=2), ["w-1", "w-2"]),
        (workload("Job", "batch/v1", parallelism=3, suspend=True), []),
        ({**workload("Job", "batch/v1", parallelism=3, completions=4), "status": {"succeeded": 3}}, ["w-1"]),
        (
            {**workload("Job", "batch/v1"), "status": {"conditions": [{"type": "Complete", "status": "True"}]}},
            [],
        ),
        (workload("CronJob", "batch/v1"), []),
        (workload("Rollout", "argoproj.io/v1alpha1"), []),
    ],
)
def test_pods(obj: dict[str, Any], expected: list[str]) -> None:
    assert made(obj) == [("Pod", name) for name in expected]


def test_a_deployment_has_a_replica_set_and_pods_that_carry_its_labels() -> None:
    replica_set, first, second = expand(workload("Deployment", replicas=2, selector={"matchLabels": {"app": "a"}}), [])
    code = replica_set["metadata"]["labels"]["pod-template-hash"]
    assert replica_set["kind"] == "ReplicaSet"
    assert replica_set["spec"]["selector"] == {"matchLabels": {"app": "a", "pod-template-hash": code}}
    assert [first["metadata"]["name"], second["metadata"]["name"]] == [f"w-{code}-1", f"w-{code}-2"]
    assert first["metadata"]["labels"] == {"app": "a", "pod-template-hash": code}
    (owner,) = first["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("ReplicaSet", f"w-{code}", True)
    assert owners_with_pods([first]) == {("ns", "ReplicaSet", f"w-{code}"), ("ns", "Deployment", "w")}


def test_a_stateful_set_has_claims() -> None:
    claims = [{"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}]
    claim, pod = expand(workload("StatefulSet", volumeClaimTemplates=claims), [])
    assert (claim["kind"], claim["metadata"]["name"], claim["metadata"]["namespace"]) == (
        "PersistentVolumeClaim",
        "data-w-0",
        "ns",
    )
    assert claim["spec"] == {"storageClassName": "fast"}
    assert pod["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-w-0"}}]


def test_a_daemon_set_has_a_pod_on_each_node_it_accepts() -> None:
    nodes = [
        node("plain"),
        node(
            "cordoned", unschedulable=True, taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
        ),
        node("tainted", taints=[{"key": "gpu", "effect": "NoSchedule"}]),
    ]
    first, second = expand(workload("DaemonSet"), nodes)
    assert [first["metadata"]["name"], second["metadata"]["name"]] == ["w-plain", "w-cordoned"]
    terms = first["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms == {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["plain"]}]}]
    }


@pytest.mark.parametrize(
    "owner, labels, expected",
    [
        (None, {}, "Pod ns/p"),
        (OwnerReference("ReplicaSet", "w-5f"), {"pod-template-hash": "5f"}, "Deployment ns/w"),
        (OwnerReference("ReplicaSet", "w-5f"), {}, "ReplicaSet ns/w-5f"),
        (OwnerReference("Job", "w"), {"pod-template-hash": "5f"}, "Job ns/w"),
    ],
)
def test_the_workload_of_a_pod(owner: OwnerReference | None, labels: dict[str, str], expected: str) -> None:
    assert workload_of("ns", "p", owner, labels) == expected
