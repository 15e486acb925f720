"""The commands that plugins declare: each shows a report of a running scheduler, or on the objects in files."""

from __future__ import annotations

import json
from inspect import cleandoc
from typing import Any
from urllib.parse import quote

import click

from koordsched import config
from koordsched.cli.endpoint import Endpoint, EndpointError
from koordsched.cli.objectfiles import InputError
from koordsched.cli.offline import load_config, prepare
from koordsched.cli.output import console, fail, output_option, print_blocks, print_json
from koordsched.cli.state_options import State, state_options
from koordsched.config.wire import API_VERSION, KIND
from koordsched.framework.declaration import Declaration, NotFound, View
from koordsched.plugins import CATALOG, DECLARED


def view_commands() -> dict[str, click.Command]:
    """The groups of commands, and the commands that are no group's, by name."""
    found: dict[str, click.Command] = {}
    for declared in DECLARED:
        for view in declared.views:
            if not view.name:
                found[view.group] = _command(declared, view)
                continue
            group = found.setdefault(view.group, click.Group(view.group, help=view.group_help))
            assert isinstance(group, click.Group)
            group.add_command(_command(declared, view))
    return found


def _command(declared: Declaration, view: View) -> click.Command:
    def command(state: State, output: str, of: str | None = None) -> None:
        notes: list[str] = []
        try:
            answer = (
                _offline(declared, view, of, state, notes)
                if state.filenames
                else _asked(declared, view, of, state.endpoint())
            )
        except (InputError, EndpointError, NotFound) as error:
            fail(error)
        if output == "json":
            print_json(answer)
            return
        for note in notes:
            click.echo(f"note: {note}", err=True)
        detail = view.detail if of is not None else None
        print_blocks(console(), (detail or view).show(answer))

    wrapped = output_option(state_options(command))
    if view.detail is not None:
        wrapped = click.argument("of", metavar=f"[{view.detail.argument}]", required=False)(wrapped)
    short = None if view.name else view.group_help
    return click.command(view.name or view.group, help=cleandoc(view.help), short_help=short)(wrapped)


def _asked(declared: Declaration, view: View, of: str | None, endpoint: Endpoint) -> Any:
    """What the running scheduler says. Raises EndpointError."""
    detail = view.detail if of is not None else None
    shown = detail or view
    try:
        return endpoint.ask(shown.page.replace("{name}", quote(of or "", safe="")), {}, shown.type, shown.title)
    except EndpointError as error:
        if error.missing:
            raise EndpointError(error.missing) from error
        if ": 404 " in str(error):
            plain = ", or this is its plain port, which has no reports" if endpoint.server.startswith("http://") else ""
            no_profile = f"no profile of this scheduler enables {declared.name}"
            raise EndpointError(f"{endpoint.server}: {no_profile}{plain}") from error
        raise


def _offline(declared: Declaration, view: View, of: str | None, state: State, notes: list[str]) -> Any:
    """The report on the objects in files as the scheduler would make it. Raises InputError, NotFound."""
    if state.config_file is None:
        # The default configuration lacks the plugin.
        enabled = {"plugins": {"multiPoint": {"enabled": [{"name": declared.name}]}}}
        text = json.dumps({"apiVersion": API_VERSION, "kind": KIND, "profiles": [enabled]})
        resolved = config.resolve(config.load(text, catalog=CATALOG), catalog=CATALOG)
    else:
        resolved, warnings = load_config(state.config_file)
        notes += warnings
    offline = prepare(state.objects(), resolved)
    plugin = declared.plugin_in(offline.scheduler.profiles)
    if plugin is None:
        raise InputError(f"{state.config_file}: no profile enables {declared.name}")
    notes += offline.notes
    return view.detail.report(plugin, of) if of is not None and view.detail is not None else view.report(plugin)
