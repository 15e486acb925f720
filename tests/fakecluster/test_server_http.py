"""The wire: connections, pipelining, streams, limits, TLS, and the service times of an emulated server."""

import asyncio
import json
import random
import ssl
from contextlib import asynccontextmanager

import pytest

from koordsched.fakecluster.emulation import Emulation
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.http import BODY_LIMIT, HttpServer
from koordsched.fakecluster.kubeconfig import kubeconfig, write_kubeconfig
from koordsched.fakecluster.tls import self_signed
from tests import virtualtime
from tests.fakecluster.apiclient import CONFIG_MAPS, PODS, Api, config_map
from tests.fakecluster.test_server_customresources import CRDS, WIDGETS, definition, widget

DEADLINE = 20


@asynccontextmanager
async def served(api, tls=None):
    http = HttpServer(api.server.start)
    port = await http.start("127.0.0.1", 0, tls)
    try:
        async with asyncio.timeout(DEADLINE):
            yield port
    finally:
        api.server.hub.close_all()
        await http.stop()


def request(method, path, body=b"", extra=""):
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return (head + extra + "\r\n").encode() + body


async def answer(reader):
    """(status, headers, body) of the next response that is not a stream."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers["content-length"])) if "content-length" in headers else b""
    return int(head[0].split()[1]), headers, body


async def test_pipelined_requests_are_answered_in_order():
    api = Api()
    async with served(api) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for i in range(200):
            writer.write(request("POST", CONFIG_MAPS, json.dumps(config_map(f"c{i}")).encode()))
        names = [json.loads((await answer(reader))[2])["metadata"]["name"] for _ in range(200)]
        assert names == [f"c{i}" for i in range(200)]
        writer.close()


async def test_a_broken_request_is_refused_after_the_answers_to_those_before_it():
    api = Api()
    async with served(api) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request("GET", "/version") + request("GET", "/healthz") + b"nonsense\r\n\r\n")
        statuses = [(await answer(reader))[0] for _ in range(3)]
        assert statuses == [200, 200, 400]
        assert await reader.read() == b""
        writer.close()


async def test_a_stream_is_chunked_and_others_go_on():
    api = Api()
    async with served(api) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request("GET", f"{CONFIG_MAPS}?watch=1&timeoutSeconds=5"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        _, other = await asyncio.open_connection("127.0.0.1", port)
        other.write(request("POST", CONFIG_MAPS, json.dumps(config_map("a")).encode()))
        size = int(await reader.readuntil(b"\r\n"), 16)
        event = json.loads(await reader.readexactly(size))
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
        await reader.readexactly(2)
        api.timers.advance(6)
        assert await reader.readexactly(5) == b"0\r\n\r\n"
        # The connection lives on.
        writer.write(request("GET", "/healthz"))
        assert (await answer(reader))[2] == b"ok"
        writer.close()
        other.close()


async def events(reader):
    """The events of a watch, whose head has been read, to the end of its stream."""
    found = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        found += [json.loads(line) for line in (await reader.readexactly(size)).splitlines()]
        await reader.readexactly(2)
    await reader.readexactly(2)
    return [(event["type"], event["object"]) for event in found]


async def test_watches_do_not_outlive_their_definition():
    """A kind that is gone and comes back begins anew: nobody may think that what went with it is still there."""
    api = Api()
    api.post(CRDS, definition())
    rv = api.get(WIDGETS)[1]["metadata"]["resourceVersion"]
    async with served(api) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def watch(version):
            writer.write(request("GET", f"{WIDGETS}?watch=1&timeoutSeconds=5&resourceVersion={version}"))
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")

        await watch(rv)
        api.post(WIDGETS, widget())
        api.delete(f"{CRDS}/widgets.ex.com")
        seen = await events(reader)
        assert [(kind, thing["metadata"]["name"]) for kind, thing in seen] == [("ADDED", "w"), ("DELETED", "w")]

        writer.write(request("GET", f"{WIDGETS}?watch=1&resourceVersion={rv}"))
        assert (await answer(reader))[0] == 404

        api.post(CRDS, definition())
        for version in (rv, seen[-1][1]["metadata"]["resourceVersion"]):
            await watch(version)
            [(kind, status)] = await events(reader)
            assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired"), version

        writer.write(request("GET", WIDGETS))
        listed = json.loads((await answer(reader))[2])
        assert listed["items"] == []
        await watch(listed["metadata"]["resourceVersion"])
        api.post(WIDGETS, widget("again"))
        api.timers.advance(6)
        assert [(kind, thing["metadata"]["name"]) for kind, thing in await events(reader)] == [("ADDED", "again")]
        writer.close()


async def test_a_closed_connection_ends_its_watch():
    api = Api()
    collection = api.registry.collection(api.registry.resource("", "v1", "configmaps"))
    async with served(api) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request("GET", f"{CONFIG_MAPS}?watch=1"))
        await reader.readuntil(b"\r\n\r\n")
        assert len(collection.observers) == 1
        writer.close()
        async with asyncio.timeout(DEADLINE):
            await reader.read()
        for _ in range(1000):
            if not collection.observers:
                break
            await asyncio.sleep(0)
        assert collection.observers == []


async def test_a_client_that_does_not_read_is_not_waited_for():
    api = Api()
    async with served(api) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request("GET", f"{CONFIG_MAPS}?watch=1"))
        writer.write(request("GET", "/healthz"))
        reader2, writer2 = await asyncio.open_connection("127.0.0.1", port)
        body = json.dumps(config_map("big", k="x" * 500_000)).encode()
        for i in range(40):
            patch = body.replace(b'"big"', b'"big%d"' % i)
            writer2.write(request("POST", CONFIG_MAPS, patch))
            assert (await answer(reader2))[0] == 201
        writer.close()
        writer2.close()


BROKEN = [
    (b"NONSENSE\r\n\r\n", 400),
    (request("POST", CONFIG_MAPS, b"x" * (BODY_LIMIT + 1)), 413),
]


@pytest.mark.parametrize("data, code", BROKEN, ids=["nonsense", "too large"])
async def test_broken_requests_end_with_a_status(data, code):
    api = Api()
    async with served(api) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        status, headers, body = await answer(reader)
        assert (status, headers["connection"], json.loads(body)["kind"]) == (code, "close", "Status")
        assert await reader.read() == b""
        writer.close()


async def test_an_upgrade_is_declined():
    async with served(Api()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        status, headers, body = await answer(reader)
        assert (status, headers["connection"], body) == (200, "close", b"ok")
        assert await reader.read() == b""
        writer.close()


async def test_head_has_no_body():
    async with served(Api()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request("HEAD", "/healthz") + request("GET", "/healthz"))
        assert (await answer(reader))[0] == 405
        assert (await answer(reader))[2] == b"ok"
        writer.close()


async def test_connection_close_is_honoured():
    async with served(Api()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request("GET", f"{PODS}?limit=1&labelSelector=a%3Db%2Cc", extra="Connection: close\r\n"))
        status, headers, body = await answer(reader)
        assert (status, headers["connection"], json.loads(body)["items"]) == (200, "close", [])
        assert await reader.read() == b""
        writer.close()


async def test_tls_with_the_authority_of_the_run():
    import time

    # The handshake is checked against the machine's clock.
    context, authority = self_signed("127.0.0.1", time.time())
    async with served(Api(), context) as port:
        trusting = ssl.create_default_context(cadata=authority.decode())
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        writer.write(request("GET", "/version"))
        assert json.loads((await answer(reader))[2])["major"] == "1"
        writer.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", port, ssl=ssl.create_default_context())


def test_the_kubeconfig_is_private_and_whole(tmp_path):
    path = tmp_path / "config"
    path.write_text("old")
    write_kubeconfig(path, kubeconfig("https://h:1", "secret", b"PEM"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
    import yaml

    config = yaml.safe_load(path.read_text())
    assert config["clusters"][0]["cluster"] == {"server": "https://h:1", "certificate-authority-data": "UEVN"}
    assert config["users"][0]["user"] == {"token": "secret"}


def test_emulated_writes_take_their_time():
    async def main():
        loop = asyncio.get_running_loop()
        emulation = Emulation(random.Random(1), writes_per_second=2500, median=0.003)
        api = Api(emulation=emulation)

        async def write(i):
            response = await api.server.handle(api_request(i))
            assert response.status == 201
            return loop.time()

        def api_request(i):
            from koordsched.fakecluster.messages import Request

            return Request("POST", CONFIG_MAPS, {}, {}, json.dumps(config_map(f"c{i}")).encode())

        start = loop.time()
        alone = await write(0) - start
        assert 0.001 < alone < 0.010
        start = loop.time()
        ends = await asyncio.gather(*(write(i) for i in range(1, 5001)))
        assert 2300 < 5000 / (max(ends) - start) <= 2500
        # Reads do not wait.
        start = loop.time()
        assert api.get(CONFIG_MAPS + "/c7")[0] == 200
        assert loop.time() == start

    virtualtime.run(main())


def test_an_overloaded_server_says_when_to_come_again():
    async def main():
        emulation = Emulation(random.Random(1), writes_per_second=10, queue_limit=20)
        tries = await asyncio.gather(*(emulation.serve() for _ in range(50)), return_exceptions=True)
        refused = [t for t in tries if isinstance(t, ApiStatusError)]
        assert len(refused) == 29
        assert {(r.code, r.retry_after) for r in refused} == {(429, 1)}

    virtualtime.run(main())
