"""`koordsched run`: the scheduler as a daemon. Only its flags; what they start is imported when it is started."""

from __future__ import annotations

import click

from koordsched.cli.run_flags import FLAG_NAMES, run_options
from koordsched.config.options import Options


@click.command("run", context_settings=dict(FLAG_NAMES))
@run_options
def run(options: Options) -> None:
    """Schedule pods until told to stop."""
    from koordsched.cli.starting import start  # NumPy, the API client and all plugins, which --help can do without

    start(options)
