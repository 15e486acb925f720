"""Health endpoints: the exact texts that kubelets, operators and scripts see."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from koordsched.observability.exposition import render
from koordsched.observability.health import (
    PING,
    HealthCheck,
    HealthEndpoint,
    HealthResults,
    handler_sync_check,
    shutdown_check,
)

BAD = HealthCheck("bad", lambda: "the reason")
GOOD = HealthCheck("good", lambda: None)


@pytest.mark.parametrize(
    ("checks", "verbose", "exclude", "healthy", "text"),
    [
        ([], False, [], True, "ok"),
        ([], True, [], True, "[+]ping ok\nhealthz check passed\n"),
        ([PING, GOOD], True, [], True, "[+]ping ok\n[+]good ok\nhealthz check passed\n"),
        ([PING, BAD], False, [], False, "[+]ping ok\n[-]bad failed: reason withheld\nhealthz check failed\n"),
        ([PING, BAD], False, ["bad"], True, "ok"),
        ([PING, BAD], True, ["bad"], True, "[+]ping ok\n[+]bad excluded: ok\nhealthz check passed\n"),
        (
            [GOOD],
            True,
            ["x\ny", "good", "a"],
            True,
            "[+]good excluded: ok\nwarn: some health checks cannot be excluded: no matches for "
            '"a","x\\ny"\nhealthz check passed\n',
        ),
    ],
)
def test_endpoint(checks: list[HealthCheck], verbose: bool, exclude: Collection[str], healthy: bool, text: str) -> None:
    answer = HealthEndpoint("healthz", checks, HealthResults()).answer(verbose=verbose, exclude=exclude)
    assert (answer.healthy, answer.text) == (healthy, text)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("good", (True, "ok")),
        ("bad", (False, "internal server error: the reason\n")),
        ("ping", (True, "ok")),
        ("other", None),
    ],
)
def test_single_checks(name: str, expected: tuple[bool, str] | None) -> None:
    answer = HealthEndpoint("readyz", [GOOD, BAD], HealthResults()).answer_one(name)
    assert (None if answer is None else (answer.healthy, answer.text)) == expected


def test_shutdown_and_sync() -> None:
    waiting = {"pods", "nodes"}
    stopping = False
    sync, shutdown = handler_sync_check(lambda: waiting), shutdown_check(lambda: stopping)
    assert (sync.name, sync.check()) == ("sched-handler-sync", "handlers are not fully synchronized: nodes, pods")
    assert (shutdown.name, shutdown.check()) == ("shutdown", None)
    waiting.clear()
    stopping = True
    assert sync.check() is None
    assert shutdown.check() == "process is shutting down"


def test_results_are_counted() -> None:
    results = HealthResults()
    endpoint = HealthEndpoint("livez", [GOOD, BAD], results)
    endpoint.answer()
    endpoint.answer(exclude=["bad"])
    text = asyncio.run(render(results.metrics, lambda: 0.0)).decode()
    assert [line for line in text.splitlines() if not line.startswith("# HELP")] == [
        "# TYPE kubernetes_healthcheck gauge",
        'kubernetes_healthcheck{name="bad",type="livez"} 0.0',
        'kubernetes_healthcheck{name="good",type="livez"} 1.0',
        "# TYPE kubernetes_healthchecks_total counter",
        'kubernetes_healthchecks_total{name="bad",status="error",type="livez"} 1.0',
        'kubernetes_healthchecks_total{name="good",status="success",type="livez"} 2.0',
    ]
