"""What users do to workloads with kubectl, end to end over HTTP."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.fakecluster.liveserver import live_cluster
from tests.fakecluster.timeline import pod_template, workload

KUBECTL = shutil.which("kubectl")
EXAMPLES = Path(__file__).parents[2] / "config" / "examples"

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")


class Kubectl:
    def __init__(self, path, home):
        self._command = [KUBECTL, f"--kubeconfig={path}", "--cache-dir", str(home / "cache")]

    def __call__(self, *args, stdin=None, fails=False):
        text = json.dumps(stdin) if stdin is not None else None
        run = subprocess.run([*self._command, *args], input=text, capture_output=True, text=True, timeout=60)
        assert (run.returncode != 0) == fails, f"kubectl {' '.join(args)}: {run.stdout}{run.stderr}"
        return run.stderr if fails else run.stdout

    def json(self, *args):
        return json.loads(self(*args, "-o", "json"))

    def until(self, condition, limit=30.0):
        end = time.monotonic() + limit
        while not condition():
            assert time.monotonic() < end, f"not so after {limit} s"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory):
    home = tmp_path_factory.mktemp("cluster")
    with live_cluster(home, 6, EXAMPLES / "node-templates" / "plain.yaml") as path:
        yield Kubectl(path, home)


@pytest.fixture
def namespace(kubectl, request):
    name = re.sub(r"[^a-z]+", "-", request.node.name.removeprefix("test_")).strip("-")
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.mark.slow
def test_rollout_history_and_undo(kubectl, namespace):
    kubectl("-n", namespace, "apply", "-f", "-", stdin=workload("Deployment", "web", 4))
    out = kubectl("-n", namespace, "rollout", "status", "deployment/web", "--timeout=30s")
    assert 'deployment "web" successfully rolled out' in out
    kubectl("-n", namespace, "set", "image", "deployment/web", "app=app:2")
    kubectl("-n", namespace, "rollout", "status", "deployment/web", "--timeout=30s")
    history = kubectl("-n", namespace, "rollout", "history", "deployment/web")
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["1", "2"]
    kubectl("-n", namespace, "rollout", "undo", "deployment/web")
    kubectl("-n", namespace, "rollout", "status", "deployment/web", "--timeout=30s")
    kubectl.until(lambda: len(kubectl.json("-n", namespace, "get", "pods")["items"]) == 4)
    images = {pod["spec"]["containers"][0]["image"] for pod in kubectl.json("-n", namespace, "get", "pods")["items"]}
    assert images == {"app:1"}
    kubectl("-n", namespace, "rollout", "restart", "deployment/web")
    kubectl("-n", namespace, "rollout", "status", "deployment/web", "--timeout=30s")
    described = kubectl("-n", namespace, "describe", "deployment", "web")
    assert "ScalingReplicaSet" in described
    assert "4 desired | 4 updated | 4 total | 4 available | 0 unavailable" in described


@pytest.mark.parametrize("kind", ["deployment", "statefulset", "replicaset"])
def test_scale(kubectl, namespace, kind):
    kinds = {"deployment": "Deployment", "statefulset": "StatefulSet", "replicaset": "ReplicaSet"}
    kubectl("-n", namespace, "apply", "-f", "-", stdin=workload(kinds[kind], "web", 1))
    for size in (4, 0, 2):
        kubectl("-n", namespace, "scale", kind, "web", f"--replicas={size}")
        kubectl.until(lambda: len(kubectl.json("-n", namespace, "get", "pods")["items"]) == size)  # noqa: B023 - called at once
    kubectl("-n", namespace, "wait", "pods", "--all", "--for=condition=Ready", "--timeout=30s")


@pytest.mark.slow
def test_rollout_of_stateful_and_daemon_sets(kubectl, namespace):
    kubectl("-n", namespace, "apply", "-f", "-", stdin=workload("StatefulSet", "db", 2))
    kubectl("-n", namespace, "apply", "-f", "-", stdin=workload("DaemonSet", "agent"))
    for target in ("statefulset/db", "daemonset/agent"):
        kubectl("-n", namespace, "rollout", "status", target, "--timeout=30s")
        kubectl("-n", namespace, "set", "image", target, "app=app:2")
        kubectl("-n", namespace, "rollout", "status", target, "--timeout=30s")
        assert "2" in kubectl("-n", namespace, "rollout", "history", target)
        kubectl("-n", namespace, "rollout", "undo", target)
        kubectl("-n", namespace, "rollout", "status", target, "--timeout=30s")
    kubectl.until(
        lambda: (
            {pod["spec"]["containers"][0]["image"] for pod in kubectl.json("-n", namespace, "get", "pods")["items"]}
            == {"app:1"}
        )
    )


@pytest.mark.slow
def test_drain_honours_a_budget(kubectl, namespace):
    kubectl("-n", namespace, "apply", "-f", "-", stdin=workload("Deployment", "web", 6))
    kubectl("-n", namespace, "rollout", "status", "deployment/web", "--timeout=30s")
    kubectl("-n", namespace, "create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=6")
    pods = kubectl.json("-n", namespace, "get", "pods")["items"]
    node = pods[0]["spec"]["nodeName"]
    out = kubectl("drain", node, "--timeout=3s", "--ignore-daemonsets", "--force", fails=True)
    assert "Cannot evict pod as it would violate the pod's disruption budget" in out
    assert len(kubectl.json("-n", namespace, "get", "pods")["items"]) == 6
    kubectl("-n", namespace, "patch", "pdb", "web", "--type=merge", "-p", '{"spec": {"minAvailable": 5}}')
    kubectl("drain", node, "--timeout=30s", "--ignore-daemonsets", "--force")
    left = kubectl.json("get", "pods", "-A", f"--field-selector=spec.nodeName={node}")["items"]
    assert [pod for pod in left if pod["metadata"]["namespace"] == namespace] == []
    kubectl("-n", namespace, "rollout", "status", "deployment/web", "--timeout=30s")
    kubectl("uncordon", node)
    kubectl.until(lambda: "taints" not in kubectl.json("get", "node", node)["spec"])


def test_deleting_a_deployment(kubectl, namespace):
    for cascade in ("background", "foreground", "orphan"):
        kubectl("-n", namespace, "apply", "-f", "-", stdin=workload("Deployment", "web", 3))
        kubectl("-n", namespace, "rollout", "status", "deployment/web", "--timeout=30s")
        kubectl("-n", namespace, "delete", "deployment", "web", f"--cascade={cascade}", "--timeout=30s")
        if cascade != "orphan":
            kubectl.until(lambda: kubectl.json("-n", namespace, "get", "pods,replicasets")["items"] == [])
    found = kubectl.json("-n", namespace, "get", "pods,replicasets")["items"]
    assert sorted(entry["kind"] for entry in found) == ["Pod", "Pod", "Pod", "ReplicaSet"]


def test_deleting_a_namespace(kubectl, namespace):
    kubectl("-n", namespace, "apply", "-f", "-", stdin=workload("Deployment", "web", 3))
    kubectl("-n", namespace, "rollout", "status", "deployment/web", "--timeout=30s")
    kubectl("delete", "namespace", namespace, "--timeout=30s")
    assert "NotFound" in kubectl("get", "namespace", namespace, fails=True)


def test_a_job_is_waited_for(kubectl, namespace):
    template = pod_template({"app": "work"}, annotations={"koordsched.io/run-duration": "300ms"}, restartPolicy="Never")
    job = workload("Job", "work", template=template, completions=4, parallelism=2, completionMode="Indexed")
    kubectl("-n", namespace, "apply", "-f", "-", stdin=job)
    kubectl("-n", namespace, "wait", "job/work", "--for=condition=complete", "--timeout=30s")
    status = kubectl.json("-n", namespace, "get", "job", "work")["status"]
    assert (status["succeeded"], status["completedIndexes"]) == (4, "0-3")
    assert "4/4" in kubectl("-n", namespace, "get", "job", "work")
    kubectl("-n", namespace, "delete", "job", "work", "--timeout=30s")
    kubectl.until(lambda: kubectl.json("-n", namespace, "get", "pods")["items"] == [])


def test_nodes_look_like_nodes(kubectl):
    lines = kubectl("get", "nodes").splitlines()
    assert len(lines) == 7
    assert lines[1].split()[:2] == ["node-0", "Ready"]
    described = kubectl("describe", "node", "node-0")
    assert "topology.kubernetes.io/zone=zone-a" in described
    assert "KubeletReady" in described
    assert "HolderIdentity:  node-0" in described
    kubectl("annotate", "node", "node-5", "koordsched.io/fail=not-ready")
    kubectl("wait", "node/node-5", "--for=condition=Ready=false", "--timeout=30s")
    kubectl.until(lambda: "NotReady" in kubectl("get", "node", "node-5"))
    kubectl("annotate", "node", "node-5", "koordsched.io/fail-")
    kubectl("wait", "node/node-5", "--for=condition=Ready", "--timeout=30s")


def test_the_examples_are_accepted(kubectl):
    out = kubectl("apply", "--dry-run=server", "-f", str(EXAMPLES / "workloads" / "00-namespace.yaml"))
    assert "namespace/demo created" in out
    kubectl("apply", "-f", str(EXAMPLES / "workloads"))
    kubectl("-n", "demo", "rollout", "status", "deployment/web", "--timeout=30s")
    kubectl("-n", "demo", "wait", "job/report", "--for=condition=complete", "--timeout=30s")
    assert kubectl.json("-n", "demo", "get", "pod", "gated")["status"]["phase"] == "Pending"
    kubectl("delete", "namespace", "demo", "--timeout=30s")
