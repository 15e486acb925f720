"""Alerts and board: every expression is PromQL over series that a running scheduler exposes, with the labels it has."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.test_daemon import free_port
from tests.packaging.kubectl import DEADLINE, api_server, kubectl, needs_kubectl
from tests.packaging.promql import OF_THE_TARGET, Wrong, labels_of, of_all_replicas, selectors
from tests.yamlfiles import document

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "manifests" / "monitoring"
GROUPS: list[dict[str, Any]] = document(FOLDER / "rules.yaml")["groups"]
RULES = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
BOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
TARGETS = [
    pytest.param(target, id=f"{panel['title']}-{target['refId']}")
    for panel in BOARD["panels"]
    for target in panel.get("targets", ())
]
EXPRESSIONS = [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())]
Series = dict[str, list[dict[str, str]]]
OPTIONAL = (
    "Coscheduling",
    "DeviceShare",
    "ElasticQuota",
    "LoadAwareScheduling",
    "NodeCircuitBreaker",
    "NodeNUMAResource",
    "Reservation",
    "WorkloadQuarantine",
)
"""Plugins that are off by default and have rules of their own."""
CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            # Coscheduling orders the queue, too.
            "plugins": {
                "multiPoint": {
                    "enabled": [{"name": name} for name in OPTIONAL],
                    "disabled": [{"name": "PrioritySort"}],
                }
            },
            "pluginConfig": [{"name": "ElasticQuota", "args": {"monitorAllQuotas": True}}],
        }
    ],
}

LEADERS_ONLY = {
    "koordsched_circuit_breakers",
    "koordsched_claims_in_flight",
    "koordsched_devices",
    "koordsched_gang_oldest_wait_seconds",
    "koordsched_gangs",
    "koordsched_node_reports",
    "koordsched_numa_conflicting_cpus",
    "koordsched_numa_cpus",
    "koordsched_numa_nodes",
    "koordsched_overcommitted_devices",
    "koordsched_overcommitted_nodes",
    "koordsched_quarantined_workloads",
    "koordsched_resource_pool_devices",
    "koordsched_resource_pools",
    "scheduler_inflight_events",
    "scheduler_pending_pods",
    "scheduler_queue_incoming_pods_total",
    "scheduler_reservation_resource",
    "scheduler_reservation_status_phase",
    "scheduler_secondary_device_not_well_planned",
    "scheduler_unschedulable_pods",
    "scheduler_waiting_gang_group_number",
}
"""What only the replica shows that leads."""
RUNBOOKS = f"{tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['urls']['Documentation']}/monitoring.md"

NOT_PROVOKED = {("scheduler_schedule_attempts_total", "result", "error")}
"""Label values that exist, but not in the scenario: an error of the scheduler."""


def without_variables(text: str) -> str:
    """An expression as Grafana sends it."""
    return text.replace("$__rate_interval", "5m").replace("$job", "koordsched-metrics").replace("$profile", ".*")


# --- a scheduler that has seen everything the rules and the board speak of ----------------------------


def pod(name: str, cpu: str = "1m", **spec: object) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": containers, **spec},
    }


def node(name: str) -> dict[str, Any]:
    """A node with one CPU that no kubelet looks after."""
    capacity = {"cpu": "1", "memory": "8Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"name": name}},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def scenario() -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, object): pods that are placed, wait, preempt, are woken, or that others put where no room is.

    A node has a GPU, and room on it is reserved.
    """
    pods = "/api/v1/namespaces/default/pods"
    important = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "important"}}
    yield "/apis/scheduling.k8s.io/v1/priorityclasses", {**important, "value": 1000}
    quota = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": {"name": "team"}}
    amounts = {"min": {"cpu": "100m"}, "max": {"cpu": "500m"}}
    yield "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas", {**quota, "spec": amounts}
    yield "/api/v1/nodes", node("small")
    yield "/api/v1/nodes", node("crammed")
    labels = {"node.koordinator.sh/secondary-device-well-planned": "false"}
    gpu = {"type": "gpu", "minor": 0, "health": True, "resources": {"koordinator.sh/gpu-core": "100"}}
    device = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device", "spec": {"devices": [gpu]}}
    metadata = {"name": "small", "labels": labels}
    yield "/apis/scheduling.koordinator.sh/v1alpha1/devices", {**device, "metadata": metadata}
    published = {"driver": "gpu.example.com", "nodeName": "small", "devices": [{"name": "a"}]}
    late = {**published, "pool": {"name": "small", "generation": 1, "resourceSliceCount": 2}}
    yield (
        "/apis/resource.k8s.io/v1/resourceslices",
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": late},
    )
    template = {"spec": pod("room")["spec"]}
    reservation = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": "r"}}
    reserved = {"template": template, "owners": [{"labelSelector": {}}], "allocateOnce": False}
    yield "/apis/scheduling.koordinator.sh/v1alpha1/reservations", {**reservation, "spec": reserved}
    for number in range(60):
        yield pods, pod(f"plain-{number}")
    yield pods, pod("nowhere", nodeSelector={"name": "nowhere"})
    yield pods, pod("victim", "900m", nodeName="small")
    yield pods, pod("preemptor", "900m", nodeSelector={"name": "small"}, priorityClassName="important")
    yield pods, pod("too-much", "3", nodeName="crammed")


