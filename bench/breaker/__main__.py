"""`python -m bench.breaker`: pods that fail on broken nodes, with and without circuit breakers of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import click
import msgspec
from rich.table import Table

from bench.breaker.simulation import Outcome, Simulation
from bench.breaker.workload import wishes
from bench.chart import over_time
from bench.machine import Machine, describe
from koordsched import config
from koordsched.cli.output import console
from koordsched.config.resolving import Resolved
from koordsched.plugins import CATALOG

CHOSEN = tuple(f"{name}={Path(__file__).with_name(file)}" for name, file in (
    ("with", "profile.yaml"), ("one workload is enough", "one-workload.yaml"),
))  # fmt: skip
"""Configurations to run if none are given."""
WITHOUT = "without"
_DEFAULT = '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}'


class Results(msgspec.Struct):
    """Everything that was found, for machines."""

    machine: Machine
    nodes: int
    outcomes: dict[str, Outcome]
    """By configuration."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", "files", multiple=True, metavar="NAME=FILE",
              help="Configuration to run; may be repeated. Default: those of this folder.")  # fmt: skip
@click.option("--nodes", type=click.IntRange(2), default=200, show_default=True)
@click.option("--broken", type=click.IntRange(0), default=3, show_default=True, help="Nodes on which all pods fail.")
@click.option("--pods", type=click.IntRange(1), default=400, show_default=True,
              help="Of the Deployment that comes at once.")  # fmt: skip
@click.option("--minutes", type=click.IntRange(1), default=30, show_default=True,
              help="Simulated time; in the first half of it pods of other Deployments come, one by one.")  # fmt: skip
@click.option("--give-up", type=click.IntRange(1), default=30, show_default=True,
              help="Seconds after which a pod that fails is deleted, and replaced.")  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True, help="Of the workload and of ties.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("bench/out/breaker"),
              show_default=True, help="Directory for breaker.json and breaker.svg.")  # fmt: skip
def main(
    files: tuple[str, ...], nodes: int, broken: int, pods: int, minutes: int, give_up: int, seed: int, out: Path
) -> None:
    """Simulate a cluster in which some nodes are broken, once per scheduler configuration, the default one first.

    The engine alone places the pods, on simulated time.
    """
    if broken > nodes:
        raise SystemExit(f"bench: --broken {broken}: there are only {nodes} nodes")
    try:
        configurations = _configurations(files)
    except (ValueError, config.ConfigError) as error:
        raise SystemExit(f"bench: {error}") from error
    workload = list(wishes(pods, minutes * 30, Random(seed)))
    outcomes = {}
    for name, resolved in configurations.items():
        click.echo(f"{name} ...", err=True)
        outcomes[name] = Simulation(resolved, nodes, broken, workload, give_up, seed).run(minutes * 60)
    console().print(_table(outcomes, len(workload)))
    out.mkdir(parents=True, exist_ok=True)
    results = Results(describe(), nodes, outcomes)
    (out / "breaker.json").write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))
    lines = [
        (name, [(moment.minutes, moment.wanted - moment.running) for moment in outcome.moments])
        for name, outcome in outcomes.items()
    ]
    title = f"Pods that are wanted and do not run, {broken} of {nodes:,} nodes broken"
    (out / "breaker.svg").write_text(over_time(title, lines, unit="minutes"))
    click.echo(f"wrote {out / 'breaker.json'} and {out / 'breaker.svg'}")


def _configurations(files: Sequence[str]) -> dict[str, Resolved]:
    """By name. Raises ValueError, ConfigError."""
    chosen: dict[str, str | Path] = {WITHOUT: _DEFAULT}
    for text in files or CHOSEN:
        name, found, file = text.partition("=")
        if not found:
            raise ValueError(f"--config {text}: expected NAME=FILE")
        chosen[name] = Path(file)
    return {
        name: config.resolve(config.load(source, catalog=CATALOG), catalog=CATALOG) for name, source in chosen.items()
    }


def _table(outcomes: Mapping[str, Outcome], pods: int) -> Table:
    table = Table(title=f"{pods:,} pods; times in seconds")
    table.add_column("NodeCircuitBreaker")
    columns = ("failures", "per broken node", "Deployment runs after", "all run after the last came", "mean wait")
    for column in (*columns, "missing at the end"):
        table.add_column(column, justify="right")
    for name, outcome in outcomes.items():
        last = outcome.moments[-1]
        table.add_row(
            name,
            f"{last.failures:,}",
            ", ".join(f"{count:,}" for count in outcome.failures.values()),
            _seconds(outcome.large),
            _seconds(outcome.everything),
            f"{outcome.mean_wait:.1f}",
            f"{last.wanted - last.running:,}",
        )
    return table


def _seconds(found: float | None) -> str:
    return f"{found:.0f}" if found is not None else "never"


if __name__ == "__main__":
    main()
