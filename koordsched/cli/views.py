"""The commands that plugins declare: each shows a report of a running scheduler, or on the objects in files."""

from __future__ import annotations

import json
from inspect import cleandoc
from typing import Any

import click
import msgspec

from koordsched import config
from koordsched.cli.endpoint import Endpoint, EndpointError
from koordsched.cli.objectfiles import InputError, Sourced, read_objects
from koordsched.cli.offline import load_config, prepare, template_nodes
from koordsched.cli.output import console, fail, output_option, print_blocks, print_json
from koordsched.cli.state_options import DEFAULT_SERVER, state_options
from koordsched.config.wire import API_VERSION, KIND
from koordsched.framework.declaration import Declaration, View
from koordsched.plugins import CATALOG, DECLARED


def view_commands() -> dict[str, click.Command]:
    """The groups of commands by name."""
    groups: dict[str, click.Command] = {}
    for declared in DECLARED:
        for view in declared.views:
            group = groups.setdefault(view.group, click.Group(view.group, help=view.group_help))
            assert isinstance(group, click.Group)
            group.add_command(_command(declared, view))
    return groups


def _command(declared: Declaration, view: View) -> click.Command:
    @click.command(view.name, help=cleandoc(view.help))
    @state_options
    @output_option
    def command(
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
        notes: list[str] = []
        try:
            if filenames:
                objects = [*template_nodes(node_template, nodes), *read_objects(filenames)]
                answer, notes = _offline(declared, view, objects, config_file)
            else:
                endpoint = Endpoint.open(
                    server or DEFAULT_SERVER,
                    kubeconfig=kubeconfig,
                    token=token,
                    ca_file=ca_file,
                    verify=not insecure_skip_tls_verify,
                )
                answer = _asked(declared, view, endpoint)
        except (InputError, EndpointError) as error:
            fail(error)
        if output == "json":
            print_json(answer)
            return
        for note in notes:
            click.echo(f"note: {note}", err=True)
        print_blocks(console(), view.show(answer))

    return command


def _asked(declared: Declaration, view: View, endpoint: Endpoint) -> Any:
    """What the running scheduler says. Raises EndpointError."""
    try:
        body = endpoint.get(view.page, {})
    except EndpointError as error:
        if ": 404 " in str(error):
            raise EndpointError(f"{endpoint.server}: no profile of this scheduler enables {declared.name}") from error
        raise
    try:
        return msgspec.json.decode(body, type=view.type)
    except msgspec.MsgspecError as error:
        raise EndpointError(f"{endpoint.server}: the answer is not a {view.title}: {error}") from error


def _offline(
    declared: Declaration, view: View, objects: list[Sourced], config_file: str | None
) -> tuple[Any, list[str]]:
    """The report on these objects as the scheduler would make it, with notes for the user. Raises InputError."""
    warnings: list[str] = []
    if config_file is None:
        # The default configuration lacks the plugin.
        enabled = {"plugins": {"multiPoint": {"enabled": [{"name": declared.name}]}}}
        text = json.dumps({"apiVersion": API_VERSION, "kind": KIND, "profiles": [enabled]})
        resolved = config.resolve(config.load(text, catalog=CATALOG), catalog=CATALOG)
    else:
        resolved, warnings = load_config(config_file)
    offline = prepare(objects, resolved)
    plugin = declared.plugin_in(offline.scheduler.profiles)
    if plugin is None:
        raise InputError(f"{config_file}: no profile enables {declared.name}")
    return view.report(plugin), [*warnings, *offline.notes]
