"""The hot writer against real sockets: what it puts on the wire and how it sorts what comes back."""

import asyncio
import contextlib
import socket
from random import Random

import pytest
import uvloop

from koordsched.client import writepool
from koordsched.client.clock import SystemClock
from koordsched.client.connection import Connection
from koordsched.client.errors import Ambiguous, ClientError, Fenced, NotSent
from koordsched.client.lanes import Lane, Lanes
from koordsched.client.settings import Settings, parse_server
from koordsched.client.transport import MERGE_PATCH, Request, Response
from koordsched.client.writepool import WritePool
from tests.client.httpserver import HttpServer, response

DEADLINE = 10


class Client:
    """A writer with counted credential readings."""

    def __init__(self, url, authorization="Bearer one"):
        self.url = url
        self.authorization = authorization
        self.readings = 0

    async def source(self):
        self.readings += 1
        await asyncio.sleep(0)
        return Settings(server=parse_server(self.url, tls=False), authorization=self.authorization)

    async def __aenter__(self):
        self.connection = await Connection.open(self.source, SystemClock())
        self.readings = 0
        self.writer = WritePool(self.connection, SystemClock(), "test/1")
        return self

    async def __aexit__(self, *_):
        await self.writer.close()
        await self.connection.close()

    def start(self, target="/x", body=b"{}", method="POST", **options):
        future = asyncio.get_running_loop().create_future()
        self.writer.send(Request(method, target, body, **options), future.set_result)
        return future

    async def ask(self, *args, **options):
        async with asyncio.timeout(DEADLINE):
            return await self.start(*args, **options)


async def until(condition):
    """Waits for a condition that real sockets bring about."""
    for _ in range(DEADLINE * 500):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise TimeoutError


async def test_the_request_on_the_wire():
    async with HttpServer() as server, Client(server.url + "/prefix/") as client:
        answer = await client.ask(
            "/api/v1/pods?fieldManager=k%2Fs", b'{"a":1}', "PATCH", content_type=MERGE_PATCH, headers={"X-Trace": "7"}
        )
        assert (answer.status, answer.body, answer.headers["content-type"]) == (200, b"{}", "application/json")
        [exchange] = server.exchanges
        assert (exchange.method, exchange.target, exchange.body) == (
            "PATCH",
            "/prefix/api/v1/pods?fieldManager=k%2Fs",
            b'{"a":1}',
        )
        assert exchange.headers == {
            "host": f"127.0.0.1:{server.port}",
            "user-agent": "test/1",
            "accept": "application/json",
            "authorization": "Bearer one",
            "content-type": "application/merge-patch+json",
            "content-length": "7",
            "x-trace": "7",
        }


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "/ä", "/a\n"])
async def test_a_target_that_would_forge_a_request_is_refused(target):
    async with HttpServer() as server, Client(server.url) as client:
        with pytest.raises(ValueError, match="not encoded"):
            client.start(target)
        assert server.exchanges == []


CHUNKED = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n" + (
    b"5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nTrailer: x\r\n\r\n"
)


