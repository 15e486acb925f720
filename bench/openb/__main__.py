"""`python -m bench.openb DIR`: how much of a cluster's GPUs can be given to tasks, next to published results."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean, stdev
from typing import TypeVar

import click
import msgspec
from rich.table import Table

from bench.chart import Line, over_time
from bench.machine import Machine, describe
from bench.openb.runs import MARKS, POLICIES, PUBLISHED, Departures, Filled, Job, Rejected, fill, turn_over
from bench.openb.traces import TraceError, names, published
from koordsched import config
from koordsched.cli.output import console

PROFILE = Path(__file__).with_name("profile.yaml")
SHOWN = (80, 90, 95, 100, 110, 130)

R = TypeVar("R")

Published = Mapping[tuple[str, str], Mapping[int, float]]


class Results(msgspec.Struct):
    """Everything that was found, for machines."""

    machine: Machine
    filled: list[Filled]
    rejected: list[Rejected]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--config", "file", type=click.Path(path_type=Path), default=PROFILE, metavar="FILE",
              help="Configuration, whose first profile places pods. Default: profile.yaml of this folder.")  # fmt: skip
@click.option("--trace", "chosen", multiple=True, help="Trace to run; may be repeated. Default: all of the directory.")
@click.option("--seeds", type=click.IntRange(1), default=10, show_default=True, help="Runs of each trace.")
@click.option("--first-seed", type=int, default=1, show_default=True)
@click.option("--departures", is_flag=True, help="Tasks end; compare what is rejected with the published policies.")
@click.option("--load", type=click.IntRange(1, 200), default=90, show_default=True,
              help="With --departures: GPUs that tasks want at a time, in per cent.")  # fmt: skip
@click.option("--turnovers", type=click.IntRange(1), default=20, show_default=True,
              help="With --departures: mean lifetimes of a task to run for.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True, help="Processes.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("bench/out/openb"),
              show_default=True, help="Directory for openb.json and openb.svg.")  # fmt: skip
def main(
    directory: Path,
    file: Path,
    chosen: tuple[str, ...],
    seeds: int,
    first_seed: int,
    departures: bool,
    load: int,
    turnovers: int,
    jobs: int,
    out: Path,
) -> None:
    """Fill the cluster of the traces in DIRECTORY with their tasks, through the engine."""
    traces = chosen or names(directory)
    if not traces:
        raise SystemExit(f"bench: no traces in {directory}")
    work = [Job(directory, trace, seed, file) for trace in traces for seed in range(first_seed, first_seed + seeds)]
    filled: list[Filled] = []
    rejected: list[Rejected] = []
    try:
        known = published(directory)
        if departures:
            living = Departures(load, turnovers)
            rejected = _all(turn_over, [(job, policy, living) for job in work for policy in POLICIES], jobs)
            console().print(_rejections(rejected))
        else:
            filled = _all(fill, [(job,) for job in work], jobs)
            console().print(_allocations(filled, known))
            decisions, seconds = sum(run.decisions for run in filled), sum(run.seconds for run in filled)
            click.echo(f"{decisions / seconds:,.0f} decisions per second of CPU")
    except (TraceError, config.ConfigError) as error:
        raise SystemExit(f"bench: {error}") from error
    out.mkdir(parents=True, exist_ok=True)
    results = Results(describe(), filled, rejected)
    (out / "openb.json").write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))
    click.echo(f"wrote {out / 'openb.json'}")
    if filled:
        (out / "openb.svg").write_text(_chart(filled, known))
        click.echo(f"wrote {out / 'openb.svg'}")


def _all(call: Callable[..., R], arguments: Sequence[tuple[object, ...]], jobs: int) -> list[R]:
    if jobs == 1:
        return list(_told(map(call, *zip(*arguments, strict=True)), len(arguments)))
    with ProcessPoolExecutor(min(jobs, len(arguments))) as pool:
        return list(_told(pool.map(call, *zip(*arguments, strict=True)), len(arguments)))


def _told(results: Iterable[R], runs: int) -> Iterator[R]:
    """The same, while what is done so far is shown."""
    for done, result in enumerate(results, 1):
        click.echo(f"{done} of {runs} runs", err=True)
        yield result


def _allocations(filled: Sequence[Filled], known: Published) -> Table:
    """Means over seeds; after each, by how much that is above what is published."""
    title = f"GPUs allocated, per cent, after so many per cent of all GPUs arrived (above {PUBLISHED} as published)"
    table = Table(title=title)
    table.add_column("trace")
    for mark in SHOWN:
        table.add_column(str(mark), justify="right")
    table.add_column("σ at 100", justify="right")
    table.add_column("decisions/s", justify="right")
    above: dict[int, list[float]] = {}
    for trace, runs in _by_trace(filled).items():
        cells = []
        for mark in SHOWN:
            here = mean(run.allocated[MARKS.index(mark)] for run in runs)
            cell = f"{here:.2f}"
            if (there := known.get((trace, PUBLISHED), {}).get(mark)) is not None:
                above.setdefault(mark, []).append(here - there)
                cell += f" ({here - there:+.2f})"
            cells.append(cell)
        at_100 = [run.allocated[MARKS.index(100)] for run in runs]
        spread = f"{stdev(at_100):.2f}" if len(runs) > 1 else ""
        rate = sum(run.decisions for run in runs) / sum(run.seconds for run in runs)
        table.add_row(trace, *cells, spread, f"{rate:,.0f}")
    if above:
        table.add_row("mean", *(f"{mean(above[mark]):+.2f}" if mark in above else "" for mark in SHOWN), "", "")
    return table


def _rejections(rejected: Sequence[Rejected]) -> Table:
    table = Table(title="GPUs that rejected tasks asked for, per cent of all that were asked for")
    table.add_column("trace")
    for policy in POLICIES:
        table.add_column(policy, justify="right")
    for trace, runs in _by_trace(rejected).items():
        table.add_row(trace, *(f"{_mean_of(runs, policy):.3f}" for policy in POLICIES))
    table.add_row("mean", *(f"{_mean_of(rejected, policy):.3f}" for policy in POLICIES))
    return table


def _mean_of(runs: Iterable[Rejected], policy: str) -> float:
    return mean(run.percent for run in runs if run.policy == policy)


T = TypeVar("T", Filled, Rejected)


def _by_trace(runs: Iterable[T]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for run in runs:
        found.setdefault(run.trace, []).append(run)
    return found


def _chart(filled: Sequence[Filled], known: Published) -> str:
    """What is not allocated of what has arrived, or of all GPUs once more has: means over traces."""
    traces = list(_by_trace(filled))
    lines: list[Line] = [
        ("GPUFragmentation", _lost({mark: mean(run.allocated[at] for run in filled) for at, mark in enumerate(MARKS)}))
    ]
    for policy in sorted({policy for _, policy in known}):
        of_policy = [known[trace, policy] for trace in traces if (trace, policy) in known]
        if len(of_policy) == len(traces):
            points = {mark: mean(found[mark] for found in of_policy) for mark in MARKS if mark in of_policy[0]}
            lines.append((f"{policy}, published", _lost(points)))
    title = f"GPUs wanted and not allocated, per cent of all; mean of {len(traces)} traces"
    return over_time(title, lines, unit="per cent of all GPUs that have arrived")


def _lost(allocated: Mapping[int, float]) -> list[tuple[float, float]]:
    return [(0.0, 0.0), *((mark, max(0.0, min(mark, 100) - share)) for mark, share in sorted(allocated.items()))]


if __name__ == "__main__":
    main()
