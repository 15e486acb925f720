"""Advice on pending pods: verdict and remedies, case by case, on the default profile."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from koordsched.cli.objectfiles import Sourced
from koordsched.cli.offline import load_config, prepare
from koordsched.scheduling.advice import Advice, advise
from koordsched.scheduling.offline import OfflineScheduler
from koordsched.scheduling.remedies import REMEDIES
from tests.cli.clusters import bound, node, pod

Object = dict[str, Any]

GPU = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def offline(*objects: Object) -> OfflineScheduler:
    resolved, _ = load_config(None)
    return prepare([Sourced("here", obj) for obj in objects], resolved).scheduler


def advice_on(scheduler: OfflineScheduler, key: str) -> Advice:
    explanation = scheduler.explain(key)
    wanted = scheduler.pending[key]
    return advise(scheduler.profiles[wanted.shape.scheduler_name], scheduler.cluster, wanted, explanation)


def remedies(advice: Advice) -> list[tuple[str, int, list[str]]]:
    return [(r.node, r.nodes, [change.text for change in r.changes]) for r in advice.remedies]


@pytest.mark.parametrize(
    "objects, verdict, empty, expected",
    [
        pytest.param([node("n1"), pod("a")], "fits", "", [], id="fits"),
        pytest.param([pod("a")], "never", "", [], id="no nodes"),
        pytest.param([node("n1"), pod("a", schedulingGates=[{"name": "g"}])], "gated", "", [], id="gated"),
        pytest.param(
            [node("n1"), pod("a", resourceClaims=[{"name": "r", "resourceClaimName": "x"}])],
            "gated",
            "",
            [],
            id="a resource claim is missing",
        ),
        pytest.param(
            [node("n1"), node("n2"), bound("b", "n1", "4"), bound("c", "n2", "3500m"), pod("a")],
            "waits",
            "n2",
            [("n2", 2, ["500m cpu more free"])],
            id="the smallest shortage is named",
        ),
        pytest.param(
            [node("n1"), bound("b", "n1", "3001m"), pod("a")],
            "waits",
            "n1",
            [("n1", 1, ["1m cpu more free"])],
            id="the least of a resource is missing",
        ),
        pytest.param(
            [node("n1"), bound("b", "n1", "4"), pod("a", requests={"memory": "9Gi"})],
            "never",
            "",
            [("n1", 1, ["a node with 9Gi memory (this one has 8Gi) and 1 cpu more free"])],
            id="one resource is taken, another not there",
        ),
        pytest.param(
            [node("n1", pods="1"), bound("b", "n1"), pod("a")],
            "waits",
            "n1",
            [("n1", 1, ["a free pod slot (all 1 are taken)"])],
            id="pod slots",
        ),
        pytest.param(
            [node("n1", taints=[GPU]), node("n2", taints=[{"key": "x", "effect": "NoExecute"}, GPU]), pod("a")],
            "never",
            "",
            [("n1", 2, ["a toleration of taint gpu=yes:NoSchedule"])],
            id="taints",
        ),
        pytest.param(
            [
                node("n1", taints=[{"key": "x", "effect": "NoExecute"}, GPU, {**GPU, "effect": "PreferNoSchedule"}]),
                pod("a"),
            ],
            "never",
            "",
            [("n1", 1, ["a toleration of taint x:NoExecute and gpu=yes:NoSchedule"])],
            id="all untolerated taints, not the soft ones",
        ),
        pytest.param(
            [node("n1", unschedulable=True), pod("a")], "never", "", [("n1", 1, ["the node uncordoned"])], id="cordoned"
        ),
        pytest.param(
            [
                node("n1", labels={"disk": "hdd"}),
                pod("a", nodeSelector={"disk": "ssd", "kubernetes.io/hostname": "n1"}),
            ],
            "never",
            "",
            [("n1", 1, ["the label disk=ssd on the node"])],
            id="node selector",
        ),
        pytest.param(
            [node("n1"), bound("b", "n1", host_ports=[80]), pod("a", host_ports=[80, 81])],
            "waits",
            "n1",
            [("n1", 1, ["host port 80/TCP free"])],
            id="host ports",
        ),
        pytest.param(
            [
                node("full"),
                node("tainted", taints=[GPU]),
                node("both", taints=[GPU]),
                bound("b", "full", "4"),
                bound("c", "both", "4"),
                pod("a"),
            ],
            "waits",
            "full",
            [
                ("full", 1, ["1 cpu more free"]),
                ("tainted", 1, ["a toleration of taint gpu=yes:NoSchedule"]),
                ("both", 1, ["a toleration of taint gpu=yes:NoSchedule", "1 cpu more free"]),
            ],
            id="grouped by all that stands in the way, what time may bring first",
        ),
    ],
)
def test_advice(objects: list[Object], verdict: str, empty: str, expected: list[tuple[str, int, list[str]]]) -> None:
    advice = advice_on(offline(*objects), "default/a")
    assert (advice.verdict, advice.empty_node, remedies(advice)) == (verdict, empty, expected)


def test_an_open_circuit_breaker_is_named_with_its_end() -> None:
    broken = node("n1")
    record = '{"state": "open", "until": "2030-01-01T00:00:00Z"}'
    broken["metadata"]["annotations"] = {"koordsched.io/circuit-breaker": record}
    scheduler = offline(broken, pod("a"))
    text = REMEDIES["NodeCircuitBreaker"](scheduler.pending["default/a"], scheduler.cluster.table, 0)
    assert text == "the circuit breaker of the node closed (open until 2030-01-01T00:00:00Z)"


def test_preemption_is_named() -> None:
    preemptor = pod("a", "2", priority=10)
    preemptor["metadata"]["uid"] = "u"
    advice = advice_on(offline(node("n1"), bound("b", "n1", "4", priority=1), preemptor), "default/a")
    assert advice.text == (
        "It waits for room: n1 could run this pod if it were empty. "
        "Preemption would evict 1 pod of lower priority from n1."
    )


def test_nothing_changes() -> None:
    rng = Random(7)
    nodes = [node(f"n{i}", taints=[GPU] if i % 5 == 0 else []) for i in range(20)]
    pods = [bound(f"b{i}", f"n{i if i < 20 else rng.randrange(20)}", "500m", host_ports=[8000 + i]) for i in range(60)]
    scheduler = offline(*nodes, *pods, pod("a", "4"), pod("p", "1", host_ports=list(range(8000, 8060))))
    table = scheduler.cluster.table

    def state() -> list[np.ndarray[Any, Any]]:
        columns = [table.pods_count, *table.requested, *table.allocatable, *table.requested_nonzero]
        return [column.data[: table.size].copy() for column in columns]

    before, serial = state(), table.log.serial
    ports = {row: len(table.ports.conflicts([("0.0.0.0", "TCP", 8000 + row)])) for row in range(60)}
    verdicts = [advice_on(scheduler, key).verdict for key in ("default/a", "default/p")]
    assert verdicts == ["waits", "waits"]
    assert table.log.serial == serial
    assert all(np.array_equal(then, now) for then, now in zip(before, state(), strict=True))
    assert ports == {row: len(table.ports.conflicts([("0.0.0.0", "TCP", 8000 + row)])) for row in range(60)}


@pytest.mark.parametrize("seed", range(5))
def test_waiting_pods_fit_on_the_empty_node_and_others_on_none(seed: int) -> None:
    """Checked by emptying the nodes for real."""
    rng = Random(seed)
    nodes = [
        node(f"n{i}", cpu=str(rng.randint(1, 6)), taints=[GPU] if rng.random() < 0.3 else [], labels={"z": str(i % 3)})
        for i in range(12)
    ]
    pods = [bound(f"b{i}", f"n{rng.randrange(12)}", "700m") for i in range(60)]
    wanted = [pod(f"w{i}", str(rng.randint(1, 7)), nodeSelector={"z": str(rng.randrange(3))}) for i in range(10)]
    crowded, empty = offline(*nodes, *pods, *wanted), offline(*nodes, *wanted)
    for key in crowded.pending:
        advice, possible = advice_on(crowded, key), empty.explain(key)
        feasible = {verdict.name for verdict in possible.nodes if verdict.feasible}
        if advice.verdict == "waits":
            assert advice.empty_node in feasible
        else:
            assert (advice.verdict == "never") == (not feasible)
