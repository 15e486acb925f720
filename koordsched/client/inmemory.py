"""A transport that calls an API server's handler in the same process: no sockets, any clock, injected faults."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from koordsched.client.errors import Ambiguous, ClientError, Fenced, NotSent, whole
from koordsched.client.transport import Done, Request, Response, Transport

Reply = tuple[int, Mapping[str, str], bytes | AsyncIterator[bytes]]
Handler = Callable[[str, str, Mapping[str, str], Mapping[str, str], bytes], Awaitable[Reply]]
"""(method, path, query, headers, body) -> (status, headers, whole body or its chunks); header names in lower case."""


class Call(NamedTuple):
    """What is about to reach the handler."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


Fault = Callable[[Call, Callable[[], Awaitable[Reply]]], Awaitable[Reply]]
"""Stands between client and handler; the second argument carries the call out.

It may raise `NotSent` instead of carrying the call out, raise `Ambiguous` before or after doing so, wait, change the
reply or wrap the chunks of a stream.
"""


async def _no_fault(call: Call, proceed: Callable[[], Awaitable[Reply]]) -> Reply:
    return await proceed()


class InMemoryTransport(Transport):
    """Calls `handler` for each request, in a task of its own that outlives a client that gives up, as a server would.

    `headers` are sent with every request (an Authorization, say).
    """

    def __init__(
        self, handler: Handler, *, fault: Fault | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self._handler = handler
        self._fault = fault or _no_fault
        self._headers = dict(headers or {})
        # Dictionaries, because they keep their order: a simulation that is repeated must take the same steps.
        self._serving: dict[asyncio.Task[Reply], None] = {}
        self._sending: dict[asyncio.Task[Response], None] = {}
        self._closing: dict[asyncio.Task[None], None] = {}
        self._closed = False

    def send(self, request: Request, done: Done) -> None:
        task = asyncio.get_running_loop().create_task(self._request(request))
        self._sending[task] = None

        def finished(task: asyncio.Task[Response]) -> None:
            # A callback and not the task's own last step: a task that is cancelled at once never takes a step.
            del self._sending[task]
            if task.cancelled():
                done(Ambiguous(f"{request.method} {request.target}: the connection was dropped"))
                return
            error = task.exception()
            if error is not None and not isinstance(error, ClientError):
                raise error
            done(task.result() if error is None else error)

        task.add_done_callback(finished)

    async def _request(self, request: Request) -> Response:
        async with self._stream(request) as stream:
            longest = request.longest(stream.status)
            body = await whole(stream.chunks(), longest, f"{request.method} {request.target}")
            return Response(stream.status, stream.headers, body)

    @asynccontextmanager
    async def _stream(self, request: Request) -> AsyncIterator[_InMemoryStream]:
        deadline = asyncio.get_running_loop().time() + request.timeout
        status, headers, body = await self._answer(request)
        stream = _InMemoryStream(status, headers, body, deadline)
        try:
            yield stream
        finally:
            await stream.close()

    async def _answer(self, request: Request) -> Reply:
        # A network never answers within the same step, and the fence belongs to the moment of sending.
        await asyncio.sleep(0)
        if self._closed:
            raise NotSent("the transport is closed")
        if request.fence is not None and not request.fence():
            raise Fenced(f"{request.method} {request.target} withheld: not the leader")
        url = urlsplit(request.target)
        sent = {"content-type": request.content_type, **self._headers, **(request.headers or {})}
        headers = {name.lower(): value for name, value in sent.items()}
        call = Call(request.method, url.path, dict(parse_qsl(url.query, True)), headers, request.body)

        async def proceed() -> Reply:
            return await self._handler(*call)

        async def serve() -> Reply:
            return await self._fault(call, proceed)

        # In a context of its own: the server must not see the client's context variables.
        serving = asyncio.get_running_loop().create_task(serve(), context=contextvars.Context())
        self._serving[serving] = None
        serving.add_done_callback(self._serving.pop)
        try:
            async with asyncio.timeout(request.timeout):
                return await asyncio.shield(serving)
        except TimeoutError:
            serving.add_done_callback(self._abandoned)
            raise Ambiguous(f"{request.method} {request.target}: no answer within {request.timeout:g} s") from None
        except asyncio.CancelledError:
            serving.add_done_callback(self._abandoned)
            raise

    def _abandoned(self, serving: asyncio.Task[Reply]) -> None:
        """The client has given up: an error is ignored, a stream is closed as by a dropped connection."""
        if serving.cancelled() or serving.exception() is not None:
            return
        body = serving.result()[2]
        if not isinstance(body, bytes):
            closing = asyncio.get_running_loop().create_task(_close(body))
            self._closing[closing] = None
            closing.add_done_callback(self._closing.pop)

    def drop_connections(self) -> None:
        for task in list(self._sending):
            task.cancel()

    async def close(self) -> None:
        self._closed = True
        self.drop_connections()
        await asyncio.gather(*self._sending, return_exceptions=True)


class _InMemoryStream:
    def __init__(
        self, status: int, headers: Mapping[str, str], body: bytes | AsyncIterator[bytes], deadline: float
    ) -> None:
        self.status = status
        self.headers = headers
        self._body = body
        self._deadline = deadline

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        if isinstance(self._body, bytes):
            yield self._body
            return
        iterator = aiter(self._body)
        while True:
            try:
                async with asyncio.timeout_at(self._deadline):
                    chunk = await anext(iterator)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise Ambiguous("the stream reached its time limit") from None
            yield chunk

    async def close(self) -> None:
        if not isinstance(self._body, bytes):
            await _close(self._body)


async def _close(chunks: AsyncIterator[bytes]) -> None:
    """Runs the clean-up of a generator, or of any other stream that has one, now."""
    aclose: Callable[[], Awaitable[None]] | None = getattr(chunks, "aclose", None)
    if aclose is not None:
        await aclose()
