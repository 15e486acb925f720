"""The command line: one module per command. A command's module, and what it needs, is imported when it is called."""

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
    "quota": "koordsched.cli.quota:quota",
    "check-config": "koordsched.cli.check_config:check_config",
    "fakecluster": "koordsched.cli.fakecluster:fakecluster",
}
"""Name -> where the command is."""


class _Commands(click.Group):
    """Imports commands one by one: `check-config` need not load an API server."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(koordsched.__version__, prog_name="koordsched", message="%(prog)s %(version)s")
def main() -> None:
    """A scheduler for Kubernetes: drop-in for kube-scheduler and koord-scheduler, fast, explainable, replayable."""
