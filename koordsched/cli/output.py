"""What the commands print: tables for people, JSON or YAML for programs, one line for errors."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import click
import msgspec
import orjson
import yaml
from rich.console import Console
from rich.table import Table

from koordsched.framework import display

WIDTH_OF_FILES = 140
"""Columns of the output without a terminal."""

WIDEST = 10_000
"""Columns of wide output, whose lines are never folded."""

WIDE = "wide"
STRUCTURED = ("json", "yaml")
"""Values of `--output`."""

FAILURE = 1
"""Exit code of a command that could not do its work."""


output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", WIDE, *STRUCTURED]),
    default="table",
    show_default=True,
    help="Output format; wide: a table with more columns, and lines of any length.",
)


def console(output: str = "table") -> Console:
    """Standard output: as wide as the terminal, styled only on one."""
    width = None if sys.stdout.isatty() else WIDTH_OF_FILES
    return Console(width=WIDEST if output == WIDE else width, highlight=False, emoji=False, markup=False)


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """A plain table; the columns named in `right` hold numbers. Long texts continue on the next line."""
    made = Table(box=None, pad_edge=False, header_style="bold", show_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def print_blocks(out: Console, blocks: Iterable[display.Line | display.Table]) -> None:
    """Prints what a plugin has to show."""
    for block in blocks:
        if isinstance(block, display.Line):
            out.print(block.text, style="bold" if block.bold else None, soft_wrap=True)
        else:
            made = table(*block.columns, right=block.numbers)
            for row in block.rows:
                made.add_row(*row)
            out.print(made)


def print_structured(value: Any, output: str) -> None:
    """Structs, lists and dicts as indented JSON or as YAML, whichever `output` names."""
    plain = msgspec.to_builtins(value)
    if output == "json":
        click.echo(orjson.dumps(plain, option=orjson.OPT_INDENT_2).decode())
    else:
        click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=WIDTH_OF_FILES), nl=False)


def print_notes(notes: Iterable[str]) -> None:
    """Notes for the user, on standard error, because the answer itself may be read by a program."""
    for note in notes:
        click.echo(f"note: {note}", err=True)


def fail(message: object, code: int = FAILURE) -> NoReturn:
    """Ends the command with one clear line."""
    click.echo(f"error: {message}", err=True)
    raise click.exceptions.Exit(code)


def counted(number: int, noun: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