@pytest.mark.parametrize(
    ("wire", "status", "body"),
    [
        (response(201, b'{"kind":"Status"}'), 201, b'{"kind":"Status"}'),
        (CHUNKED, 201, b"hello world"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + response(409, b"conflict"), 409, b"conflict"),
        (response(200, b"x" * 300_000), 200, b"x" * 300_000),
    ],
)
@pytest.mark.parametrize("piece", [3, 100_000])
async def test_framings_in_any_pieces_on_one_connection(wire, status, body, piece):
    async def slowly(exchange):
        for i in range(0, len(wire), max(piece, len(wire) // 50)):
            exchange.reply(wire[i : i + max(piece, len(wire) // 50)])
            await asyncio.sleep(0)

    tasks = []
    async with HttpServer() as server, Client(server.url) as client:
        server.answer = lambda exchange: tasks.append(asyncio.ensure_future(slowly(exchange)))
        for _ in range(3):
            answer = await client.ask()
            assert (answer.status, answer.body) == (status, body)
        assert server.opened == 1


async def test_connections_are_reused_and_as_many_as_needed():
    async with HttpServer() as server, Client(server.url) as client:
        waiting = []
        server.answer = waiting.append
        first = [client.start(f"/{i}") for i in range(5)]
        await until(lambda: len(waiting) == 5)
        assert server.opened == 5
        for exchange in waiting:
            exchange.reply(response(200, exchange.target.encode()))
        assert [r.body for r in await asyncio.gather(*first)] == [f"/{i}".encode() for i in range(5)]
        server.answer = lambda exchange: exchange.reply(response())
        for _ in range(20):
            await client.ask()
        assert server.opened == 5


@pytest.mark.parametrize(
    "wire",
    [
        response(200, b"{}", "Connection: close"),
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        response() + b"unasked",
    ],
)
async def test_a_connection_that_cannot_be_trusted_further_is_not_reused(wire):
    async with HttpServer() as server, Client(server.url) as client:
        server.answer = lambda exchange: exchange.reply(wire)
        for _ in range(3):
            answer = await client.ask()
            assert (answer.status, answer.body) == (200, b"{}")
        assert server.opened == 3


async def test_an_answer_that_nothing_was_asked_for_ends_the_connection():
    """A load balancer's page about a time-out, say, while the connection is idle."""
    async with HttpServer() as server, Client(server.url) as client:
        exchanges, answers = [], []

        def answer(exchange):
            exchanges.append(exchange)
            exchange.reply(response())

        server.answer = answer
        client.writer.send(Request("POST", "/x", b"{}"), answers.append)
        await until(lambda: answers)
        exchanges[0].reply(response(408))
        await until(lambda: not server.connections)
        assert [each.status for each in answers] == [200]
        assert (await client.ask()).status == 200
        assert server.opened == 2


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (lambda e: e.hang_up(), Ambiguous),
        (lambda e: (e.reply(response(200, b"x" * 50)[:-20]), e.connection.transport.close()), Ambiguous),
        (lambda e: e.reply(b"SSH-2.0-OpenSSH\r\n"), Ambiguous),
        (lambda e: e.reply(b"HTTP/1.1 200 OK\r\nContent-Length: lots\r\n\r\n"), Ambiguous),
        (lambda e: None, Ambiguous),
    ],
)
async def test_whatever_happens_after_sending_is_ambiguous(behaviour, kind):
    async with HttpServer() as server, Client(server.url) as client:
        server.answer = behaviour
        assert type(await client.ask(timeout=0.5)) is kind
        server.answer = lambda exchange: exchange.reply(response())
        assert (await client.ask()).status == 200, "the next one gets a sound connection"


async def test_a_refused_connection_is_not_sent_and_later_ones_succeed():
    server = await HttpServer().start()
    await server.stop()
    async with Client(server.url) as client:
        outcomes = await asyncio.gather(*[client.start() for _ in range(10)])
        assert {type(o) for o in outcomes} == {NotSent}
        assert server.url in str(outcomes[0])
        await server.start(server.port)
        assert (await client.ask()).status == 200
        await server.stop()


async def test_nobody_waits_for_connections_that_are_reset_at_once():
    """As many times as it takes to meet every order in which sockets tell of it."""
    async with HttpServer() as server, Client(server.url) as client:
        for _ in range(10):
            server.turns_away = True
            outcomes = await asyncio.gather(*[client.ask() for _ in range(20)])
            assert {type(o) for o in outcomes} <= {NotSent, Ambiguous}
            server.turns_away = False
            assert (await client.ask()).status == 200
            client.writer.drop_connections()
        assert not client.writer._waiting


async def test_a_server_that_closes_idle_connections_costs_nothing():
    async with HttpServer() as server, Client(server.url) as client:
        await client.ask()
        server.connections[0].transport.close()
        await until(lambda: not client.writer._idle)
        assert (await client.ask()).status == 200


async def test_an_address_that_does_not_answer_is_not_waited_for():
    """A name with an address for each control plane node, the first of which is down: neither answer nor refusal."""
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo
    async with HttpServer() as server:
        with contextlib.ExitStack() as sockets:
            silent = sockets.enter_context(socket.socket())
            silent.bind(("127.0.0.2", server.port))
            silent.listen(0)
            for _ in range(4):  # as many as it takes to fill what it lets wait
                waiting = sockets.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(("127.0.0.2", server.port))

            async def getaddrinfo(host, port, **options):
                hosts = ["127.0.0.2", "127.0.0.1"] if host == "api.example.com" else [host]
                return [one for each in hosts for one in await resolve(each, port, **options)]

            loop.getaddrinfo = getaddrinfo
            async with Client(f"http://api.example.com:{server.port}") as client:
                assert (await client.ask(timeout=5)).status == 200


async def test_no_connection_in_time_is_not_sent():
    async with HttpServer() as server, Client(server.url) as client:
        loop = asyncio.get_running_loop()
        never = loop.create_future()

        async def hangs(*args, **kwargs):
            await never

        client.writer._loop = type(
            "Loop", (), {"create_connection": hangs, "__getattr__": lambda _, n: getattr(loop, n)}
        )()
        outcome = await client.ask(timeout=0.2)
        assert type(outcome) is NotSent
        assert server.exchanges == []


async def test_refused_credentials_are_renewed_once_for_all():
    async with HttpServer() as server, Client(server.url) as client:
        stale = []

        def answer(exchange):
            if exchange.headers["authorization"] == "Bearer two":
                exchange.reply(response(201))
                return
            stale.append(exchange)
            if len(stale) == 8:  # before, some might be sent with the new ones at once
                for each in stale:
                    each.reply(response(401))

        server.answer = answer
        client.authorization = "Bearer two"
        answers = await asyncio.gather(*[client.start() for _ in range(8)])
        assert [a.status for a in answers] == [201] * 8
        assert client.readings == 1
        assert len(server.exchanges) == 16
        client.authorization = "Bearer three"
        server.answer = lambda exchange: exchange.reply(response(401))
        assert (await client.ask()).status == 401, "refused again: the caller hears of it"
        assert len(server.exchanges) == 18


async def test_a_late_refusal_of_old_credentials_does_not_renew_the_new_ones():
    async with HttpServer() as server, Client(server.url) as client:
        held = []

        def answer(exchange):
            if exchange.target == "/slow" and exchange.headers["authorization"] == "Bearer one":
                held.append(exchange)
            else:
                exchange.reply(response(201 if exchange.headers["authorization"] == "Bearer two" else 401))

        server.answer = answer
        client.authorization = "Bearer two"
        slow = client.start("/slow")
        await until(lambda: held)
        assert (await client.ask("/quick")).status == 201
        held[0].reply(response(401))
        assert (await slow).status == 201
        assert client.readings == 1


async def test_the_fence_is_asked_when_the_socket_is_ready_not_when_the_write_is_queued():
    async with HttpServer() as server, Client(server.url) as client:
        leading = True
        future = client.start(fence=lambda: leading)
        # The connection is still being opened.
        leading = False
        assert type(await future) is Fenced
        leading = True
        assert (await client.ask(fence=lambda: leading)).status == 200
        assert len(server.exchanges) == server.opened == 1, "the connection opened for the first was kept"


@pytest.mark.parametrize("lane", [lane for lane in Lane if lane is not Lane.LEASE])
async def test_a_write_that_waits_for_its_connection_is_withheld_when_the_lease_ends_meanwhile(lane):
    """All of the way: what is asked when the write leaves its lane is of no use a moment later."""
    leading = True
    async with HttpServer() as server, Client(server.url) as client:
        lanes = Lanes(client.writer, SystemClock(), Random(1), fence=lambda: leading)
        future = lanes.submit(lane, Request("POST", "/x", b"{}"))
        leading = False
        with pytest.raises(Fenced):
            await asyncio.wait_for(future, DEADLINE)
        assert server.exchanges == []


async def test_dropping_connections_ends_what_is_under_way():
    async with HttpServer() as server, Client(server.url) as client:
        server.answer = lambda exchange: None
        futures = [client.start() for _ in range(3)]
        await until(lambda: len(server.exchanges) == 3)
        client.writer.drop_connections()
        assert [type(o) for o in await asyncio.gather(*futures)] == [Ambiguous] * 3
        await until(lambda: not server.connections)


async def test_closing_settles_everything():
    async with HttpServer() as server, Client(server.url) as client:
        server.answer = lambda exchange: None
        under_way = client.start()
        await until(lambda: len(server.exchanges) == 1)
        queued = client.start()
        await client.writer.close()
        assert type(await under_way) is Ambiguous
        assert type(await queued) is NotSent
        assert type(await client.ask()) is NotSent


async def test_idle_connections_are_closed(monkeypatch):
    monkeypatch.setattr(writepool, "IDLE_TIMEOUT", 0.05)
    monkeypatch.setattr(writepool, "IDLE_TICK", 0.05)
    async with HttpServer() as server, Client(server.url) as client:
        await client.ask()
        await until(lambda: not server.connections)


async def test_a_request_after_a_rest_ends_in_its_time():
    async with HttpServer() as server, Client(server.url) as client:
        await client.ask()
        loop, writer = asyncio.get_running_loop(), client.writer
        await until(lambda: writer._timer is not None and writer._timer.when() > loop.time() + 5)
        server.answer = lambda exchange: None
        assert type(await client.ask(timeout=0.2)) is Ambiguous


async def test_many_requests_under_churn_each_get_their_own_answer():
    """Servers that close at random: every answer belongs to its request, every request has one outcome."""
    async with HttpServer() as server, Client(server.url) as client:
        count = 0

        def answer(exchange):
            nonlocal count
            count += 1
            if count % 7 == 0:
                exchange.hang_up()
            elif count % 5 == 0:
                exchange.reply(response(200, exchange.body, "Connection: close"))
            else:
                exchange.reply(response(200, exchange.body))

        server.answer = answer

        async def worker(k):
            outcomes = []
            for i in range(60):
                body = f"{k}-{i}".encode()
                outcome = await client.ask(body=body)
                assert isinstance(outcome, Response | ClientError)
                if isinstance(outcome, Response):
                    assert outcome.body == body
                outcomes.append(type(outcome))
            return outcomes

        outcomes = [o for worker_outcomes in await asyncio.gather(*map(worker, range(8))) for o in worker_outcomes]
        assert outcomes.count(Ambiguous) == count // 7
        assert outcomes.count(NotSent) == 0
        assert len(outcomes) == count == 480


@pytest.mark.parametrize(
    "test",
    [
        test_the_request_on_the_wire,
        test_connections_are_reused_and_as_many_as_needed,
        test_a_refused_connection_is_not_sent_and_later_ones_succeed,
        test_an_address_that_does_not_answer_is_not_waited_for,
        test_nobody_waits_for_connections_that_are_reset_at_once,
        test_a_server_that_closes_idle_connections_costs_nothing,
        test_refused_credentials_are_renewed_once_for_all,
        test_dropping_connections_ends_what_is_under_way,
        test_closing_settles_everything,
        test_many_requests_under_churn_each_get_their_own_answer,
    ],
)
def test_the_same_on_the_loop_of_production(test):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())
