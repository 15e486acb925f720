"""The static pod: it says what the Deployment says, but for what a control plane node makes different; and it works."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from koordsched.config import load, resolve
from tests.cli.test_daemon import free_port
from tests.packaging.kubectl import DEADLINE, api_server, kubectl, needs_kubectl
from tests.yamlfiles import document

MANIFESTS = Path(__file__).parents[2] / "manifests"
POD: dict[str, Any] = document(MANIFESTS / "static-pod" / "koordsched.yaml")
DEPLOYMENT: dict[str, Any] = document(MANIFESTS / "base" / "deployment.yaml")
CONFIG = (MANIFESTS / "static-pod" / "config.yaml").read_text()


def test_it_is_the_container_of_the_deployment() -> None:
    (ours,), (theirs,) = POD["spec"]["containers"], DEPLOYMENT["spec"]["template"]["spec"]["containers"]
    for key in ("env", "resources", "securityContext"):
        assert ours[key] == theirs[key]
    for key in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = {**theirs[key], "httpGet": {**theirs[key]["httpGet"], "port": 10259, "host": "127.0.0.1"}}
        assert ours[key] == probe
    (image,) = document(MANIFESTS / "base" / "kustomization.yaml")["images"]
    assert ours["image"] == f"{image['newName']}:{image['newTag']}"


def test_the_kubelet_needs_nothing_but_files_of_the_node() -> None:
    spec = POD["spec"]
    assert (spec["hostNetwork"], spec["priorityClassName"]) == (True, "system-node-critical")
    assert not {"serviceAccountName", "schedulerName", "affinity"} & spec.keys()
    assert all({"hostPath", "emptyDir"} & volume.keys() for volume in spec["volumes"])
    mounted = {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
    resolved = resolve(load(CONFIG)).source
    assert {"/etc/kubernetes/koordsched.yaml", resolved.client_connection.kubeconfig} <= mounted


def test_it_waits_for_the_lease_of_kube_scheduler() -> None:
    ours, theirs = (load(text).leader_election for text in (CONFIG, _only_scheduler()))
    assert (ours.resource_namespace, ours.resource_name) == (theirs.resource_namespace, theirs.resource_name)


def _only_scheduler() -> str:
    return (MANIFESTS / "only-scheduler" / "config.yaml").read_text()


@needs_kubectl
def test_it_places_pods(tmp_path: Path) -> None:
    """Its arguments and its configuration, with the files of the node in another folder."""
    with api_server(tmp_path) as kubeconfig:
        config = tmp_path / "koordsched.yaml"
        config.write_text(CONFIG.replace("/etc/kubernetes/scheduler.conf", kubeconfig))
        arguments = [each.replace("/etc/kubernetes", str(tmp_path)) for each in POD["spec"]["containers"][0]["args"]]
        with (tmp_path / "log").open("w") as log:
            command = [sys.executable, "-m", "koordsched", *arguments, f"--secure-port={free_port()}"]
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            kubectl("--kubeconfig", kubeconfig, "run", "web", "--image=registry.example.com/web")
            end = time.monotonic() + DEADLINE
            while not placed(kubeconfig):
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < end, (tmp_path / "log").read_text()
                time.sleep(0.1)
        finally:
            process.terminate()
            process.wait(DEADLINE)


def placed(kubeconfig: str) -> bool:
    """Whether the pod has a node."""
    pod = json.loads(kubectl("--kubeconfig", kubeconfig, "get", "pod", "web", "-o", "json"))
    return bool(pod["spec"].get("nodeName"))
