"""What the commands print: tables for people, JSON for programs, one line for errors."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import click
import msgspec
import orjson
from rich.console import Console
from rich.table import Table

from koordsched.framework import display

WIDTH_OF_FILES = 140
"""Columns of the output where there is no terminal to ask."""

FAILURE = 1
"""Exit code of a command that could not do its work."""


output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Form of the answer.",
)


def console() -> Console:
    """Standard output: as wide as the terminal, styled only on one."""
    return Console(width=None if sys.stdout.isatty() else WIDTH_OF_FILES, highlight=False, emoji=False, markup=False)


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


def print_json(value: Any) -> None:
    """Indented JSON of structs, lists and dicts."""
    click.echo(orjson.dumps(msgspec.to_builtins(value), option=orjson.OPT_INDENT_2).decode())


def fail(message: object, code: int = FAILURE) -> NoReturn:
    """Ends the command with one clear line."""
    click.echo(f"error: {message}", err=True)
    raise click.exceptions.Exit(code)


def counted(number: int, noun: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
