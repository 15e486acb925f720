"""`koordsched explain NAMESPACE/POD`: every plugin's verdict and score on every node, and what could be done."""

from __future__ import annotations

import click

from koordsched.cli.endpoint import Endpoint, EndpointError
from koordsched.cli.explanation_table import print_explanation
from koordsched.cli.objectfiles import InputError
from koordsched.cli.offline import load_config, prepare
from koordsched.cli.output import console, fail, output_option, print_json
from koordsched.cli.state_options import State, state_options
from koordsched.scheduling.advice import Advised, with_advice
from koordsched.scheduling.offline import OfflineScheduler


@click.command("explain")
@click.argument("pod", metavar="[NAMESPACE/]POD")
@click.option("-n", "--namespace", help="The namespace, if it is not part of POD.  [default: default]")
@state_options
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Table: feasible nodes to show.")
@output_option
def explain(
    pod: str,
    namespace: str | None,
    state: State,
    top: int,
    output: str,
) -> None:
    """Say what the scheduler makes of POD, node by node and plugin by plugin.

    Asks a running scheduler, or, with -f, evaluates on files. A pod that is on a node already is explained as if it
    were pending (with -f).
    """
    if namespace and "/" in pod:
        raise click.UsageError(f"the namespace is given twice: {pod} and -n {namespace}")
    key = pod if "/" in pod else f"{namespace or 'default'}/{pod}"
    notes: list[str] = []
    try:
        answer = _offline(key, state, notes) if state.filenames else _asked(state.endpoint(), key)
    except (InputError, EndpointError) as error:
        fail(error)
    if output == "json":
        print_json(answer)
        return
    for note in notes:
        click.echo(f"note: {note}", err=True)
    print_explanation(console(), answer, answer.advice, top)


def _asked(endpoint: Endpoint, key: str) -> Advised:
    """What the running scheduler says. Raises EndpointError."""
    return endpoint.ask("/debug/explain", {"pod": key, "advice": "true"}, Advised, "an explanation")


def _offline(key: str, state: State, notes: list[str]) -> Advised:
    """What the scheduler would say on the state in the files. Raises InputError."""
    resolved, warnings = load_config(state.config_file)
    offline = prepare(state.objects(), resolved, lifted=key)
    scheduler = offline.scheduler
    if key not in scheduler.pending:
        raise InputError(_not_found(key, scheduler))
    notes += [*warnings, *offline.notes]
    pod = scheduler.pending[key]
    profile = scheduler.profiles[pod.shape.scheduler_name]
    return with_advice(profile, scheduler.cluster, pod, scheduler.explain(key))


def _not_found(key: str, scheduler: OfflineScheduler) -> str:
    namespace, _, name = key.partition("/")
    near = [other for other in scheduler.pending if other.startswith(f"{namespace}/{name[:4]}")][:5]
    if near:
        return f"no pod {key} for this scheduler in the input; there is {', '.join(near)}"
    return (
        f"no pod {key} for this scheduler in the input (schedulerName must be one of {', '.join(scheduler.profiles)})"
    )
