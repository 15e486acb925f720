"""The endpoint of the koordsched that leads in a cluster, through the API server and with the user's credentials."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, TypeVar

from koordsched.cli.clusteraccess import ClusterAccess
from koordsched.cli.endpoint import Endpoint, EndpointError
from koordsched.cli.leader import SchedulerPod, find_leader
from koordsched.client.network import NetworkTransport
from koordsched.client.portforward import PortForward

T = TypeVar("T")


class _Tunnel:
    """Runs in a loop of its own, because endpoints are asked from threads that wait."""

    def __init__(self, access: ClusterAccess, lease: str | None) -> None:
        self._access = access
        self._lease = lease
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._cleanup = AsyncExitStack()
        self._forward: PortForward | None = None

    @property
    def problem(self) -> str:
        """What went wrong, "" if nothing did."""
        return self._forward.problem if self._forward is not None else ""

    def open(self) -> tuple[SchedulerPod, int, NetworkTransport]:
        """The pod, the local port that is forwarded to it, and the forwarding. Raises InputError."""
        self._thread.start()
        return self._run(self._open())

    async def _open(self) -> tuple[SchedulerPod, int, NetworkTransport]:
        transport = await self._cleanup.enter_async_context(self._access.transport())
        found = await find_leader(transport, self._lease)
        self._forward = PortForward(transport, found.namespace, found.name, found.port)
        self._cleanup.push_async_callback(self._forward.stop)
        return found, await self._forward.start(), transport

    def close(self) -> None:
        """Ends it all."""
        self._run(self._cleanup.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@contextmanager
def live_endpoint(
    access: ClusterAccess, lease: str | None, *, token: str | None, ca_file: str | None
) -> Iterator[Endpoint]:
    """The endpoint of the scheduler that holds the lease, while the context lasts. Raises InputError, EndpointError.

    The API server forwards to that pod and no other, so its certificate, which is often self-signed, is only verified
    if there is a `ca_file`. The name in it is not that of this machine and does not count.
    """
    tunnel = _Tunnel(access, lease)
    try:
        pod, port, transport = tunnel.open()
        name = f"{pod.namespace}/{pod.name}"
        try:
            yield Endpoint.at(
                f"https://127.0.0.1:{port}",
                transport.settings,
                token=token,
                ca_file=ca_file,
                verify=ca_file is not None,
                check_name=False,
                name=name,
            )
        except EndpointError as error:
            if tunnel.problem:
                raise EndpointError(f"{name}: {tunnel.problem}") from error
            raise
    finally:
        tunnel.close()
