"""A TCP proxy between one scheduler and the API server: sees what it hands to its sockets, and when."""

import asyncio
import re
from typing import NamedTuple

REQUEST = re.compile(rb"^(GET|POST|PUT|PATCH|DELETE) (/\S*) HTTP/1\.1\r$", re.MULTILINE)


class Seen(NamedTuple):
    """A request line, and the loop time at which it came out of the scheduler."""

    time: float
    method: str
    path: str


class Proxy:
    """Forwards to 127.0.0.1:`port` from a port of its own. `remember`: whether `seen` is filled."""

    def __init__(self, port, remember=True):
        self._port = port
        self._remember = remember
        self._server = None
        self._open = {}
        self.seen = []

    async def start(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def stop(self):
        self._server.close()
        self.reset_all()
        await self._server.wait_closed()

    def reset_all(self):
        """Resets every connection."""
        for writer in list(self._open):
            writer.transport.abort()

    def writes_since(self, time):
        """What changes the cluster; the lease and questions about access rights do not."""
        kept = ("/leases", "authorization.k8s.io", "authentication.k8s.io")
        return [s for s in self.seen if s.time >= time and s.method != "GET" and not any(k in s.path for k in kept)]

    async def _serve(self, reader, writer):
        try:
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        self._open[writer] = self._open[other_writer] = None
        try:
            there = self._pump(reader, other_writer, self._remember)
            await asyncio.gather(there, self._pump(other_reader, writer, False))
        except (OSError, RuntimeError):  # the latter is uvloop's, of a connection that is gone
            pass  # either side may go at any time: that is what it is here for
        finally:
            for end in (writer, other_writer):
                self._open.pop(end, None)
                end.transport.abort()

    async def _pump(self, reader, writer, note):
        while data := await reader.read(1 << 16):
            if note:
                now = asyncio.get_running_loop().time()
                self.seen += [Seen(now, m.decode(), path.decode()) for m, path in REQUEST.findall(data)]
            writer.write(data)
            await writer.drain()
        writer.transport.abort()
