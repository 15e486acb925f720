"""A port of a pod on this machine, by way of the API server: what `kubectl port-forward` does.

Each connection is a WebSocket to the pod's `portforward` subresource. Its messages begin with a channel, 0 for data and
1 for an error; the first two bytes of either channel repeat the port. The protocol cannot say that one side has no more
to send, so the end of either side ends both (kubelet `pkg/cri/streaming/portforward/websocket.go`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

import aiohttp

from koordsched.client.errors import ApiError, ClientError
from koordsched.client.network import NetworkTransport

PROTOCOL = "v4.channel.k8s.io"

_DATA, _ERROR = b"\0", 1
_PORT = 2
"""Bytes."""

_AT_ONCE = 32 * 1024


class PortForward:
    """Listens on the loopback interface from `start` to `stop`. `problem`: what went wrong last, for the user."""

    def __init__(self, transport: NetworkTransport, namespace: str, pod: str, port: int) -> None:
        self._transport = transport
        self._target = f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward?ports={port}"
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.problem = ""

    async def start(self) -> int:
        """Begins to listen; returns the local port."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Ends all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            socket = await self._transport.websocket(self._target, PROTOCOL)
            try:
                ways = [asyncio.create_task(way) for way in (_up(reader, socket), self._down(socket, writer))]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
            finally:
                await socket.close()
        except ApiError as error:
            self.problem = f"the API server refuses to forward its port: {error}"
        except ClientError as error:
            self.problem = str(error)
        finally:
            writer.close()

    async def _down(self, socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
        preamble: defaultdict[int, int] = defaultdict(lambda: _PORT)
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            skipped = min(preamble[channel], len(data))
            preamble[channel] -= skipped
            data = data[skipped:]
            if data and channel == _ERROR:
                self.problem = data.decode("utf-8", "replace")
            elif data:
                writer.write(data)
                await writer.drain()


async def _up(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    while data := await reader.read(_AT_ONCE):
        await socket.send_bytes(_DATA + data)
