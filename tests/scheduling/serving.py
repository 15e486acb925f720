"""The daemon's endpoints over real sockets, on a scheduler that runs against the embedded API server."""

import asyncio
import socket
import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from types import SimpleNamespace

import aiohttp

from koordsched import config
from koordsched.cli.endpoints import Endpoints, Served
from koordsched.client.lanes import Lanes
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.options import Authentication, Authorization, InsecureServing, Options, SecureServing
from koordsched.fakecluster.auth import Authenticator, User
from koordsched.fakecluster.server import ApiServer
from koordsched.observability.metrics import Metrics
from koordsched.plugins import CATALOG, IN_TREE
from koordsched.scheduling.scheduler import Scheduler
from tests.embedded import Embedded

EVERYONE = ("system:authenticated",)


def free_port():
    """A port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def unverified():
    """A client that takes any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def embedded_with_users():
    """An API server that knows alice, who may use every path, and mallory, who may use none."""
    embedded = Embedded()
    tokens = {
        "alice": User("alice", EVERYONE),
        "mallory": User("mallory", EVERYONE),
        "scheduler": User("system:kube-scheduler", ("system:masters", *EVERYONE)),
    }
    embedded.server = ApiServer(embedded.registry, Authenticator(tokens))
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    group = "rbac.authorization.k8s.io"
    embedded.insert(
        {
            **rbac,
            "kind": "ClusterRole",
            "metadata": {"name": "paths"},
            "rules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}],
        }
    )
    embedded.insert(
        {
            **rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "alice"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "paths"},
            "subjects": [{"kind": "User", "name": "alice", "apiGroup": group}],
        }
    )
    return embedded


class Client:
    """Asks the endpoints."""

    def __init__(self, session, secure, plain):
        self._session = session
        self.server = f"https://127.0.0.1:{secure}"
        self._bases = {False: self.server, True: f"http://127.0.0.1:{plain}"}

    async def get(self, path, token="alice", *, plain=False, method="GET", tls=None, **more):
        """(status, text)."""
        # Every request on a connection of its own: what TLS decides is decided anew.
        headers = {"Connection": "close"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        url = self._bases[plain] + path
        async with self._session.request(method, url, headers=headers, ssl=tls or unverified(), **more) as response:
            return response.status, await response.text()


@asynccontextmanager
async def serving(embedded, *, fault=None, synced=True, elector=None, configuration=None, **groups):
    """Starts scheduler and endpoints; `groups` are groups of `Options`."""
    configuration = configuration or config.default_configuration()
    secure, plain = free_port(), free_port()
    groups.setdefault("secure_serving", SecureServing(port=secure, bind_address="127.0.0.1"))
    groups.setdefault("insecure_serving", InsecureServing(port=plain, address="127.0.0.1"))
    groups.setdefault("authentication", Authentication(skip_lookup=True))
    groups.setdefault("authorization", Authorization())
    transport = embedded.transport(fault)
    transport._headers["authorization"] = "Bearer scheduler"
    lanes = Lanes(transport, embedded.clock, Random(1))
    scheduler = Scheduler(
        config.resolve(configuration, catalog=CATALOG),
        IN_TREE,
        transport=transport,
        lanes=lanes,
        clock=embedded.clock,
        rng=Random(1),
        metrics=Metrics(process_metrics=False),
        hostname="test",
    )
    running = SimpleNamespace(scheduler=scheduler, verbosities=[], stopping=False, transport=transport)
    served = Served(
        configuration,
        {"v": "2", "config": "/etc/scheduler.yaml"},
        scheduler,
        transport,
        elector,
        lambda: running.stopping,
        running.verbosities.append,
    )
    async with AsyncExitStack() as cleanup:
        cleanup.push_async_callback(transport.close)
        cleanup.push_async_callback(lanes.close)
        endpoints = Endpoints(Options(feature_gates=FeatureGates.defaults(), **groups), served, embedded.clock)
        await endpoints.start()
        cleanup.push_async_callback(endpoints.stop)
        cleanup.push_async_callback(scheduler.stop, 1.0)
        scheduler.start()
        work = asyncio.create_task(scheduler.run())
        cleanup.callback(work.cancel)
        if synced:
            await scheduler.wait_synced()
        session = await cleanup.enter_async_context(aiohttp.ClientSession())
        ports = {port for _, port in endpoints.addresses}
        running.client = Client(session, groups["secure_serving"].port, groups["insecure_serving"].port)
        running.ports = ports
        yield running
