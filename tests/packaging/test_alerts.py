"""Which alerts fire, and what the board shows, for pairs of replicas: promtool evaluates the rules that are shipped."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

PROMTOOL = shutil.which("promtool")
pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")

FOLDER = Path(__file__).parents[2] / "manifests" / "monitoring"
PANELS = {panel["title"]: panel for panel in json.loads((FOLDER / "dashboard.json").read_text())["panels"]}
JOB = "koordsched-metrics"

STATUS = 'leader_election_master_status{name="koordsched"}'
ACTIVE = 'scheduler_pending_pods{queue="active"}'
UNSCHEDULABLE = 'scheduler_pending_pods{queue="unschedulable"}'
REJECTED = 'scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="default-scheduler"}'
INCOMING = 'scheduler_queue_incoming_pods_total{event="UnschedulablePodAdd",queue="active"}'
ATTEMPTS = 'scheduler_schedule_attempts_total{profile="default-scheduler",result="unschedulable"}'
EXPIRED = 'koordsched_node_reports{state="expired"}'
QUOTA = 'scheduler_elastic_quota_status{{name="team",resource="cpu",tree="",is_parent="false",parent="",field="{}"}}'
USED, MAX, RUNTIME, WANTED = (QUOTA.format(field) for field in ("used", "max", "runtime", "child-request"))
REVOKED = 'koordsched_quota_pods_revoked_total{name="team"}'
RESERVATION = 'scheduler_reservation_status_phase{{name="r",phase="{}"}}'
PENDING, AVAILABLE = RESERVATION.format("Pending"), RESERVATION.format("Available")
GANG_WAITS = "koordsched_gang_oldest_wait_seconds"
STATE_OF_NODES = {
    'koordsched_overcommitted_nodes{resource="cpu"}': "KoordschedNodesOvercommitted",
    EXPIRED: "KoordschedNodeReportsExpired",
    'koordsched_circuit_breakers{state="held"}': "KoordschedCircuitBreakersHeld",
    "koordsched_quarantined_workloads": "KoordschedWorkloadQuarantined",
    "koordsched_numa_conflicting_cpus": "KoordschedCPUsGivenTwice",
    'koordsched_numa_nodes{state="invalid"}': "KoordschedNodeTopologiesInvalid",
    'koordsched_overcommitted_devices{type="gpu"}': "KoordschedDevicesOvercommitted",
    'koordsched_devices{type="gpu",state="unhealthy"}': "KoordschedDevicesUnhealthy",
    'koordsched_resource_pools{driver="gpu.example.com",state="incomplete"}': "KoordschedResourcePoolsUnusable",
    'koordsched_resource_pool_devices{driver="gpu.example.com",state="gone"}': "KoordschedAllocatedDevicesGone",
}
"""Gauge -> the alert that it causes."""

Replica = Mapping[str, str]
"""Series without labels of the target -> values per minute, as promtool has them: `5x120` is 5 and 120 more of it,
`0+60x120` grows by 60 a minute, `stale` is the end of a target and `_` a minute without it."""


@dataclass(frozen=True)
class Check:
    """What is so at a minute: alerts that fire, and panels by their labels and values, `{}` where there is no data."""

    minute: int
    firing: tuple[str, ...] = ()
    panels: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def leader(active: str = "0x120", attempts: str = "0+60x120", **more: str) -> dict[str, str]:
    return {"up": "1x120", STATUS: "1x120", ACTIVE: active, ATTEMPTS: attempts, **more}


def standby(active: str = "1203x120") -> dict[str, str]:
    """One that shows its queue, as older versions did: all pods that wait are in the active one."""
    return {"up": "1x120", STATUS: "0x120", ACTIVE: active, INCOMING: "0+60x120"}


IDLE_FOR_NOW = {"Pods that wait": {"{}": 0}, "Pods by queue": {'{queue="active"}': 0}}
CASES: dict[str, tuple[list[Replica], list[Check]]] = {
    "an idle pair": (
        [leader(), standby()],
        [Check(120, panels=IDLE_FOR_NOW)],
    ),
    "an idle pair whose standby shows no queue": (
        [leader(), {"up": "1x120", STATUS: "0x120"}],
        [Check(120, panels=IDLE_FOR_NOW)],
    ),
    "pods that fit nowhere are counted once": (
        [leader(**{UNSCHEDULABLE: "1203x120", REJECTED: "1203x120", INCOMING: "0+60x120"}), standby()],
        [
            Check(
                59,
                panels={
                    "Pods that wait": {"{}": 1203},
                    "Pods by queue": {'{queue="active"}': 0, '{queue="unschedulable"}': 1203},
                    "Unschedulable pods by plugin": {'{plugin="NodeResourcesFit"}': 1203},
                    "What brings pods into the active queue": {'{event="UnschedulablePodAdd"}': 1},
                },
            ),
            Check(61, ("KoordschedPodsUnschedulable",)),
        ],
    ),
    "a busy leader": (
        [leader("0x9 1500x110"), standby("0x9 1500x110")],
        [
            Check(24, panels={"Pods that wait": {"{}": 1500}, "Pods by queue": {'{queue="active"}': 1500}}),
            Check(26, ("KoordschedBacklog",)),
        ],
    ),
    "a leader that tries nothing": (
        [leader("3x120", "60x120"), standby()],
        [Check(4), Check(10, ("KoordschedStuck",), {"Pods that wait": {"{}": 3}})],
    ),
    "a change of the leader, and the new one is busy, too": (
        [
            {"up": "1x29 0x90", STATUS: "1x29 stale", ACTIVE: "1500x29 stale", ATTEMPTS: "0+60x29 stale"},
            {"up": "1x120", STATUS: "0x29 1x90", ACTIVE: "1600x120", ATTEMPTS: "_x30 60+60x89"},
        ],
        [
            Check(29, ("KoordschedBacklog",), {"Pods that wait": {"{}": 1500}}),
            Check(31, ("KoordschedBacklog",), {"Pods that wait": {"{}": 1600}}),
        ],
    ),
    "a change of the leader, after which all pods find a node": (
        [
            {"up": "1x29 0x9 1x80", STATUS: "1x29 stale _x8 0x80", ACTIVE: "1500x29 stale", ATTEMPTS: "0+60x29 stale"},
            {"up": "1x120", STATUS: "0x29 1x90", ACTIVE: "1600x31 0x88", ATTEMPTS: "_x30 60+60x89"},
        ],
        [
            Check(31, ("KoordschedBacklog",)),
            Check(33, panels={"Pods that wait": {"{}": 0}}),
            Check(60, panels=IDLE_FOR_NOW),
        ],
    ),
    "a change of the leader, and the new one tries nothing": (
        [
            {"up": "1x29 0x9 1x80", STATUS: "1x29 stale _x8 0x80", ACTIVE: "0x29 stale", ATTEMPTS: "0+60x29 stale"},
            {"up": "1x120", STATUS: "0x29 1x90", ACTIVE: "1203x120"},
        ],
        [Check(29), Check(34), Check(43, ("KoordschedStuck",)), Check(46, ("KoordschedBacklog", "KoordschedStuck"))],
    ),
    "no leader": (
        [standby(), standby("1500x120")],
        [Check(120, ("KoordschedNoLeader",), {"Pods that wait": {}, "Pods by queue": {}})],
    ),
    "one replica without election": (
        [{"up": "1x120", ACTIVE: "1500x120", ATTEMPTS: "0+60x120"}],
        [
            Check(
                16,
                ("KoordschedBacklog", "KoordschedNoLeader", "KoordschedNoStandby"),
                {"Pods that wait": {"{}": 1500}},
            )
        ],
    ),
    "a quota in which pods wait, seen by both replicas": (
        [
            leader(**{USED: "960x120", MAX: "1000x120", WANTED: "1500x120", RUNTIME: "1000x120"}),
            standby("0x120") | {USED: "960x120", MAX: "1000x120", WANTED: "1500x120", RUNTIME: "1000x120"},
        ],
        [
            Check(59, panels={"Fullest quotas": {'{name="team",resource="cpu"}': 0.96}, "CPUs borrowed": {}}),
            Check(61, ("KoordschedQuotaFull",)),
        ],
    ),
    "a full quota that no pod waits for, and one with room": (
        [leader(**{USED: "1000x60 500x60", MAX: "1000x120", WANTED: "1000x60 1500x60", RUNTIME: "1000x120"})],
        [Check(10), Check(120, ("KoordschedNoStandby",))],
    ),
    "a quota that keeps what it borrowed": (
        [leader(**{USED: "800x120", MAX: "1000x120", WANTED: "800x120", RUNTIME: "500x120"}), standby("0x120")],
        [Check(59), Check(61, ("KoordschedQuotaBorrowsLong",))],
    ),
    "a quota whose pods are evicted": (
        [leader(**{REVOKED: "0x30 2x90"}), standby("0x120") | {REVOKED: "0x120"}],
        [Check(30), Check(35, ("KoordschedQuotaRevoked",)), Check(60)],
    ),
    "a Reservation that waits, and gets a node after an hour": (
        [leader(**{PENDING: "1x61 0x59", AVAILABLE: "0x61 1x59"}), standby("0x120") | {PENDING: "1x120"}],
        [
            Check(59, panels={"Reservations by phase": {'{phase="Pending"}': 1, '{phase="Available"}': 0}}),
            Check(61, ("KoordschedReservationPending",)),
            Check(90, panels={"Reservations by phase": {'{phase="Pending"}': 0, '{phase="Available"}': 1}}),
        ],
    ),
    "a gang that waits, and gets its room after an hour and a half": (
        [leader(**{GANG_WAITS: "0+60x90 0x30"}), standby("0x120") | {GANG_WAITS: "9000x120"}],
        [Check(60), Check(67, ("KoordschedGangWaits",)), Check(92)],
    ),
    "a standby that is wrong about nodes": (
        [leader(), standby("0x120") | dict.fromkeys(STATE_OF_NODES, "5x120")],
        [Check(120, panels={"Over-committed nodes": {"{}": 0}, "Nodes by their NodeResourceTopology": {}})],
    ),
    "a leader that knows of wrong nodes": (
        [leader(**dict.fromkeys(STATE_OF_NODES, "5x120")), standby("0x120") | dict.fromkeys(STATE_OF_NODES, "9x120")],
        [
            Check(
                30,
                tuple(STATE_OF_NODES.values()),
                {
                    "Over-committed nodes": {"{}": 5},
                    "Nodes by their NodeResourceTopology": {'{state="invalid"}': 5},
                },
            )
        ],
    ),
}


def of_target(series: str, number: int) -> str:
    """A series as Prometheus has it."""
    name, _, labels = series.partition("{")
    more = f",{labels}" if labels else "}"
    return f'{name}{{job="{JOB}",instance="10.0.0.{number}:10259"{more}'


def expression(panel: str) -> str:
    """The first of a panel, as Grafana sends it."""
    text: str = PANELS[panel]["targets"][0]["expr"]
    return text.replace("$__rate_interval", "5m").replace("$job", JOB).replace("$profile", ".*")


def checked(check: Check) -> Iterator[dict[str, Any]]:
    """What promtool is to evaluate, and the result that is right."""

    def test(expr: str, expected: Mapping[str, float]) -> dict[str, Any]:
        samples = [{"labels": labels, "value": value} for labels, value in expected.items()]
        return {"expr": expr, "eval_time": f"{check.minute}m", "exp_samples": samples}

    firing = {f'{{alertname="{name}"}}': 1.0 for name in check.firing}
    yield test('count by (alertname) (ALERTS{alertstate="firing"})', firing)
    for panel, expected in check.panels.items():
        yield test(expression(panel), expected)


@pytest.mark.parametrize("case", CASES)
def test_alerts_and_board(case: str, tmp_path: Path) -> None:
    replicas, checks = CASES[case]
    series = [
        {"series": of_target(name, number), "values": values}
        for number, replica in enumerate(replicas)
        for name, values in replica.items()
    ]
    tests = [test for check in checks for test in checked(check)]
    file = tmp_path / "test.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(FOLDER / "rules.yaml")],
                "evaluation_interval": "1m",
                "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": tests}],
            }
        )
    )
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_valid() -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "check", "rules", str(FOLDER / "rules.yaml")], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
