"""`koordsched run`: the scheduler as a daemon. Only its flags; the rest is imported when it is started."""

from __future__ import annotations

import click

from koordsched.cli.run_flags import FLAG_NAMES, run_options
from koordsched.config.options import Options


@click.command("run", context_settings=dict(FLAG_NAMES))
@run_options
def run(options: Options) -> None:
    """Run the scheduler until it is stopped."""
    from koordsched.cli.starting import start  # NumPy, the API client and all plugins, which --help can do without

    start(options)
