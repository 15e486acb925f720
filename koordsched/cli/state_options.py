"""The options of commands that look at a cluster: a running scheduler's view of it, or files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

DEFAULT_SERVER = "https://127.0.0.1:10259"

_OPTIONS = (
    click.option(
        "-f", "--filename", "filenames", multiple=True, help="Offline: a dump or manifests, as for `simulate`."
    ),
    click.option("--config", "config_file", help="Offline: the scheduler's configuration file."),
    click.option("--nodes", type=click.IntRange(1, 200_000), help="Offline: add so many nodes from the node template."),
    click.option("--node-template", help="Offline: file that says what added nodes are like."),
    click.option("--server", help=f"Ask the scheduler that serves here.  [default: {DEFAULT_SERVER}, without -f]"),
    click.option("--kubeconfig", help="Take the credentials for the scheduler's endpoint from here."),
    click.option("--token", help="Bearer token for the scheduler's endpoint."),
    click.option("--ca-file", help="Certificates that may have signed the endpoint's certificate."),
    click.option("--insecure-skip-tls-verify", is_flag=True, help="Accept any certificate of the endpoint."),
)


_ONLY_WITH_FILES = {"config_file": "--config", "nodes": "--nodes", "node_template": "--node-template"}
_ONLY_WITHOUT = {
    "server": "--server",
    "kubeconfig": "--kubeconfig",
    "token": "--token",
    "ca_file": "--ca-file",
    "insecure_skip_tls_verify": "--insecure-skip-tls-verify",
}


def state_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds them to a command, in this order; one that the others would leave without effect is an error."""

    @functools.wraps(command)
    def checked(*args: Any, **parameters: Any) -> Any:
        offline = bool(parameters["filenames"])
        for name, flag in (_ONLY_WITHOUT if offline else _ONLY_WITH_FILES).items():
            if parameters[name]:
                raise click.UsageError(f"{flag} has no effect {'with' if offline else 'without'} -f")
        return command(*args, **parameters)

    decorated: Callable[..., Any] = checked
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
