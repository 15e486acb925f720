"""`koordsched explain NAMESPACE/POD`: every plugin's verdict and score on every node, and what could be done."""

from __future__ import annotations

import click
import msgspec

from koordsched.cli.endpoint import Endpoint, EndpointError
from koordsched.cli.explanation_table import print_explanation
from koordsched.cli.objectfiles import InputError, read_objects
from koordsched.cli.offline import load_config, prepare, template_nodes
from koordsched.cli.output import console, fail, output_option, print_json
from koordsched.scheduling.advice import Advised, with_advice
from koordsched.scheduling.offline import OfflineScheduler

DEFAULT_SERVER = "https://127.0.0.1:10259"


@click.command("explain")
@click.argument("pod", metavar="[NAMESPACE/]POD")
@click.option("-f", "--filename", "filenames", multiple=True, help="Offline: a dump or manifests, as for `simulate`.")
@click.option("--config", "config_file", help="Offline: the scheduler's configuration file.")
@click.option("--nodes", type=click.IntRange(1, 200_000), help="Offline: add so many nodes from the node template.")
@click.option("--node-template", help="Offline: file that says what added nodes are like.")
@click.option("--server", help=f"Ask the scheduler that serves here.  [default: {DEFAULT_SERVER}, without -f]")
@click.option("--kubeconfig", help="Take the credentials for the scheduler's endpoint from here.")
@click.option("--token", help="Bearer token for the scheduler's endpoint.")
@click.option("--ca-file", help="Certificates that may have signed the endpoint's certificate.")
@click.option("--insecure-skip-tls-verify", is_flag=True, help="Accept any certificate of the endpoint.")
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Table: feasible nodes to show.")
@output_option
def explain(
    pod: str,
    filenames: tuple[str, ...],
    config_file: str | None,
    nodes: int | None,
    node_template: str | None,
    server: str | None,
    kubeconfig: str | None,
    token: str | None,
    ca_file: str | None,
    insecure_skip_tls_verify: bool,
    top: int,
    output: str,
) -> None:
    """Say what the scheduler makes of POD, node by node and plugin by plugin.

    Asks a running scheduler, or, with -f, evaluates on files. A pod that is on a node already is explained as if it
    were pending (with -f).
    """
    key = pod if "/" in pod else f"default/{pod}"
    notes: list[str] = []
    try:
        if filenames:
            answer = _offline(key, filenames, config_file, nodes, node_template, notes)
        else:
            endpoint = Endpoint.open(
                server or DEFAULT_SERVER,
                kubeconfig=kubeconfig,
                token=token,
                ca_file=ca_file,
                verify=not insecure_skip_tls_verify,
            )
            answer = _asked(endpoint, key)
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
    body = endpoint.get("/debug/explain", {"pod": key, "advice": "true"})
    try:
        return msgspec.json.decode(body, type=Advised)
    except msgspec.MsgspecError as error:
        raise EndpointError(f"{endpoint.server}: the answer is not an explanation: {error}") from error


def _offline(
    key: str,
    filenames: tuple[str, ...],
    config_file: str | None,
    nodes: int | None,
    node_template: str | None,
    notes: list[str],
) -> Advised:
    """What the scheduler would say on the state in the files. Raises InputError."""
    resolved, warnings = load_config(config_file)
    objects = [*template_nodes(node_template, nodes), *read_objects(filenames)]
    offline = prepare(objects, resolved, lifted=key)
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
