"""`python -m bench.loadaware`: real CPU usage of the nodes over time, with and without scheduling by load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import click
import msgspec
from rich.table import Table

from bench.chart import over_time
from bench.loadaware.simulation import FULL_PERCENT, Moment, Simulation
from bench.loadaware.workload import bursts
from bench.machine import Machine, describe
from koordsched import config
from koordsched.cli.output import console
from koordsched.config.resolving import Resolved
from koordsched.plugins import CATALOG, IN_TREE

PROFILE = Path(__file__).with_name("profile.yaml")
BY_REQUESTS = "by requests"
_DEFAULT = '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}'


class Results(msgspec.Struct):
    """Everything that was found, for machines."""

    machine: Machine
    nodes: int
    moments: dict[str, list[Moment]]
    """By configuration, one a minute."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", "files", multiple=True, metavar="NAME=FILE",
              help="Configuration to run; may be repeated. Default: profile.yaml of this folder.")  # fmt: skip
@click.option("--baseline/--no-baseline", default=True, show_default=True, help="Run the default profile first.")
@click.option("--nodes", type=click.IntRange(1), default=500, show_default=True)
@click.option("--minutes", type=click.IntRange(10), default=120, show_default=True, help="Simulated time.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the workload and of ties.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("bench/out/loadaware"),
              show_default=True, help="Directory for loadaware.json and loadaware.svg.")  # fmt: skip
def main(files: tuple[str, ...], baseline: bool, nodes: int, minutes: int, seed: int, out: Path) -> None:
    """Simulate a cluster whose pods use other amounts than they request, once per scheduler configuration.

    The engine alone places the pods, on simulated time; every node reports its load once a minute.
    """
    try:
        configurations = _configurations(files, baseline=baseline)
    except (ValueError, config.ConfigError) as error:
        raise SystemExit(f"bench: {error}") from error
    for name, resolved in configurations.items():
        for text in config.warnings(resolved, CATALOG, IN_TREE.keys()):
            click.echo(f"{name}: {text}", err=True)
    moments = {}
    for name, resolved in configurations.items():
        click.echo(f"{name} ...", err=True)
        scheduler = resolved.profiles[0].scheduler_name
        workload = list(bursts(nodes, minutes * 60, scheduler, Random(seed)))
        moments[name] = Simulation(resolved, nodes, workload, seed).run(minutes * 60)
    console().print(_table(moments))
    out.mkdir(parents=True, exist_ok=True)
    results = Results(describe(), nodes, moments)
    (out / "loadaware.json").write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))
    (out / "loadaware.svg").write_text(_chart(nodes, moments))
    click.echo(f"wrote {out / 'loadaware.json'} and {out / 'loadaware.svg'}")


def _configurations(files: Sequence[str], *, baseline: bool) -> dict[str, Resolved]:
    """By name. Raises ValueError, ConfigError."""
    chosen: dict[str, str | Path] = {BY_REQUESTS: _DEFAULT} if baseline else {}
    for text in files or (f"by load={PROFILE}",):
        name, found, file = text.partition("=")
        if not found:
            raise ValueError(f"--config {text}: expected NAME=FILE")
        chosen[name] = Path(file)
    return {
        name: config.resolve(config.load(source, catalog=CATALOG), catalog=CATALOG) for name, source in chosen.items()
    }


def _table(moments: Mapping[str, Sequence[Moment]]) -> Table:
    """Averages and extremes of the second half, when the cluster is full."""
    table = Table(title="CPU that pods want to use, in percent of their node's, in the second half of the time")
    table.add_column("configuration")
    columns = ("median node", "p95 node", "busiest node", f"nodes > {FULL_PERCENT} %", "cores missing", "pending, most")
    for column in columns:
        table.add_column(column, justify="right")
    for name, all_of_it in moments.items():
        late = all_of_it[len(all_of_it) // 2 :]
        count = len(late)
        table.add_row(
            name,
            f"{sum(moment.p50 for moment in late) / count:.0f}",
            f"{sum(moment.p95 for moment in late) / count:.0f}",
            f"{max(moment.highest for moment in late):.0f}",
            f"{sum(moment.over for moment in late) / count:.1f}",
            f"{sum(moment.missing for moment in late) / count:.1f}",
            f"{max(moment.pending for moment in late):,}",
        )
    return table


def _chart(nodes: int, moments: Mapping[str, Sequence[Moment]]) -> str:
    lines = []
    for name, points in moments.items():
        lines.append((f"busiest node, {name}", [(moment.minutes, moment.highest) for moment in points]))
        lines.append((f"p95, {name}", [(moment.minutes, moment.p95) for moment in points]))
    return over_time(f"CPU usage in percent of the node, {nodes:,} nodes", lines, unit="minutes")


if __name__ == "__main__":
    main()
