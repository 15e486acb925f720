"""The options of commands that read a cluster, and where its state comes from: files, the cluster itself, or the
scheduler that runs in it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from koordsched.cli.addednodes import add_copies, add_template_nodes
from koordsched.cli.clusteraccess import ClusterAccess
from koordsched.cli.clusterstate import prepare_cluster
from koordsched.cli.endpoint import Endpoint
from koordsched.cli.objectfiles import read_objects
from koordsched.cli.offline import Offline, prepare, template_nodes
from koordsched.cli.target import Target
from koordsched.cli.tunnel import live_endpoint
from koordsched.config import ConfigError, FeatureGates, Resolved
from koordsched.config.feature_gates import NETWORK_TOPOLOGY_MANAGER

Command = Callable[..., Any]

_CLUSTER = (
    click.option(
        "--kubeconfig",
        metavar="FILE",
        help="Read the cluster of this kubeconfig.  [default: $KUBECONFIG, or ~/.kube/config]",
    ),
    click.option("--context", metavar="NAME", help="The context of the kubeconfig.  [default: the current one]"),
)
_FILES = (
    click.option(
        "-f",
        "--filename",
        "filenames",
        metavar="FILE|DIR",
        multiple=True,
        help="Read a dump of a cluster, or manifests, as YAML or JSON; - for standard input; may be repeated.",
    ),
)
_EVALUATION = (
    click.option("--config", "config_file", metavar="FILE", help="The scheduler's configuration file."),
    click.option(
        "--feature-gates",
        multiple=True,
        metavar="NAME=BOOL,...",
        help="The scheduler's feature gates, as given to `run`.",
    ),
    click.option(
        "--enable-network-topology-manager",
        "network_topology_manager",
        is_flag=True,
        help="As given to `run`: gangs are gathered by network topology.",
    ),
    click.option("--nodes", type=click.IntRange(1, 200_000), help="Number of nodes to add."),
    click.option("--node-template", metavar="FILE", help="File that describes the nodes to add."),
    click.option("--like", metavar="NODE", help="Node to copy for the nodes to add, with its DaemonSet pods."),
)
_ENDPOINT = (
    click.option("--live", is_flag=True, help="Ask the leading koordsched in the cluster, through the API server."),
    click.option(
        "--lease", metavar="NAMESPACE/NAME", help="With --live: its lease.  [default: the one in the manifests]"
    ),
    click.option("--server", metavar="URL", help="Ask the scheduler at this URL."),
    click.option("--token", help="Bearer token for the scheduler's endpoint.  [default: the one in the kubeconfig]"),
    click.option("--ca-file", metavar="FILE", help="CA certificates to verify the endpoint's certificate."),
    click.option("--insecure-skip-tls-verify", is_flag=True, help="Do not verify the endpoint's certificate."),
)
_NAMES = {"config_file": "config", "network_topology_manager": "enable-network-topology-manager"}


@dataclass(frozen=True, slots=True)
class State:
    """Where the state is to come from: `filenames`, a scheduler (`live`, or at `server`), or else the cluster."""

    filenames: tuple[str, ...] = ()
    kubeconfig: str | None = None
    context: str | None = None
    config_file: str | None = None
    feature_gates: tuple[str, ...] = ()
    network_topology_manager: bool = False
    nodes: int | None = None
    node_template: str | None = None
    like: str | None = None
    live: bool = False
    lease: str | None = None
    server: str | None = None
    token: str | None = None
    ca_file: str | None = None
    insecure_skip_tls_verify: bool = False

    @property
    def is_evaluated(self) -> bool:
        """Whether plugins are run here, and no scheduler is asked."""
        return self.server is None and not self.live

    @property
    def cluster(self) -> ClusterAccess | None:
        """The cluster whose state it is, if the state is neither in files nor a scheduler's. Raises InputError."""
        if self.filenames or self.server is not None:
            return None
        return ClusterAccess.of_flags(self.kubeconfig, self.context)

    @property
    def gates(self) -> FeatureGates:
        """The feature gates of the scheduler. Raises click.BadParameter."""
        given = list(self.feature_gates)
        if self.network_topology_manager:
            given.append(f"{NETWORK_TOPOLOGY_MANAGER}=true")
        try:
            return FeatureGates.parse(given)
        except ConfigError as error:
            raise click.BadParameter(str(error), param_hint="--feature-gates") from error

    def prepare(self, resolved: Resolved, *, seed: int = 0, lifted: Target | None = None) -> Offline:
        """The state, with the nodes to add.

        `lifted`: what is to be pending even if it has a node. Raises InputError.
        """
        added = [] if self.like else template_nodes(self.node_template, self.nodes)
        cluster = self.cluster
        if cluster is None:
            offline = prepare([*added, *read_objects(self.filenames)], resolved, seed=seed, lifted=lifted)
        else:
            offline = prepare_cluster(cluster, resolved, seed=seed, lifted=lifted)
            add_template_nodes(offline.scheduler, added, seed)
        if self.like:
            add_copies(offline.scheduler, self.like, self.nodes or 1)
        return offline

    @contextmanager
    def endpoint(self) -> Iterator[Endpoint]:
        """The scheduler's, while the context lasts. Raises InputError, EndpointError."""
        if self.live:
            access = ClusterAccess.of_flags(self.kubeconfig, self.context)
            with live_endpoint(access, self.lease, token=self.token, ca_file=self.ca_file) as endpoint:
                yield endpoint
            return
        assert self.server is not None
        yield Endpoint.open(
            self.server,
            kubeconfig=self.kubeconfig,
            context=self.context,
            token=self.token,
            ca_file=self.ca_file,
            verify=not self.insecure_skip_tls_verify,
        )

    def check(self) -> None:
        """Raises click.UsageError for an option that the others leave without effect."""
        if self.filenames:
            self._without("with -f", "kubeconfig", "context", *_ASKING)
        elif self.live and self.server:
            raise click.UsageError("--live and --server cannot be used together")
        elif self.live:
            self._without("with --live: the scheduler reports its own state", *_LOCAL, "insecure_skip_tls_verify")
        elif self.server is not None:
            self._without("with --server: the scheduler reports its own state", *_LOCAL, "lease")
        else:
            self._without("without --server or --live", *_ASKING)
        if self.like and self.node_template:
            raise click.UsageError("--like and --node-template cannot be used together")

    def _without(self, where: str, *names: str) -> None:
        for name in names:
            if getattr(self, name):
                raise click.UsageError(f"--{_NAMES.get(name, name).replace('_', '-')} has no effect {where}")


_ASKING = ("live", "server", "lease", "token", "ca_file", "insecure_skip_tls_verify")
_LOCAL = ("config_file", "feature_gates", "network_topology_manager", "nodes", "node_template", "like")


def state_options(command: Command) -> Command:
    """Adds all of them to a command, which gets them as `state`. An option without effect is an error."""
    return _with(command, _CLUSTER + _FILES + _EVALUATION + _ENDPOINT)


def evaluation_options(command: Command) -> Command:
    """The same for a command that evaluates by itself: it asks no scheduler."""
    return _with(command, _CLUSTER + _FILES + _EVALUATION)


def cluster_options(command: Command) -> Command:
    """Adds `--kubeconfig` and `--context` alone, which the command gets as they are."""
    for option in reversed(_CLUSTER):
        command = option(command)
    return command


def _with(command: Command, options: tuple[Callable[[Command], Command], ...]) -> Command:
    @functools.wraps(command)
    def checked(*args: Any, **parameters: Any) -> Any:
        given = {name: parameters.pop(name) for name in State.__dataclass_fields__ if name in parameters}
        state = State(**given)
        state.check()
        return command(*args, state=state, **parameters)

    decorated: Command = checked
    for option in reversed(options):
        decorated = option(decorated)
    return decorated
