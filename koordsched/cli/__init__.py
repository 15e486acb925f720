"""The command line: one module per command, and the commands that plugins declare (`cli.views`).

A command's module, and what it needs, is imported when it is called; the list of commands needs none of them.
What ends a command early looks the same everywhere: one line `error: ...`, or exit code 130 after Ctrl-C.
"""

from __future__ import annotations

import importlib
import io
import re
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import click

import koordsched

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 and the number of the signal."""

VIEWS = "koordsched.cli.views"
"""Has the commands that plugins declare."""


class Listed(NamedTuple):
    """A command in the list: where it is (VIEWS, or `module:attribute`), and the first sentence of its help."""

    where: str
    short_help: str


COMMANDS: Mapping[str, Listed] = {
    "run": Listed("koordsched.cli.run:run", "Run the scheduler until it is stopped."),
    "demo": Listed(
        "koordsched.cli.demo:demo",
        "Start a cluster of hollow nodes and the scheduler, apply example workloads, and show the result.",
    ),
    "simulate": Listed(
        "koordsched.cli.simulate:simulate", "Place pending pods and say where they would go, or why not."
    ),
    "explain": Listed(
        "koordsched.cli.explain:explain",
        "Explain the scheduling of POD, or of a Reservation, node by node and plugin by plugin.",
    ),
    "pending": Listed(
        "koordsched.cli.pending:pending",
        "Show all pending pods, grouped by reason and by what would help.",
    ),
    "shadow": Listed(
        "koordsched.cli.shadow:shadow",
        "Watch a cluster that another scheduler serves, and say what this one would have decided.",
    ),
    "dump": Listed(
        "koordsched.cli.dump:dump",
        "Write all objects of the cluster to FILE as JSON, without secrets; compressed if FILE ends in .gz.",
    ),
    "replay": Listed(
        "koordsched.cli.replay:replay",
        "Repeat every decision of FILE, a journal of `koordsched run --journal`, without an API server.",
    ),
    "quota": Listed(VIEWS, "Show elastic quotas."),
    "load": Listed(VIEWS, "Show the load of nodes."),
    "numa": Listed(VIEWS, "Show CPUs and NUMA nodes."),
    "devices": Listed(VIEWS, "Show GPUs, NICs and FPGAs."),
    "reservations": Listed(VIEWS, "Show Reservations."),
    "gang": Listed(VIEWS, "Show gangs."),
    "breaker": Listed(VIEWS, "Show circuit breakers of nodes."),
    "quarantine": Listed(VIEWS, "Show quarantined workloads."),
    "check-config": Listed(
        "koordsched.cli.check_config:check_config",
        "Check a configuration FILE (- = standard input) and show the resulting profiles.",
    ),
    "fakecluster": Listed(
        "koordsched.cli.fakecluster:fakecluster",
        "Run an embedded Kubernetes API server with controllers and hollow nodes.",
    ),
    "version": Listed("koordsched.cli.version:version", "Print the version and exit."),
}
"""By name, in the order of the list."""


class _Commands(click.Group):
    """Lists commands without importing them, and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, listed.short_help) for name, listed in COMMANDS.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name, _, attribute = COMMANDS[cmd_name].where.partition(":")
        module = importlib.import_module(name)
        command: click.Command = getattr(module, attribute) if attribute else module.view_commands()[cmd_name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            near = " or ".join(map(repr, get_close_matches(name, COMMANDS)))
            raise click.UsageError(f"No such command {name!r}." + (f" Did you mean {near}?" if near else ""), ctx)
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Like click's own, except for the form of errors and the exit code after Ctrl-C."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.ClickException as error:
            shown = io.StringIO()
            error.show(shown)
            click.echo(re.sub("^Error: ", "error: ", shown.getvalue(), count=1, flags=re.MULTILINE), nl=False, err=True)
            code = error.exit_code
        except click.Abort as error:
            if not isinstance(error.__cause__, KeyboardInterrupt):
                raise
            code = INTERRUPTED
        sys.exit(code)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(koordsched.__version__, prog_name="koordsched", message="%(prog)s %(version)s")
def main() -> None:
    """A scheduler for Kubernetes: drop-in for kube-scheduler and koord-scheduler, fast, explainable, replayable."""
