"""The embedded API server over HTTP, with what a kubelet adds to it: ports of pods are ports of this machine."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

from koordsched.client.portforward import PROTOCOL
from koordsched.fakecluster.kubeconfig import kubeconfig, write_kubeconfig
from koordsched.fakecluster.messages import Request

FORWARD = "/api/v1/namespaces/{namespace}/pods/{name}/portforward"


class Kubelet:
    """Forwards ports, as the kubelet's server of WebSockets does. `forwarded`: (pod, port, Authorization) of each."""

    def __init__(self, embedded):
        self._embedded = embedded
        self.forwarded = []
        self.refuse = 0
        """HTTP status to refuse with."""

    async def forward(self, request):
        if self.refuse:
            return web.Response(status=self.refuse)
        port = int(request.query["ports"])
        self.forwarded.append((request.match_info["name"], port, request.headers.get("Authorization", "")))
        socket = web.WebSocketResponse(protocols=[PROTOCOL])
        await socket.prepare(request)
        for channel in (0, 1):
            await socket.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError as error:
            await socket.send_bytes(b"\1" + f"error forwarding port {port}: {error.strerror}".encode())
            await socket.close()
            return socket

        async def down():
            while data := await reader.read(1000):
                await socket.send_bytes(b"\0" + data)
            await socket.close()

        task = asyncio.create_task(down())
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY and message.data[:1] == b"\0":
                writer.write(message.data[1:])
        task.cancel()
        writer.close()
        return socket

    async def pass_on(self, request):
        """Everything else is the API server's."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Request(request.method, request.path, dict(request.query), headers, await request.read())
        answer = await self._embedded.server.handle(asked)
        body = answer.body
        if not isinstance(body, bytes):
            body = b"".join([chunk async for chunk in body])
        return web.Response(status=answer.status, headers=answer.headers, body=body)


@asynccontextmanager
async def with_kubelet(embedded, directory, token=""):
    """(kubelet, path of a kubeconfig) of the embedded server, which serves until the end."""
    kubelet = Kubelet(embedded)
    app = web.Application()
    app.router.add_get(FORWARD, kubelet.forward)
    app.router.add_route("*", "/{path:.*}", kubelet.pass_on)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = site._server.sockets[0].getsockname()[1]
        path = directory / "kubeconfig"
        write_kubeconfig(path, kubeconfig(f"http://127.0.0.1:{port}", token))
        yield kubelet, str(path)
    finally:
        await runner.cleanup()
