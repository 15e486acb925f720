"""The commands that plugins declare: each shows a report on a cluster, on files, or of a running scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import cleandoc
from typing import Any
from urllib.parse import quote

import click
import msgspec

from koordsched.cli.endpoint import Endpoint, EndpointError
from koordsched.cli.objectfiles import InputError
from koordsched.cli.offline import load_config
from koordsched.cli.output import STRUCTURED, console, fail, output_option, print_blocks, print_notes, print_structured
from koordsched.cli.state_options import State, state_options
from koordsched.framework.declaration import Declaration, NotFound, View
from koordsched.plugins import DECLARED

Declared = tuple[Declaration, View]


def view_commands() -> dict[str, click.Command]:
    """The groups of commands, and the commands that are no group's, by name."""
    found: dict[str, click.Command] = {}
    alone: dict[str, list[Declared]] = {}
    for declared in DECLARED:
        for view in declared.views:
            if not view.name:
                alone.setdefault(view.group, []).append((declared, view))
                continue
            group = found.setdefault(view.group, click.Group(view.group, help=view.group_help))
            assert isinstance(group, click.Group)
            group.add_command(_command([(declared, view)]))
    return {**found, **{name: _command(views) for name, views in alone.items()}}


def _command(views: Sequence[Declared]) -> click.Command:
    """The command to which these views contribute."""
    first = views[0][1]

    def command(state: State, output: str, of: str | None = None, everything: bool = False) -> None:
        if of == "" and first.detail is not None:
            raise click.UsageError(f"{first.detail.argument} is empty")
        notes: list[str] = []
        try:
            answers = _evaluated(views, of, state, notes) if state.is_evaluated else _asked(views, of, state)
        except (InputError, EndpointError, NotFound) as error:
            fail(error)
        print_notes(notes)
        if output in STRUCTURED:
            print_structured(_together([answer for _, answer in answers]), output)
            return
        shown = [(view, answer) for view, answer in answers if of is not None or not view.is_empty(answer)]
        out = console(output)
        for number, (view, answer) in enumerate(shown or answers[:1]):
            if number:
                out.print()
            detail = view.detail if of is not None else None
            if view.brief is not None and detail is None and not everything:
                answer = view.brief(answer)
            print_blocks(out, (detail or view).show(answer))

    wrapped = output_option(state_options(command))
    if first.detail is not None:
        wrapped = click.argument("of", metavar=f"[{first.detail.argument}]", required=False)(wrapped)
    if first.brief is not None:
        shown = click.option("--all", "everything", is_flag=True, help="Include built-in quotas in the table.")
        wrapped = shown(wrapped)
    text = "\n\n".join(cleandoc(view.help) for _, view in views)
    return click.command(first.name or first.group, help=text, short_help=None if first.name else first.group_help)(
        wrapped
    )


def _is_nothing(answers: Sequence[tuple[View, Any]], of: str | None) -> bool:
    """Whether the answers say nothing that could stand for those that there are not."""
    return not answers if of is not None else all(view.is_empty(answer) for view, answer in answers)


def _together(answers: Sequence[Any]) -> Any:
    """One answer with the fields of all."""
    if len(answers) == 1:
        return answers[0]
    return {name: value for answer in answers for name, value in msgspec.to_builtins(answer).items()}


def _asked(views: Sequence[Declared], of: str | None, state: State) -> list[tuple[View, Any]]:
    """The answers of the running scheduler, of the plugins that have some. Raises InputError, EndpointError."""
    found: list[tuple[View, Any]] = []
    failures: list[EndpointError] = []
    with state.endpoint() as endpoint:
        for declared, view in views:
            try:
                found.append((view, _ask(declared, view, of, endpoint)))
            except EndpointError as error:
                if not error.missing:
                    raise
                failures.append(error)
    if failures and _is_nothing(found, of):
        raise failures[0]
    return found


def _ask(declared: Declaration, view: View, of: str | None, endpoint: Endpoint) -> Any:
    """Raises EndpointError; `missing` is set if there is no such thing, or the plugin is not enabled."""
    detail = view.detail if of is not None else None
    shown = detail or view
    try:
        return endpoint.ask(shown.page.replace("{name}", quote(of or "", safe="")), {}, shown.type, shown.title)
    except EndpointError as error:
        if error.missing:
            raise EndpointError(error.missing, error.missing) from error
        if ": 404 " in str(error):
            plain = ", or this is its plain port, which has no reports" if endpoint.server.startswith("http://") else ""
            text = f"{endpoint.name}: no profile of this scheduler enables {declared.name}{plain}"
            raise EndpointError(text, text) from error
        raise


def _evaluated(views: Sequence[Declared], of: str | None, state: State, notes: list[str]) -> list[tuple[View, Any]]:
    """The reports on the cluster, or on objects in files, as the scheduler would make them. Raises InputError,
    NotFound.

    The default configuration may lack the first plugin, so without a configuration file it is added.
    """
    resolved, warnings = load_config(state.config_file, gates=state.gates, plugin=views[0][0].name)
    offline = state.prepare(resolved)
    found: list[tuple[View, Any]] = []
    failures: list[InputError | NotFound] = []
    for declared, view in views:
        plugin = declared.plugin_in(offline.scheduler.profiles)
        if plugin is None:
            failures.append(InputError(f"{state.config_file}: no profile enables {declared.name}"))
            continue
        try:
            detail = view.detail if of is not None else None
            found.append((view, detail.report(plugin, of or "") if detail is not None else view.report(plugin)))
        except NotFound as error:
            failures.append(error)
    if failures and _is_nothing(found, of):
        raise failures[0]
    notes += [*warnings, *offline.notes]
    return found
