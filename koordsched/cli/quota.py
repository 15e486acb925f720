"""`koordsched quota tree`: what each elastic quota may use, requests, uses, borrows and lends."""

from __future__ import annotations

import json

import click
import msgspec

from koordsched import config
from koordsched.cli.endpoint import Endpoint, EndpointError
from koordsched.cli.objectfiles import InputError, read_objects
from koordsched.cli.offline import load_config, prepare, template_nodes
from koordsched.cli.output import console, fail, output_option, print_json
from koordsched.cli.quota_table import print_report
from koordsched.cli.quotapages import books_of
from koordsched.cli.state_options import DEFAULT_SERVER, state_options
from koordsched.controllers.elasticquota.report import Report, report

PLUGIN = "ElasticQuota"

_WITH_QUOTAS = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"plugins": {"preFilter": {"enabled": [{"name": PLUGIN}]}}}],
}
"""Added to the default configuration: without the plugin no usage is counted."""


@click.group("quota")
def quota() -> None:
    """Look at elastic quotas."""


@quota.command("tree")
@state_options
@output_option
def tree(
    filenames: tuple[str, ...],
    config_file: str | None,
    nodes: int | None,
    node_template: str | None,
    server: str | None,
    kubeconfig: str | None,
    token: str | None,
    ca_file: str | None,
    insecure_skip_tls_verify: bool,
    output: str,
) -> None:
    """Show the trees of quotas: min, max, runtime, request and usage of each, and loans between them.

    Asks a running scheduler, or, with -f, counts what is in files.
    """
    try:
        if filenames:
            answer, notes = _offline(filenames, config_file, nodes, node_template)
        else:
            endpoint = Endpoint.open(
                server or DEFAULT_SERVER,
                kubeconfig=kubeconfig,
                token=token,
                ca_file=ca_file,
                verify=not insecure_skip_tls_verify,
            )
            answer, notes = _asked(endpoint), []
    except (InputError, EndpointError) as error:
        fail(error)
    if output == "json":
        print_json(answer)
        return
    for note in notes:
        click.echo(f"note: {note}", err=True)
    print_report(console(), answer)


def _asked(endpoint: Endpoint) -> Report:
    """What the running scheduler says. Raises EndpointError."""
    try:
        body = endpoint.get("/debug/quota", {})
    except EndpointError as error:
        if ": 404 " in str(error):
            raise EndpointError(f"{endpoint.server}: no profile of this scheduler enables {PLUGIN}") from error
        raise
    try:
        return msgspec.json.decode(body, type=Report)
    except msgspec.MsgspecError as error:
        raise EndpointError(f"{endpoint.server}: the answer is not a report on quotas: {error}") from error


def _offline(
    filenames: tuple[str, ...], config_file: str | None, nodes: int | None, node_template: str | None
) -> tuple[Report, list[str]]:
    """What the scheduler would say of the state in the files, with notes for the user. Raises InputError."""
    warnings: list[str] = []
    if config_file is None:
        resolved = config.resolve(config.load(json.dumps(_WITH_QUOTAS)))
    else:
        resolved, warnings = load_config(config_file)
    objects = [*template_nodes(node_template, nodes), *read_objects(filenames)]
    offline = prepare(objects, resolved)
    books = books_of(offline.scheduler.profiles)
    if books is None:
        raise InputError(f"{config_file}: no profile enables {PLUGIN}")
    return report(books), [*warnings, *offline.notes]
