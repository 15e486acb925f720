"""A transport that only reads: no other request reaches the server, in whichever way it is sent."""

import asyncio

import pytest

from koordsched.client.errors import Fenced
from koordsched.client.inmemory import InMemoryTransport
from koordsched.client.readonly import ReadOnlyTransport
from koordsched.client.transport import Request

WRITES = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "get", "")


def served():
    """(transport, the methods that reached the server)."""
    methods = []

    async def handler(method, path, query, headers, body):
        methods.append(method)
        return 200, {}, b"{}"

    return ReadOnlyTransport(InMemoryTransport(handler)), methods


@pytest.mark.parametrize("method", WRITES)
async def test_no_write_leaves(method):
    transport, methods = served()
    with pytest.raises(Fenced, match="only reads"):
        await transport.request(method, "/api/v1/pods", body=b"{}")
    outcome = asyncio.get_running_loop().create_future()
    transport.send(Request(method, "/api/v1/pods"), outcome.set_result)
    assert not outcome.done()
    assert isinstance(await outcome, Fenced)
    with pytest.raises(Fenced):
        transport._stream(Request(method, "/api/v1/pods"))
    assert methods == []


async def test_reads_pass():
    transport, methods = served()
    assert (await transport.request("GET", "/api/v1/pods")).body == b"{}"
    async with transport.stream("/api/v1/pods", query={"watch": "1"}) as stream:
        assert [chunk async for chunk in stream.chunks()] == [b"{}"]
    outcome = asyncio.get_running_loop().create_future()
    transport.send(Request("GET", "/api/v1/pods"), outcome.set_result)
    assert (await outcome).status == 200
    assert methods == ["GET"] * 3
    await transport.close()
