"""The commands that plugins declare: each shows a report on a cluster, on files, or of a running scheduler."""

from __future__ import annotations

from inspect import cleandoc
from typing import Any
from urllib.parse import quote

import click

from koordsched.cli.endpoint import Endpoint, EndpointError
from koordsched.cli.objectfiles import InputError
from koordsched.cli.offline import load_config
from koordsched.cli.output import STRUCTURED, console, fail, output_option, print_blocks, print_notes, print_structured
from koordsched.cli.state_options import State, state_options
from koordsched.framework.declaration import Declaration, NotFound, View
from koordsched.plugins import DECLARED


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
    def command(state: State, output: str, of: str | None = None, everything: bool = False) -> None:
        if of == "" and view.detail is not None:
            raise click.UsageError(f"{view.detail.argument} is empty")
        notes: list[str] = []
        try:
            if state.is_evaluated:
                answer = _evaluated(declared, view, of, state, notes)
            else:
                with state.endpoint() as endpoint:
                    answer = _asked(declared, view, of, endpoint)
        except (InputError, EndpointError, NotFound) as error:
            fail(error)
        print_notes(notes)
        if output in STRUCTURED:
            print_structured(answer, output)
            return
        detail = view.detail if of is not None else None
        if view.brief is not None and detail is None and not everything:
            answer = view.brief(answer)
        print_blocks(console(output), (detail or view).show(answer))

    wrapped = output_option(state_options(command))
    if view.detail is not None:
        wrapped = click.argument("of", metavar=f"[{view.detail.argument}]", required=False)(wrapped)
    if view.brief is not None:
        shown = click.option("--all", "everything", is_flag=True, help="Include built-in quotas in the table.")
        wrapped = shown(wrapped)
    short = None if view.name else view.group_help
    return click.command(view.name or view.group, help=cleandoc(view.help), short_help=short)(wrapped)


def _asked(declared: Declaration, view: View, of: str | None, endpoint: Endpoint) -> Any:
    """The answer of the running scheduler. Raises EndpointError."""
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
            raise EndpointError(f"{endpoint.name}: {no_profile}{plain}") from error
        raise


def _evaluated(declared: Declaration, view: View, of: str | None, state: State, notes: list[str]) -> Any:
    """The report on the cluster, or on objects in files, as the scheduler would make it. Raises InputError, NotFound.

    The default configuration lacks the plugin, so without a configuration file it is added.
    """
    resolved, warnings = load_config(state.config_file, gates=state.gates, plugin=declared.name)
    offline = state.prepare(resolved)
    plugin = declared.plugin_in(offline.scheduler.profiles)
    if plugin is None:
        raise InputError(f"{state.config_file}: no profile enables {declared.name}")
    notes += [*warnings, *offline.notes]
    return view.detail.report(plugin, of) if of is not None and view.detail is not None else view.report(plugin)
