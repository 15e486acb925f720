"""Results for people: a table per workload, ratios to the yardstick, and files."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.table import Table

from bench.chart import bound_over_time
from bench.results import Report, Result


def table(workload: str, results: list[Result], ceiling: str) -> Table:
    """One row per scheduler; the last columns compare with the scheduler called `ceiling`, if it took part."""
    first = results[0]
    shown = Table(title=f"{workload}: {first.nodes:,} nodes, {first.pods:,} pods, {first.arrival}")
    for heading in (
        "scheduler",
        "bound",
        "pods/s",
        "CPU ms/pod",
        "p50 ms",
        "p99 ms",
        "MiB",
        "events",
        "pods/s x",
        "CPU x",
    ):
        shown.add_column(heading, justify="left" if heading == "scheduler" else "right")
    against = next((r for r in results if r.scheduler == ceiling and not r.error), None)
    for result in results:
        latency = result.latency
        shown.add_row(
            result.scheduler,
            f"{result.bound:,}",
            f"{result.pods_per_second:,.0f}",
            f"{result.cpu_ms_per_pod:.3f}",
            f"{latency.p50:,.1f}" if latency else "",
            f"{latency.p99:,.1f}" if latency else "",
            f"{result.peak_rss_mib:,}",
            _events(result),
            *_ratios(result, against),
        )
        if result.error:
            shown.add_row(f"  [red]{result.error}[/red]")
    return shown


def _events(result: Result) -> str:
    return f"{result.events_written:,}" + (f" ({result.events_dropped:,} lost)" if result.events_dropped else "")


def _ratios(result: Result, against: Result | None) -> tuple[str, str]:
    if against is None or not against.pods_per_second or not against.cpu_ms_per_pod:
        return "", ""
    return (
        f"{result.pods_per_second / against.pods_per_second:.2f}",
        f"{result.cpu_ms_per_pod / against.cpu_ms_per_pod:.2f}",
    )


def write(report: Report, directory: Path) -> list[Path]:
    """results.json, and a chart per workload; returns what was written."""
    written = [directory / "results.json"]
    written[0].write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    for workload in dict.fromkeys(result.workload for result in report.results):
        chosen = [result for result in report.results if result.workload == workload]
        title = f"{workload}: pods bound ({chosen[0].nodes:,} nodes)"
        chart = directory / f"{workload}.svg"
        chart.write_text(bound_over_time(title, [(result.scheduler, result.curve) for result in chosen]))
        written.append(chart)
    return written
