"""Requests that are not HTTP, from clients without credentials: refused, and the log stays short."""

import asyncio
import logging

import pytest

from koordsched.observability.server import Listener
from koordsched.observability.servingtls import TLSOptions, serving_context
from tests.observability.test_listening import connect
from tests.observability.test_server import NOW, Scheduler, open_to_all, serving

HEAD = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
GET = b"GET /healthz" + HEAD
PUT = b"PUT /debug/flags/v" + HEAD
NOT_GZIP = b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\xff\xfe"
CHUNKED = b"Transfer-Encoding: chunked\r\n"

REFUSED = {
    "expectation": (GET + b"Expect: \xff\r\n\r\n", 417),
    "expectation, unknown path": (b"GET /nothing" + HEAD + b"Expect: \xff\r\n\r\n", 417),
    "no gzip": (PUT + NOT_GZIP, (400, 404)),
    "no gzip, unknown path": (b"PUT /nothing" + HEAD + NOT_GZIP, 404),
    "no gzip, nothing expected": (GET + NOT_GZIP, 200),
    "no chunks": (PUT + CHUNKED + b"\r\n2;\xff=\x00\r\nab\r\n0\r\n\r\n", (400, 404)),
    "two bodies": (PUT + CHUNKED + b"Content-Length: 5\r\n\r\n2\r\nab\r\n0\r\n\r\n", 400),
    "a long length": (PUT + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nab", 400),
    "a star": (b"GET *" + HEAD + b"\r\n", 400),
    "a host that is none": (b"GET http://xn--a/healthz" + HEAD + b"\r\n", 400),
    "a long target": (b"GET /" + b"a" * 9000 + HEAD + b"\r\n", 400),
    "a long header": (GET + b"Authorization: Bearer " + b"secret" * 9000 + b"\r\n\r\n", 400),
    "a header with a control": (GET + b"Authorization: Bearer secret\x7f\r\n\r\n", 400),
    "many headers": (GET + b"X: a\r\n" * 500 + b"\r\n", 400),
    "nonsense": (b"\x16\x03\x01\x02" * 30 + b"\r\n\r\n", 400),
    "HTTP/9.9": (b"GET / HTTP/9.9\r\n\r\n", 400),
}


@pytest.fixture(scope="module")
def context():
    return serving_context(TLSOptions(), NOW)


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def listener(request, context):
    return Listener("127.0.0.1", 0, context if request.param else None, open_to_all())


def said(caplog):
    return [record for record in caplog.records if record.name.startswith(("aiohttp", "koordsched", "asyncio"))]


async def test_malformed_requests_are_refused_with_a_line_for_debugging(listener, caplog):
    async with serving(Scheduler().endpoints, listener) as (_, base):
        caplog.set_level(logging.DEBUG)
        for name, (request, statuses) in REFUSED.items():
            caplog.clear()
            reader, writer = await connect(base, listener.tls)
            writer.write(request)
            status = int((await asyncio.wait_for(reader.readline(), 10)).split()[1])
            assert status in (statuses if isinstance(statuses, tuple) else (statuses,)), name
            await asyncio.wait_for(reader.read(), 10)
            writer.close()
            lines = said(caplog)
            assert len(lines) <= 2, name
            for line in lines:
                assert (line.levelno, line.exc_info) == (logging.DEBUG, None), name
                text = line.getMessage()
                assert len(text.splitlines()) == 1, name
                assert len(text) < 200, name
                assert "secret" not in text, name


async def test_a_client_that_is_gone_before_its_body_is_no_error(listener, caplog):
    async with serving(Scheduler().endpoints, listener) as (session, base):
        caplog.set_level(logging.INFO)
        for request in (b"Expect: 100-continue\r\nContent-Length: 50\r\n\r\n", b"Content-Length: 50\r\n\r\nab"):
            _, writer = await connect(base, listener.tls)
            writer.write(PUT + request)
            await writer.drain()
            writer.transport.abort()
        async with session.get(f"{base}/healthz", ssl=False) as response:
            assert response.status == 200
    assert not [line for line in said(caplog) if line.levelno > logging.INFO]


async def test_a_body_that_is_expected_is_asked_for(listener):
    async with serving(Scheduler().endpoints, listener) as (_, base):
        reader, writer = await connect(base, listener.tls)
        writer.write(GET + b"Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n")
        assert await asyncio.wait_for(reader.readline(), 10) == b"HTTP/1.1 100 Continue\r\n"
        writer.write(b"ab")
        assert b"HTTP/1.1 200 OK\r\n" in await asyncio.wait_for(reader.read(), 10)
        writer.close()
