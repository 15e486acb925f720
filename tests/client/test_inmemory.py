import asyncio

import pytest

from koordsched.client.errors import Ambiguous, Fenced, NotSent
from koordsched.client.inmemory import InMemoryTransport
from koordsched.client.transport import Request
from tests.virtualtime import run


class Handler:
    """Notes what was carried out, `delay` seconds after it was asked."""

    def __init__(self, delay=0.0):
        self.delay = delay
        self.calls = []
        self.closed = []

    async def __call__(self, method, path, query, headers, body):
        await asyncio.sleep(self.delay)
        self.calls.append((method, path, dict(query), headers.get("authorization"), headers["content-type"], body))
        if path == "/stream":
            return 200, {}, self.chunks()
        return 201, {"x": "y"}, b"done"

    async def chunks(self):
        try:
            for i in range(1000):
                yield b"%d" % i
                await asyncio.sleep(1)
        finally:
            self.closed.append(asyncio.get_running_loop().time() - 1000)


def test_requests_reach_the_handler_as_they_are():
    async def main():
        handler = Handler()
        transport = InMemoryTransport(handler, headers={"authorization": "Bearer t"})
        answer = await transport.request("POST", "/a", query={"q": "x y&z"}, body=b"1", content_type="text/x")
        assert answer == (201, {"x": "y"}, b"done")
        done = asyncio.get_running_loop().create_future()
        transport.send(Request("PUT", "/b?c=d", b"2"), done.set_result)
        assert not done.done(), "never within the same step"
        assert (await done).status == 201
        assert handler.calls == [
            ("POST", "/a", {"q": "x y&z"}, "Bearer t", "text/x", b"1"),
            ("PUT", "/b", {"c": "d"}, "Bearer t", "application/json", b"2"),
        ]

    run(main())


def test_a_timed_out_request_is_carried_out_all_the_same():
    async def main():
        handler = Handler(delay=5)
        transport = InMemoryTransport(handler)
        with pytest.raises(Ambiguous, match="no answer within 2 s"):
            await transport.request("POST", "/a", timeout=2)
        assert handler.calls == []
        await asyncio.sleep(4)
        assert len(handler.calls) == 1

    run(main())


def test_a_stream_nobody_waits_for_any_more_is_closed():
    async def main():
        handler = Handler(delay=5)
        transport = InMemoryTransport(handler)

        async def watch():
            async with transport.stream("/stream") as stream:
                return [chunk async for chunk in stream.chunks()]

        watching = asyncio.create_task(watch())
        await asyncio.sleep(7.5)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert handler.closed == [7.5]

    run(main())


def test_a_stream_ends_at_its_time_limit():
    async def main():
        handler = Handler()
        transport = InMemoryTransport(handler)

        async with transport.stream("/stream", timeout=3.5) as stream:
            chunks = stream.chunks()
            assert [await anext(chunks) for _ in range(4)] == [b"0", b"1", b"2", b"3"]
            with pytest.raises(Ambiguous, match="time limit"):
                await anext(chunks)
        assert handler.closed == [3.5]

    run(main())


@pytest.mark.parametrize(
    ("place", "error", "carried_out"), [("before", NotSent, 0), ("before", Ambiguous, 0), ("after", Ambiguous, 1)]
)
def test_faults_before_and_after_the_commit(place, error, carried_out):
    async def main():
        handler = Handler()

        async def fault(call, proceed):
            assert (call.method, call.path) == ("POST", "/a")
            if place == "after":
                await proceed()
            raise error("injected")

        transport = InMemoryTransport(handler, fault=fault)
        with pytest.raises(error):
            await transport.request("POST", "/a")
        outcome = asyncio.get_running_loop().create_future()
        transport.send(Request("POST", "/a"), outcome.set_result)
        assert type(await outcome) is error
        assert len(handler.calls) == 2 * carried_out

    run(main())


def test_the_fence_and_closing():
    async def main():
        handler = Handler(delay=1)
        transport = InMemoryTransport(handler)
        loop = asyncio.get_running_loop()
        leading = True
        fenced, cut = loop.create_future(), loop.create_future()
        transport.send(Request("POST", "/a", fence=lambda: leading), fenced.set_result)
        leading = False
        assert type(await fenced) is Fenced
        transport.send(Request("POST", "/b"), cut.set_result)
        await asyncio.sleep(0.5)
        transport.drop_connections()
        assert type(await cut) is Ambiguous
        closed = loop.create_future()
        transport.send(Request("POST", "/b"), closed.set_result)
        await asyncio.sleep(0.5)
        await transport.close()
        assert type(await closed) is Ambiguous
        with pytest.raises(NotSent):
            await transport.request("GET", "/c")

    run(main())
