"""Elastic quotas as processes and with kubectl: the example of a full quota, seen by its users."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.test_daemon import free_port
from tests.packaging.kubectl import DEADLINE, api_server, kubectl, needs_kubectl

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "config" / "examples" / "quota"


@contextmanager
def scheduler(kubeconfig: str, folder: Path) -> Iterator[str]:
    """Runs one with the configuration of the examples; gives the address of its endpoints."""
    port = free_port()
    command = [sys.executable, "-m", "koordsched", "run", "--config", str(EXAMPLES / "scheduler.yaml")]
    command += ["--kubeconfig", kubeconfig, "--bind-address", "127.0.0.1", "--secure-port", str(port)]
    with (folder / "scheduler.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield f"https://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(DEADLINE)


def eventually(what: str, condition: Callable[[], bool]) -> None:
    """Waits for the condition."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {DEADLINE} s"
        time.sleep(0.1)


@needs_kubectl
def test_a_full_quota_with_kubectl(tmp_path: Path) -> None:
    with api_server(tmp_path) as kubeconfig:

        def ask(*arguments: str) -> str:
            return kubectl("--kubeconfig", kubeconfig, *arguments)

        def get(*arguments: str) -> Any:
            return json.loads(ask("get", *arguments, "-o", "json"))

        ask("apply", "-k", str(ROOT / "manifests" / "crds"))
        ask("create", "namespace", "koordinator-system")
        with scheduler(kubeconfig, tmp_path) as server:
            built_in = ["koordinator-default-quota", "koordinator-root-quota", "koordinator-system-quota"]

            def names() -> list[str]:
                found = get("elasticquotas", "-n", "koordinator-system")["items"]
                return sorted(each["metadata"]["name"] for each in found)

            eventually("the built-in quotas", lambda: names() == built_in)
            ask("apply", "-f", str(EXAMPLES / "1-limit" / "quota.yaml"))
            ask("apply", "-f", str(EXAMPLES / "1-limit" / "pods.yaml"))

            def placed() -> list[str]:
                pods = get("pods")["items"]
                return [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")]

            eventually("one of the pods", lambda: len(placed()) == 1)
            (first,) = placed()
            (second,) = {"first", "second"} - {first}

            def refusal() -> str:
                conditions = get("pod", second)["status"].get("conditions", [])
                return "".join(each.get("message", "") for each in conditions if each["type"] == "PodScheduled")

            eventually("the refusal", lambda: "Insufficient quotas, quotaName: quota-example" in refusal())
            eventually(
                "the usage",
                lambda: (
                    get("elasticquota", "quota-example").get("status", {}).get("used")
                    == {"cpu": "40m", "memory": "30Mi"}
                ),
            )
            for name in ("elasticquotas", "eq", "eqs"):
                shown = ask("get", name).splitlines()
                assert shown[0].split()[:3] == ["NAME", "CPU-USED", "CPU-MIN"]
            command = [sys.executable, "-m", "koordsched", "quota", "tree", "-o", "json", "--server", server]
            command += ["--kubeconfig", kubeconfig, "--insecure-skip-tls-verify"]
            told = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
            assert told.returncode == 0, told.stderr
            (quota,) = [one for one in json.loads(told.stdout)["trees"][0]["quotas"] if one["name"] == "quota-example"]
            assert (quota["pods"], quota["running"]) == (2, 1)
            assert {line["resource"]: line["used"] for line in quota["resources"]} == {"cpu": "40m", "memory": "30Mi"}

            ask("delete", "pod", first, "--wait=false")
            eventually("the other pod", lambda: placed() == [second])
