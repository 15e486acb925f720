"""What `koordsched run` does: the configuration is read and checked, the log set up, the daemon run."""

from __future__ import annotations

import logging
import os
import stat
import sys
import time

import click
import uvloop

from koordsched import config
from koordsched.cli.daemon import Daemon, StartFailed
from koordsched.cli.endpoints import flags_in_force
from koordsched.config.options import Options
from koordsched.config.wire import KubeSchedulerConfiguration
from koordsched.observability.logging import LogOptions, set_up_logging
from koordsched.plugins import CATALOG, IN_TREE

_log = logging.getLogger(__name__)


def start(options: Options) -> None:
    """Ends in SystemExit with the daemon's exit code. Raises click.ClickException if it cannot start."""
    try:
        configuration = options.configuration(CATALOG)
        resolved = config.resolve(configuration, catalog=CATALOG, gates=options.feature_gates)
        if options.write_config_to:
            _write_config(configuration, options.write_config_to)
            return
        if not options.allow_unimplemented_plugins:
            _refuse_unimplemented(resolved)
    except (config.ConfigError, OSError) as error:
        raise click.ClickException(str(error)) from error
    log_options = LogOptions(
        verbosity=options.logging.verbosity, format="json" if options.logging.format == "json" else "text"
    )
    log_control = set_up_logging(log_options, monotonic=time.monotonic, stream=sys.stderr)
    try:
        for text in (*options.ignored(), *config.warnings(resolved, CATALOG, IN_TREE.keys())):
            _log.warning("%s", text)
        flags = flags_in_force(click.get_current_context())
        code = uvloop.run(Daemon(options, configuration, resolved, log_control, flags).run())
    except StartFailed as error:
        raise click.ClickException(str(error)) from error
    finally:
        log_control.close()
    raise SystemExit(code)


def _refuse_unimplemented(resolved: config.Resolved) -> None:
    """Raises ConfigError if a profile enables a plugin that is not implemented."""
    missing = config.unimplemented(resolved, IN_TREE.keys())
    if missing:
        named = ", ".join(f"{name} (profiles: {', '.join(profiles)})" for name, profiles in missing.items())
        raise config.ConfigError(
            f"plugins that are not implemented: {named}; remove them from the configuration, or start with "
            "--allow-unimplemented-plugins: then they do nothing"
        )


def _write_config(configuration: KubeSchedulerConfiguration, path: str) -> None:
    """The fully defaulted configuration, as upstream's --write-config-to. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, 0o600)  # it holds keys and passwords; it may have been there before
        file.write(config.dump(configuration))
    click.echo(f"Wrote configuration to: {path}")
