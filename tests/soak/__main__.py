"""python -m tests.soak --minutes 30 --rate 200: a long run, judged; a JSON file and a chart of what happened."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec
import uvloop

from tests.soak.chart import chart
from tests.soak.judge import MOST_GROWTH
from tests.soak.run import Plan, Report, Soak


def plan_of(arguments: argparse.Namespace) -> Plan:
    """What the command line asks for.

    Ten minutes of warm-up, or a third of a shorter run. A process keeps the memory of the largest backlog that it ever
    had, and the backlog after an outage is now larger, now smaller: the first outage, which belongs to the warm-up, is
    the longest, so that what grows afterwards grows with time.
    """
    duration = arguments.minutes * 60
    return Plan(
        duration=duration,
        rate=arguments.rate,
        warm_up=arguments.warm_up * 60 or min(600.0, duration / 3),
        restart_every=arguments.restart_every or min(240.0, duration / 3),
        first_outage=min(20.0, duration / 90),
        cut_every=min(45.0, duration / 6),
        sample_every=min(10.0, duration / 60),
        seed=arguments.seed,
        most_growth=MOST_GROWTH,
    )


def write(report: Report, folder: Path) -> None:
    """soak.json and soak.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "soak.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    title = f"{report.plan.duration / 60:g} minutes at {report.plan.rate:g} pods/s, {report.nodes} nodes"
    (folder / "soak.svg").write_text(chart(title, report.samples, report.restarts))


def main() -> int:
    """Runs one soak; 1 if it did not show what it must."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=200.0, help="pods per second")
    parser.add_argument("--warm-up", type=float, default=0.0, help="minutes that do not count")
    parser.add_argument("--restart-every", type=float, default=0.0, help="seconds between restarts of the API server")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("bench/out/soak"))
    arguments = parser.parse_args()

    def say(line: str) -> None:
        print(line, flush=True)

    async def run() -> Report:
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            return await Soak(plan_of(arguments), Path(folder), say).run()

    report = uvloop.run(run())
    write(report, arguments.out)
    print(
        f"\n{report.made} pods made, {report.bound} bound, {report.given_up} given up by their owners; {report.nodes} "
        f"nodes, {report.node_failures} failures, {report.nodes_replaced} replaced; {len(report.restarts)} restarts of "
        f"the server, {report.cuts} cuts of all connections, "
        f"{report.outcome.idle_after.preemptions} preemptions"
    )
    for verdict in report.verdicts:
        print(f"{'ok  ' if verdict.passed else 'FAIL'} {verdict.question}: {verdict.found}")
    print(f"written to {arguments.out}")
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
