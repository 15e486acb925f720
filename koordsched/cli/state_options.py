"""The options of commands that look at a cluster: a running scheduler's view of it, or files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import click

from koordsched.cli.endpoint import Endpoint
from koordsched.cli.objectfiles import Sourced, read_objects
from koordsched.cli.offline import template_nodes

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


@dataclass(frozen=True, slots=True)
class State:
    """Where the state is to come from: `filenames`, or the scheduler that serves at `server`."""

    filenames: tuple[str, ...]
    config_file: str | None
    nodes: int | None
    node_template: str | None
    server: str | None
    kubeconfig: str | None
    token: str | None
    ca_file: str | None
    insecure_skip_tls_verify: bool

    def objects(self) -> list[Sourced]:
        """What is in the files, and the nodes to add. Raises InputError."""
        return [*template_nodes(self.node_template, self.nodes), *read_objects(self.filenames)]

    def endpoint(self) -> Endpoint:
        """The scheduler's. Raises EndpointError."""
        return Endpoint.open(
            self.server or DEFAULT_SERVER,
            kubeconfig=self.kubeconfig,
            token=self.token,
            ca_file=self.ca_file,
            verify=not self.insecure_skip_tls_verify,
        )


def state_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds them to a command, in this order, which gets them as `state`.

    One that the others would leave without effect is an error.
    """

    @functools.wraps(command)
    def checked(*args: Any, **parameters: Any) -> Any:
        state = State(**{field.name: parameters.pop(field.name) for field in fields(State)})
        for name, flag in (_ONLY_WITHOUT if state.filenames else _ONLY_WITH_FILES).items():
            if getattr(state, name):
                raise click.UsageError(f"{flag} has no effect {'with' if state.filenames else 'without'} -f")
        return command(*args, state=state, **parameters)

    decorated: Callable[..., Any] = checked
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
