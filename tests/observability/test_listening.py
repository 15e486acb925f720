"""Connections to the endpoints are capped, and those that are not used make room."""

import asyncio

import pytest

from koordsched.observability.access import AccessControl
from koordsched.observability.server import Listener
from koordsched.observability.servingtls import TLSOptions, serving_context
from tests.observability.test_server import NOW, Scheduler, insecure_client, serving

REQUEST = b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def connect(base, tls):
    host, port = base.rpartition("/")[2].split(":")
    return await asyncio.open_connection(host, int(port), ssl=insecure_client() if tls else None)


def listener(tls, most=4):
    if tls:
        return Listener("127.0.0.1", 0, serving_context(TLSOptions(), NOW), AccessControl(None, None), most=most)
    return Listener("127.0.0.1", 0, most=most)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_connections_that_are_not_used_make_room_for_those_that_are(tls):
    async with serving(Scheduler().endpoints, listener(tls)) as (_, base):
        idle = [await asyncio.wait_for(connect(base, tls), 10) for _ in range(20)]
        reader, writer = await asyncio.wait_for(connect(base, tls), 10)
        writer.write(REQUEST % b"/healthz")
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 200")
        closed = [await asyncio.wait_for(first.read(), 10) for first, _ in idle[:17]]
        assert closed == [b""] * 17
        for _, each in (*idle, (reader, writer)):
            each.close()


async def test_a_handshake_that_does_not_come_ends(monkeypatch):
    monkeypatch.setattr("koordsched.observability.listening.HANDSHAKE", 0.05)
    async with serving(Scheduler().endpoints, listener(tls=True)) as (_, base):
        silent = [await connect(base, tls=False) for _ in range(8)]
        reader, writer = await asyncio.wait_for(connect(base, tls=True), 10)
        writer.write(REQUEST % b"/healthz")
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 200")
        for _, each in (*silent, (reader, writer)):
            each.close()


@pytest.mark.parametrize("request_", [b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", REQUEST % b"/healthz"])
async def test_no_answer_tells_versions(request_):
    async with serving(Scheduler().endpoints, listener(tls=False)) as (_, base):
        reader, writer = await connect(base, tls=False)
        writer.write(request_)
        answer = (await asyncio.wait_for(reader.read(), 10)).lower()
        assert b"server: koordsched\r\n" in answer
        assert b"python" not in answer
        assert b"aiohttp" not in answer
        writer.close()
