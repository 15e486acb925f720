"""The command line: one module per command, and the commands that plugins declare (`cli.views`).

A command's module, and what it needs, is imported when it is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click

import koordsched

COMMANDS: Mapping[str, str] = {
    "run": "koordsched.cli.run:run",
    "demo": "koordsched.cli.demo:demo",
    "simulate": "koordsched.cli.simulate:simulate",
    "explain": "koordsched.cli.explain:explain",
    "replay": "koordsched.cli.replay:replay",
    "check-config": "koordsched.cli.check_config:check_config",
    "fakecluster": "koordsched.cli.fakecluster:fakecluster",
}
"""Name -> where the command is."""

_BEFORE = "check-config"
"""In the list of commands, those of plugins come before this one."""


class _Commands(click.Group):
    """Imports commands one by one: `check-config` need not load an API server."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        names = list(COMMANDS)
        position = names.index(_BEFORE)
        return [*names[:position], *_of_plugins(), *names[position:]]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return _of_plugins().get(cmd_name)
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


def _of_plugins() -> dict[str, click.Command]:
    commands: dict[str, click.Command] = importlib.import_module("koordsched.cli.views").view_commands()
    return commands


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(koordsched.__version__, prog_name="koordsched", message="%(prog)s %(version)s")
def main() -> None:
    """A scheduler for Kubernetes: drop-in for kube-scheduler and koord-scheduler, fast, explainable, replayable."""
