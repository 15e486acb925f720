"""The `koordsched fakecluster` command: starting, announcing, failing and ending."""

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.yamlfiles import documents

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "koordsched", "fakecluster"]
DEADLINE = 30


@contextmanager
def running(*flags):
    """The server's process and its first line."""
    process = subprocess.Popen(
        [*COMMAND, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=dict(os.environ)
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=DEADLINE)


def ended(process):
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=DEADLINE)
    return process.returncode, out, err


def fetch(url, path, token=""):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(url + path, headers=headers), timeout=DEADLINE) as response:
        return json.load(response)


def test_it_announces_itself_and_keeps_its_state_over_a_restart(tmp_path):
    config, state = tmp_path / "kubeconfig", tmp_path / "state"
    flags = ["--nodes", "3", "--kubeconfig-out", str(config), "--token", "secret", "--dump", str(state), "--seed", "1"]
    with running(*flags) as (process, line):
        url = yaml.safe_load(config.read_text())["clusters"][0]["cluster"]["server"]
        assert line == f"fakecluster ready: {url}, 3 nodes, kubeconfig {config}"
        nodes = fetch(url, "/api/v1/nodes", "secret")
        assert len(nodes["items"]) == 3
        with pytest.raises(urllib.error.HTTPError, match="401"):
            fetch(url, "/api/v1/nodes")
        code, out, err = ended(process)
        assert (code, err) == (0, "")
        assert out.startswith("fakecluster: wrote ")
        assert out.endswith(f" objects to {state}\n")
    with running("--load", str(state)) as (process, line):
        url = line.split()[2].rstrip(",")
        again = fetch(url, "/api/v1/nodes")
        assert [n["metadata"]["uid"] for n in again["items"]] == [n["metadata"]["uid"] for n in nodes["items"]]
        # Clients of the first server list anew: its versions are all in the past.
        assert int(again["metadata"]["resourceVersion"]) > int(nodes["metadata"]["resourceVersion"])
        assert ended(process) == (0, "", "")


def send(url, path, body, method="POST"):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    request.method = method
    with urllib.request.urlopen(request, timeout=DEADLINE) as response:
        return json.load(response)


def test_a_server_that_is_killed_comes_back_with_all_it_had_answered(tmp_path):
    """Kinds that were defined, changed and deleted objects included; the second time from the shortened log."""
    data = tmp_path / "data"
    crd = yaml.safe_load((ROOT / "manifests" / "crds" / "elasticquotas.yaml").read_text())
    quotas = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas"
    quota = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": {"name": "q"}}
    maps, kind = "/api/v1/namespaces/default/configmaps", {"apiVersion": "v1", "kind": "ConfigMap"}
    with running("--nodes", "2", "--data", str(data)) as (process, line):
        url = line.split()[2].rstrip(",")
        send(url, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        kept = send(url, quotas, {**quota, "spec": {"max": {"cpu": "1"}}})
        for name in ("stays", "changes", "goes"):
            send(url, maps, {**kind, "metadata": {"name": name}, "data": {"k": "1"}})
        send(url, f"{maps}/changes", {**kind, "metadata": {"name": "changes"}, "data": {"k": "2"}}, "PUT")
        send(url, f"{maps}/goes", {}, "DELETE")
        process.kill()
        process.wait(DEADLINE)
    with (data / "writes.jsonl").open("ab") as log:
        log.write(b'["ADDED","configmaps","default","cut sho')
    versions = []
    for _ in range(2):
        with running("--nodes", "2", "--data", str(data)) as (process, line):
            url = line.split()[2].rstrip(",")
            found = fetch(url, maps)
            assert {o["metadata"]["name"]: o["data"]["k"] for o in found["items"] if "data" in o} | {
                "stays": "1",
                "changes": "2",
            } == {o["metadata"]["name"]: o["data"]["k"] for o in found["items"] if "data" in o}
            assert "goes" not in {o["metadata"]["name"] for o in found["items"]}
            assert fetch(url, f"{quotas}/q") == kept
            assert len(fetch(url, "/api/v1/nodes")["items"]) == 2
            versions.append(int(found["metadata"]["resourceVersion"]))
            process.kill()
            process.wait(DEADLINE)
    assert versions[0] < versions[1]


def refusal(*flags):
    done = subprocess.run([*COMMAND, *flags], capture_output=True, text=True, cwd=ROOT, timeout=DEADLINE, check=False)
    return done.returncode, done.stdout, done.stderr.strip()


def test_it_forgets_its_history_when_told():
    with running("--nodes", "2") as (process, line):
        url = line.split()[2].rstrip(",")
        listed = fetch(url, "/api/v1/nodes")
        watch = f"{url}/api/v1/nodes?watch=1&resourceVersion={listed['metadata']['resourceVersion']}"
        with urllib.request.urlopen(watch, timeout=DEADLINE) as events:
            process.send_signal(signal.SIGUSR1)
            assert all(json.loads(event)["type"] == "MODIFIED" for event in events)
        with urllib.request.urlopen(watch, timeout=DEADLINE) as events:
            told = [json.loads(event) for event in events]
        assert [(event["type"], event["object"]["code"]) for event in told] == [("ERROR", 410)]
        anew = fetch(url, "/api/v1/nodes")
        assert [each["metadata"]["uid"] for each in anew["items"]] == [n["metadata"]["uid"] for n in listed["items"]]


def test_a_port_in_use_is_one_clear_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, out, err = refusal("--port", str(port))
    assert (code, out) == (1, "")
    assert err.startswith(f"error: cannot listen on 127.0.0.1:{port}: ")
    assert "\n" not in err


def test_bad_files_are_one_clear_line(tmp_path):
    template = tmp_path / "nodes.yaml"
    template.write_text("nodes: [")
    code, out, err = refusal("--node-template", str(template))
    assert (code, out) == (1, "")
    assert err.startswith("error: node template: ")
    assert "\n" not in err
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "x.yaml").write_text("kind: Pod\n")
    code, out, err = refusal("--load", str(tmp_path / "state"))
    assert (code, out) == (1, "")
    assert err.startswith("error: --load: ")
    assert "\n" not in err