def post(url: str, thing: dict[str, Any]) -> None:
    request = urllib.request.Request(url, json.dumps(thing).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=DEADLINE):
        pass


def scraped(port: int) -> Series:
    """Name -> labels of its series; nothing while nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE) as answer:
            text = answer.read().decode()
    except urllib.error.URLError:
        return {}
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def wanted() -> set[str]:
    """Every series that rules and board read, but those of Prometheus itself."""
    texts = [rule["expr"] for rule in RULES.values()]
    texts += EXPRESSIONS
    return {name for text in texts for name, _, _ in selectors(without_variables(text))} - {"up"}


@contextmanager
def replica(folder: Path, name: str, expected: set[str]) -> Iterator[Series]:
    """Runs one; what it shows once the expected series are there."""
    port, log = free_port(), folder / f"{name}.log"
    command = [sys.executable, "-m", "koordsched", "run", "--config", str(folder / "config.yaml")]
    command += ["--kubeconfig", str(folder / "kubeconfig"), "--secure-port", "0", "--address=127.0.0.1"]
    with log.open("w") as output:
        process = subprocess.Popen([*command, f"--port={port}"], stdout=output, stderr=output)
        try:
            end = time.monotonic() + DEADLINE
            while missing := expected - (found := scraped(port)).keys():
                assert process.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < end, f"not exposed: {sorted(missing)}"
                time.sleep(0.2)
            yield found
        finally:
            process.terminate()
            process.wait(DEADLINE)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Series, Series]]:
    """What a replica shows that leads, and one that does not."""
    folder = tmp_path_factory.mktemp("monitoring")
    with api_server(folder) as kubeconfig:
        server = yaml.safe_load(Path(kubeconfig).read_text())["clusters"][0]["cluster"]["server"]
        for kind in (
            "nodemetrics",
            "noderesourcetopologies",
            "devices",
            "elasticquotas",
            "elasticquotaprofiles",
            "reservations",
        ):
            definition = document(ROOT / "manifests" / "crds" / f"{kind}.yaml")
            post(f"{server}/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        (folder / "config.yaml").write_text(json.dumps(CONFIGURATION))
        for path, thing in scenario():
            post(server + path, thing)
        objects_handled = {"scheduler_event_handling_duration_seconds_bucket"}
        with replica(folder, "leader", wanted()) as leader, replica(folder, "standby", objects_handled) as standby:
            yield leader, standby


@pytest.fixture(scope="module")
def series(pair: tuple[Series, Series]) -> Series:
    return pair[0]


def test_a_standby_shows_nothing_of_what_the_leader_keeps(pair: tuple[Series, Series]) -> None:
    leader, standby = pair
    assert leader.keys() >= LEADERS_ONLY
    assert standby.keys() & LEADERS_ONLY == set()
    gauges_of_all = {name for name in leader.keys() & standby.keys() if name in wanted()}
    assert {"leader_election_master_status", "scheduler_cache_size", "koordsched_write_lane_depth"} <= gauges_of_all


# --- the rules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("alert", RULES)
def test_alerts_read_what_there_is_and_speak_of_labels_they_have(alert: str, series: Series) -> None:
    rule = RULES[alert]
    labels = labels_of(rule["expr"], series)
    named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert named <= labels
    for name, label, value in selectors(rule["expr"]):
        assert label in OF_THE_TARGET or is_seen(series, name, label, value), (name, label, value)


@pytest.mark.parametrize("target", TARGETS)
def test_panels_read_what_there_is_and_name_lines_by_labels_they_have(target: dict[str, Any], series: Series) -> None:
    text = without_variables(target["expr"])
    labels = labels_of(text, series)
    assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels
    for name, label, value in selectors(text):
        known = value == ".*" or label in OF_THE_TARGET
        assert known or is_seen(series, name, label, value), (name, label, value)


def is_seen(series: Series, name: str, label: str, value: str) -> bool:
    """Whether some series has the label with this value, or would have in another scenario."""
    return (name, label, value) in NOT_PROVOKED or any(labels.get(label) == value for labels in series[name])


@pytest.mark.parametrize(
    "text, why",
    [
        ("sum(rate(scheduler_nothing_total[5m]))", "nobody exposes scheduler_nothing_total"),
        ('scheduler_pending_pods{line="active"}', "scheduler_pending_pods has no label line"),
        ("sum by (result) (scheduler_pending_pods)", "there is no label result"),
        ("sum by (queue) (sum(scheduler_pending_pods))", "there is no label queue"),
        ("sum(scheduler_pending_pods", "unclosed left parenthesis"),
        ("rate(scheduler_pending_pods)", "expected type matrix"),
        ("scheduler_pending_pods unless on (pod) scheduler_pending_pods", "there is no label pod on one side"),
    ],
)
def test_the_check_finds_what_is_wrong(text: str, why: str) -> None:
    exposed = {"scheduler_pending_pods": [{"queue": "active"}]}
    with pytest.raises(Wrong, match=re.escape(why)):
        labels_of(text, exposed)


@pytest.mark.parametrize("text", [*(rule["expr"] for rule in RULES.values()), *EXPRESSIONS])
def test_what_the_leader_keeps_is_not_read_of_others(text: str) -> None:
    assert of_all_replicas(without_variables(text)) & LEADERS_ONLY == set()


@pytest.mark.parametrize(
    "text",
    [
        "sum({})",
        "{} and on (job, instance) (leader_election_master_status == 0)",
        "{} unless on (job) (leader_election_master_status == 0)",
        "{} unless ignoring (job, instance) (leader_election_master_status == 0)",
        "{} unless on (job, instance) (leader_election_master_status == 1)",
        "{} unless on (job, instance) leader_election_master_status",
        '{} unless on (job, instance) (leader_election_master_status{job="a"} == 0)',
        "{} unless on (job, instance) (up == 0)",
        "sum({} unless on (job, instance) (leader_election_master_status == 0)) + sum({})",
    ],
)
def test_reading_every_replica_is_found(text: str) -> None:
    assert "scheduler_pending_pods" in of_all_replicas(text.replace("{}", "scheduler_pending_pods"))


def test_alerts_are_complete_and_have_a_runbook() -> None:
    sections = set(re.findall(r"^### (\w+)$", (ROOT / "docs" / "monitoring.md").read_text(), re.MULTILINE))
    assert sections == set(RULES)
    for name, rule in RULES.items():
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["runbook_url"] == f"{RUNBOOKS}#{name.lower()}"


def test_the_operator_gets_the_same_rules() -> None:
    rule = document(FOLDER / "prometheusrule.yaml")
    assert rule["spec"]["groups"] == GROUPS


def test_the_job_is_the_one_that_is_scraped() -> None:
    monitor = document(FOLDER / "servicemonitor.yaml")["spec"]
    service = document(ROOT / "manifests" / "base" / "service.yaml")
    base = document(ROOT / "manifests" / "base" / "kustomization.yaml")
    assert monitor["namespaceSelector"]["matchNames"] == [service["metadata"]["namespace"]]
    assert monitor["endpoints"][0]["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert monitor["selector"]["matchLabels"].items() <= base["labels"][0]["pairs"].items()
    jobs = {value for rule in RULES.values() for _, label, value in selectors(rule["expr"]) if label == "job"}
    assert jobs == {service["metadata"]["name"]}


def test_the_memory_alert_knows_the_limit() -> None:
    deployment = document(ROOT / "manifests" / "base" / "deployment.yaml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    limit = container["resources"]["limits"]["memory"]
    assert limit.endswith("Gi")
    assert RULES["KoordschedMemory"]["expr"].endswith(f"> 0.85 * {int(limit[:-2]) * 2**30}")


def test_the_board_is_whole() -> None:
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(taken)) == len(taken), "panels overlap"
    assert max(x for x, _ in taken) < 24


@needs_kubectl
def test_the_folder_can_be_built() -> None:
    objects = list(yaml.safe_load_all(kubectl("kustomize", str(FOLDER))))
    # What kube-prometheus-stack selects by.
    assert {obj["metadata"]["labels"]["release"] for obj in objects} == {"kube-prometheus-stack"}
    kinds = sorted(obj["kind"] for obj in objects)
    assert kinds == ["ClusterRole", "ConfigMap", "PrometheusRule", "ServiceMonitor"]
    (board,) = (obj for obj in objects if obj["kind"] == "ConfigMap")
    assert json.loads(board["data"]["dashboard.json"]) == BOARD
