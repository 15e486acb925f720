"""Results for people: a table per workload, ratios to the yardstick, and files."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.table import Table

from bench.chart import over_time
from bench.results import Report, Result

MARKDOWN_HEAD = (
    "| workload | scheduler | pods/s | x | CPU per pod | x | p99 | longest block (of it CPU) | peak memory | "
    "bare binder + Events |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n"
)


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
        "block ms (CPU)",
        "MiB",
        "events",
        "pods/s x",
        "CPU x",
    ):
        shown.add_column(heading, justify="left" if heading == "scheduler" else "right")
    against = _against(results, ceiling)
    for result in results:
        latency = result.latency
        shown.add_row(
            result.scheduler,
            f"{result.bound:,}",
            f"{result.pods_per_second:,.0f}",
            f"{result.cpu_ms_per_pod:.3f}",
            f"{latency.p50:,.1f}" if latency else "",
            f"{latency.p99:,.1f}" if latency else "",
            _block(result),
            f"{result.peak_rss_mib:,}",
            _events(result),
            *_ratios(result, against),
        )
        if result.error:
            shown.add_row(f"  {result.error}", style="red")
    return shown


def markdown(report: Report, ceiling: str) -> str:
    """One row per workload and scheduler, those that decide nothing in the last column, and what it all ran on."""
    rows = []
    for workload in dict.fromkeys(result.workload for result in report.results):
        results = [result for result in report.results if result.workload == workload]
        against = _against(results, ceiling)
        beside = f"{against.pods_per_second:,.0f}/s, {against.cpu_ms_per_pod:.3f} ms" if against else ""
        for result in results:
            if result is against or result.scheduler.startswith("bare binder"):
                continue
            rate, cpu = _ratios(result, against)
            cells = (
                f"{workload} ({result.nodes:,} nodes, {result.pods:,} pods)",
                result.scheduler + (f": {result.error}, {result.bound:,} bound" if result.error else ""),
                f"{result.pods_per_second:,.0f}",
                rate,
                f"{result.cpu_ms_per_pod:.3f} ms",
                cpu,
                f"{result.latency.p99:,.1f} ms" if result.latency else "",
                f"{_block(result)} ms" if result.block_ms is not None else "",
                f"{result.peak_rss_mib:,} MiB",
                beside,
            )
            rows.append("| " + " | ".join(cells) + " |")
    machine = report.machine
    versions = ", ".join(f"{name} {version}" for name, version in report.schedulers.items())
    foot = (
        f"\n{machine.processor}, {machine.cores} cores, {machine.memory_mib:,} MiB, {machine.system}, "
        f"Python {machine.python}; koordsched {machine.koordsched} ({machine.commit})"
        f"{', ' + versions if versions else ''}; server: {report.server} ({report.version}); {report.started}, "
        f"load before {machine.load}.\n"
    )
    return MARKDOWN_HEAD + "\n".join(rows) + "\n" + foot


def _against(results: list[Result], ceiling: str) -> Result | None:
    return next((r for r in results if r.scheduler == ceiling and not r.error), None)


def _block(result: Result) -> str:
    if result.block_ms is None or result.block_cpu_ms is None:
        return ""
    return f"{result.block_ms:,.0f} ({result.block_cpu_ms:,.0f})"


def _events(result: Result) -> str:
    return f"{result.events_written:,}" + (f" ({result.events_dropped:,} lost)" if result.events_dropped else "")


def _ratios(result: Result, against: Result | None) -> tuple[str, str]:
    if against is None or not against.pods_per_second or not against.cpu_ms_per_pod:
        return "", ""
    return (
        f"{result.pods_per_second / against.pods_per_second:.2f}",
        f"{result.cpu_ms_per_pod / against.cpu_ms_per_pod:.2f}",
    )


def write(report: Report, directory: Path, ceiling: str) -> list[Path]:
    """results.json, table.md, and a chart per workload; returns what was written."""
    written = [directory / "results.json", directory / "table.md"]
    written[0].write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    written[1].write_text(markdown(report, ceiling))
    for workload in dict.fromkeys(result.workload for result in report.results):
        chosen = [result for result in report.results if result.workload == workload]
        title = f"{workload}: pods bound ({chosen[0].nodes:,} nodes)"
        chart = directory / f"{workload}.svg"
        chart.write_text(over_time(title, [(result.scheduler, result.curve) for result in chosen]))
        written.append(chart)
    return written
