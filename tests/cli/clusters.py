"""Small clusters as manifests, and a way to run the command on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import yaml
from click.testing import CliRunner, Result

from koordsched.cli import main

Object = dict[str, Any]


def node(name: str, cpu: str = "4", memory: str = "8Gi", pods: str = "110", **more: Any) -> Object:
    """A node; `labels`, `taints` and `unschedulable` as in the API, `extended` resources on top."""
    resources = {"cpu": cpu, "memory": memory, "pods": pods, **more.pop("extended", {})}
    labels = {"kubernetes.io/hostname": name, **more.pop("labels", {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": more,
        "status": {"capacity": resources, "allocatable": resources},
    }


def pod(name: str, cpu: str = "1", namespace: str = "default", **spec: Any) -> Object:
    """A pod with one container; `spec` is added to its spec, `requests` to its requests."""
    container: Object = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, **spec.pop("requests", {})}}}
    if ports := spec.pop("host_ports", None):
        container["ports"] = [{"containerPort": port, "hostPort": port} for port in ports]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], **spec},
    }


def bound(name: str, to: str, cpu: str = "1", **spec: Any) -> Object:
    """A pod that runs on a node, as a dump would have it."""
    made = pod(name, cpu, nodeName=to, **spec)
    made["metadata"]["uid"] = f"uid-{name}"
    made["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    return made


def write(path: Path, *objects: Object) -> str:
    """One file with a document per object; returns its name."""
    path.write_text(yaml.safe_dump_all(objects, sort_keys=False))
    return str(path)


def run(*arguments: str, stdin: str | None = None) -> Result:
    """`koordsched <arguments>`, in this process."""
    return CliRunner().invoke(main, list(arguments), input=stdin)


def run_json(*arguments: str) -> tuple[int, Any]:
    """The same with `-o json`: exit code and decoded answer."""
    result = run(*arguments, "-o", "json")
    assert result.stdout, result.stderr
    return result.exit_code, orjson.loads(result.stdout)
