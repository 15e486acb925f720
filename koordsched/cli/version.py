"""`koordsched version`: the same line as `--version`."""

from __future__ import annotations

import click

import koordsched


@click.command("version")
def version() -> None:
    """Print the version and exit."""
    click.echo(f"koordsched {koordsched.__version__}")
