"""Health checks and their texts (apiserver `server/healthz/healthz.go`, core spec 2.4)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from koordsched.observability.escaping import printable
from koordsched.observability.logging import level_of
from koordsched.observability.metric_registry import MetricRegistry

_log = logging.getLogger(__name__)

Check = Callable[[], str | None]
"""Returns what is wrong, or None."""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A named check. Its reason is shown on its own path only, which needs authorization."""

    name: str
    check: Check


PING = HealthCheck("ping", lambda: None)


def shutdown_check(stopping: Callable[[], bool]) -> HealthCheck:
    """Fails from the moment the process is asked to stop."""
    return HealthCheck("shutdown", lambda: "process is shutting down" if stopping() else None)


def handler_sync_check(unsynced: Callable[[], Collection[str]]) -> HealthCheck:
    """Fails until the initial lists of all resources were handled; the reason names those that were not."""

    def check() -> str | None:
        waiting = sorted(unsynced())
        return f"handlers are not fully synchronized: {', '.join(waiting)}" if waiting else None

    return HealthCheck("sched-handler-sync", check)


def watch_checks(obstacles: Mapping[str, str]) -> list[HealthCheck]:
    """A failing check for each resource (`plural.group`) that cannot be watched; the values say why."""

    def failing(why: str) -> Check:
        return lambda: why

    return [HealthCheck(f"watch-{resource}", failing(why)) for resource, why in sorted(obstacles.items())]


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    """What an endpoint answers."""

    healthy: bool
    text: str


class HealthResults:
    """Counts the results of checks, for /metrics/slis (component-base `metrics/prometheus/slis`)."""

    def __init__(self) -> None:
        self.metrics = MetricRegistry()
        self._status = self.metrics.gauges(
            "kubernetes_healthcheck", "1 if the last run of this check passed, else 0.", ("name", "type"), "STABLE"
        )
        self._total = self.metrics.counters(
            "kubernetes_healthchecks_total", "Runs of this check by result.", ("name", "status", "type"), "STABLE"
        )

    def observe(self, endpoint: str, check: str, passed: bool) -> None:
        """A check of an endpoint was run."""
        self._status.labels(check, endpoint).set(1 if passed else 0)
        self._total.labels(check, "success" if passed else "error", endpoint).inc()


class HealthEndpoint:
    """`name` is healthz, livez or readyz. Checks run one after the other at every request.

    `also` names checks that there are only at times, after the others.
    """

    def __init__(
        self,
        name: str,
        checks: Sequence[HealthCheck],
        results: HealthResults,
        also: Callable[[], Sequence[HealthCheck]] = tuple,
    ) -> None:
        self.name = name
        self._checks = list(checks) or [PING]
        self._results = results
        self._also = also

    def answer(self, *, verbose: bool = False, exclude: Collection[str] = ()) -> HealthAnswer:
        """The answer of the endpoint itself: `ok`, or every check on a line of its own when asked to or failing."""
        lines = []
        reasons = []
        unmatched = set(exclude)
        for check in (*self._checks, *self._also()):
            if check.name in unmatched:
                unmatched.remove(check.name)
                lines.append(f"[+]{check.name} excluded: ok\n")
                continue
            reason = self._run(check)
            if reason is None:
                lines.append(f"[+]{check.name} ok\n")
            else:
                lines.append(f"[-]{check.name} failed: reason withheld\n")
                reasons.append(f"{check.name}: {reason}")
        if unmatched:
            names = ",".join(f'"{printable(name)}"' for name in sorted(unmatched))
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
        if reasons:
            _log.log(level_of(2), "%s check failed: %s", self.name, "; ".join(reasons))
            return HealthAnswer(False, f"{''.join(lines)}{self.name} check failed\n")
        if not verbose:
            return HealthAnswer(True, "ok")
        return HealthAnswer(True, f"{''.join(lines)}{self.name} check passed\n")

    def answer_one(self, name: str) -> HealthAnswer | None:
        """The answer of one check's own path, with the reason; None if there is no such check."""
        for check in (*self._checks, *self._also(), PING):
            if check.name == name:
                reason = self._run(check)
                if reason is None:
                    return HealthAnswer(True, "ok")
                return HealthAnswer(False, f"internal server error: {reason}\n")
        return None

    def _run(self, check: HealthCheck) -> str | None:
        reason = check.check()
        self._results.observe(self.name, check.name, reason is None)
        return reason