def test_it_can_be_like_another_release_and_lack_resources():
    flags = ["--kubernetes-version", "1.30", "--omit", "csidrivers.storage.k8s.io", "--forbid", "services"]
    with running(*flags) as (process, line):
        url = line.split()[2].rstrip(",")
        assert fetch(url, "/version")["minor"] == "30"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetch(url, "/apis/storage.k8s.io/v1/csidrivers")
        with pytest.raises(urllib.error.HTTPError, match="403"):
            fetch(url, "/api/v1/services")
        assert ended(process)[0] == 0


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--kubernetes-version", "1.29"], "'1.29' is not a version from 1.30 to 1.36"),
        (["--omit", "things"], "--omit things: no such resource, expected plural.group"),
        (["--forbid", "pods.core"], "--forbid pods.core: no such resource, expected plural.group"),
    ],
)
def test_what_it_cannot_be_like(flags, complaint):
    with running(*flags) as (process, _):
        _, err = process.communicate(timeout=DEADLINE)
        assert process.returncode != 0
        assert complaint in err


def test_its_nodes_have_node_metrics_once_they_are_defined(tmp_path):
    (definition,) = documents(ROOT / "manifests/crds/nodemetrics.yaml")
    template = tmp_path / "nodes.yaml"
    template.write_text("templates: [{count: 2, capacity: {cpu: 4}, usage: {reportInterval: 30s}}]")
    flags = ["--node-template", str(template), "--cpu-usage", "50", "--usage-traces", str(tmp_path)]
    with running(*flags) as (process, line):
        url = line.split()[2].rstrip(",")
        path, metrics = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/slo.koordinator.sh/v1alpha1"
        body = json.dumps(definition).encode()
        request = urllib.request.Request(url + path, body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=DEADLINE) as response:
            assert response.status == 201
        with urllib.request.urlopen(f"{url}{metrics}/nodemetrics?watch=1", timeout=DEADLINE) as events:
            added = [json.loads(next(events))["object"] for _ in range(2)]
        assert [metric["metadata"]["name"] for metric in added] == ["node-0", "node-1"]
        assert {metric["spec"]["metricCollectPolicy"]["reportIntervalSeconds"] for metric in added} == {30}
        assert ended(process) == (0, "", "")


def test_its_nodes_have_topologies_once_they_are_defined(tmp_path):
    (definition,) = documents(ROOT / "manifests/crds/noderesourcetopologies.yaml")
    template = tmp_path / "nodes.yaml"
    template.write_text("templates: [{count: 1, capacity: {memory: 8Gi}, cpus: {coresPerNumaNode: 4}}]")
    with running("--node-template", str(template)) as (process, line):
        url = line.split()[2].rstrip(",")
        path, group = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/topology.node.k8s.io/v1alpha1"
        body = json.dumps(definition).encode()
        request = urllib.request.Request(url + path, body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=DEADLINE) as response:
            assert response.status == 201
        with urllib.request.urlopen(f"{url}{group}/noderesourcetopologies?watch=1", timeout=DEADLINE) as events:
            report = json.loads(next(events))["object"]
        assert (report["metadata"]["name"], len(report["zones"])) == ("node-0", 1)
        assert ended(process) == (0, "", "")


@pytest.mark.parametrize("flags, reports, shared", [
    ((), (True, True, True), False),
    (("--no-load-reports",), (False, True, True), False),
    (("--no-topology-reports",), (True, False, True), False),
    (("--no-device-reports",), (True, True, False), False),
    (("--webhook", "device-resource-validation"), (True, True, True), False),
    (("--webhook", "device-resource-spec"), (True, True, True), True),
])  # fmt: skip
def test_what_nodes_report_can_be_chosen(monkeypatch, flags, reports, shared):
    asked = []

    async def run(options):
        asked.append(module._hollow_options(options))

    module = importlib.import_module("koordsched.cli.fakecluster")
    monkeypatch.setattr(module, "_run", run)
    assert CliRunner().invoke(module.fakecluster, flags).exit_code == 0
    (options,) = asked
    assert (options.load_reports, options.topology_reports, options.device_reports) == reports
    assert options.gpu_shared is shared
