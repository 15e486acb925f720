"""What no API server sends, from one that does: it harms the object that it is about, and lets the others pass."""

import asyncio
import itertools
import json
from contextlib import suppress

import pytest

from koordsched.api.versions import is_older
from koordsched.client import jsonformat, transport
from koordsched.client.clock import SystemClock
from koordsched.client.discovery import listable
from koordsched.client.errors import Ambiguous, ApiError, TooLong
from koordsched.client.identity import server_uid
from koordsched.client.inmemory import InMemoryTransport
from koordsched.client.lanes import Lane
from koordsched.client.lease import LeaseLock
from koordsched.client.network import NetworkTransport
from koordsched.client.reflector import State
from koordsched.observability.access import AccessControl, LookupFailed
from koordsched.observability.authdelegate import DelegatedAuth
from tests.client.test_lanes import OK, Server, make, outcome, write
from tests.client.test_leaderelection import KEY, LEASES, World
from tests.client.widgets import WIDGETS, Setup, server_state, widget
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.scheduling.serving import embedded_with_users, serving
from tests.virtualtime import run
from tests.waiting import until


@pytest.mark.parametrize(
    ("version", "other", "older"),
    [
        ("9", "10", True),
        ("10", "9", False),
        ("10", "10", False),
        ("009", "10", True),
        ("18446744073709551614", "18446744073709551615", True),
        ("12", "1" * 5000, False),
        ("1" * 5000, "12", False),
        ("", "10", False),
        ("9", "abc", False),
        ("٩", "10", False),
    ],
)
def test_versions_are_compared_as_numbers_if_a_server_can_count_to_them(version, other, older):
    assert is_older(version, other) is older


def test_a_version_of_five_thousand_digits_makes_no_other_object_old():
    async def main():
        async with Setup() as setup:
            await setup.reflector.synced.wait()
            setup.api.put(WIDGETS, widget("before"))
            await asyncio.sleep(1)
            odd = widget("odd", uid="u", resourceVersion="9" * 5000)
            after = widget("after", uid="v", resourceVersion="1000")
            news = (("ADDED", odd), ("MODIFIED", odd), ("ADDED", after), ("DELETED", odd))

            async def events():
                for kind, thing in news:
                    yield json.dumps({"type": kind, "object": thing}).encode() + b"\n"
                await asyncio.sleep(100)

            setup.api.cut()
            setup.api.refusals[WIDGETS] = (200, {}, events())
            await asyncio.sleep(5)
            assert {name for _, name in setup.sink.state()} == {"before", "after"}
            assert setup.reflector.resource_version == "1000"

    run(main())


def test_writes_that_cannot_be_put_on_the_wire_keep_no_others():
    class Strict(Server):
        def send(self, request, done):
            if " " in request.target:
                raise ValueError(f"request target not encoded: {request.target!r}")
            super().send(request, done)

    async def main():
        server = Strict()
        lanes = make(server, slots=4)
        bad = [lanes.submit(Lane.BINDING, write("a b")) for _ in range(10)]
        good = [lanes.submit(lane, write("x")) for lane in (Lane.BINDING, Lane.EVICTION, Lane.STATUS)]
        lanes.post(Lane.EVENT, write("e"))
        assert await asyncio.gather(*map(outcome, bad)) == [ApiError] * 10
        assert await asyncio.gather(*map(outcome, good)) == [OK.status] * 3
        assert await lanes.drain(60)
        assert (lanes.in_flight, lanes.stats[Lane.BINDING].in_flight) == (0, 0)
        assert server.order() == ["x", "x", "x", "e"]

    run(main())


@pytest.mark.parametrize("items", [[], [widget("same", uid="u", resourceVersion="11")]], ids=["empty", "the same"])
def test_a_list_that_never_ends_is_given_up_and_tried_ever_more_slowly(items):
    async def main():
        tokens = itertools.count()

        async def handler(method, path, query, headers, body):
            setup.api.requests.append((method, path, dict(query)))
            token = next(tokens)  # an end after all, so that the test has one
            meta = {"resourceVersion": "11", "continue": str(token) if token < 1000 else ""}
            return 200, {}, json.dumps({"metadata": meta, "items": items}).encode()

        setup = Setup()
        setup.reflector._transport._handler = handler
        async with setup:
            await asyncio.sleep(60)
            assert len(setup.lists()) < 200
            assert setup.reflector.state is State.FAILING
            setup.reflector._transport._handler = setup.api.handler
            setup.api.put(WIDGETS, widget("w"))
            await asyncio.sleep(60)
            assert setup.sink.state() == server_state(setup.api)

    run(main())


def test_an_event_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(jsonformat, "LONGEST_LINE", 10_000)

    async def main():
        async with Setup() as setup:
            await setup.reflector.synced.wait()
            taken = []

            async def endless():
                yield b'{"type":"ADDED","object":{"size":1,"metadata":{"name":"'
                while True:
                    taken.append(1)
                    yield b"x" * 1000
                    await asyncio.sleep(0.001)

            setup.api.cut()
            setup.api.refusals[WIDGETS] = (200, {}, endless())
            await asyncio.sleep(0.5)
            setup.api.refusals.clear()
            setup.api.put(WIDGETS, widget("w"))
            await asyncio.sleep(60)
            assert len(taken) <= 11
            assert setup.sink.state() == server_state(setup.api)

    run(main())


def test_a_lease_that_is_no_text_does_not_end_the_election():
    async def main():
        async with World() as world:
            lease = {"metadata": {"namespace": KEY[0], "name": KEY[1]}, "spec": {}}
            world.api.put(LEASES, lease)
            path = f"{LEASES}/{KEY[1]}"
            world.api.refusals[path] = (200, {}, b'{"spec":{"holderIdentity":"\xff\xfe"}}')
            replica = world.join("a")
            await asyncio.sleep(30)
            assert not replica.task.done()
            world.api.refusals.clear()
            await world.until_led(20)

    run(main())


def test_a_lease_that_is_no_text_is_no_lease():
    with pytest.raises(Exception, match="utf-8"):
        LeaseLock(b'{"metadata":{"resourceVersion":"\xff"}}', 15.0)


async def test_a_bearer_token_that_is_no_text_is_wrong():
    asked = []

    async def authenticate(token):
        asked.append(token)
        return token.encode()

    class Asking:
        def __init__(self, token):
            self.headers = {"Authorization": f"Bearer {token}"}

        def get_extra_info(self, name):
            return None

    control = AccessControl(authenticate, None)
    assert await control._user(Asking(b"\xff\xfe".decode("utf-8", "surrogateescape"))) is None
    assert asked == []


BEYOND = (1 << 64) - 1
"""As much as the embedded server can encode."""


def odd_pod():
    return pod("odd", container(cpu="1"), priority=BEYOND)


def odd_csi_node():
    driver = {"name": "d", "nodeID": "x", "allocatable": {"count": BEYOND}}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "alder"},
        "spec": {"drivers": [driver]},
    }


def odd_image():
    odd = node("odd", cpu="4")
    odd["status"]["images"] = [{"names": ["i"], "sizeBytes": BEYOND}]
    return odd


def odd_port():
    return pod("odd", {**container(cpu="1"), "ports": [{"hostPort": BEYOND, "containerPort": 1}]})


@pytest.mark.parametrize("odd", [odd_pod, odd_csi_node, odd_image, odd_port])
@pytest.mark.parametrize("late", [False, True], ids=["listed", "watched"])
def test_numbers_that_no_column_holds_harm_their_object_alone(odd, late):
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="4"))
        if not late:
            embedded.restore(odd())
        async with scheduler_on(embedded) as running:
            if late:
                embedded.insert(odd())
            for name in ("a", "b"):
                embedded.insert(pod(name, container(cpu="1"), priority=5))
            await asyncio.sleep(5)
            assert [embedded.get("Pod", name)["spec"].get("nodeName") for name in ("a", "b")] == ["alder"] * 2
            assert not running.work.done()

    run(main())


async def test_a_watch_that_died_is_named_where_the_scheduler_only_stands_by():
    async with serving(embedded_with_users()) as running:
        get, watches = running.client.get, running.scheduler.watches
        assert await get("/readyz", None) == (200, "ok")
        at = list(watches.reflectors).index("/api/v1/nodes")

        async def dies():
            raise RuntimeError("unexpected")

        watches._tasks[at].cancel()
        watches._tasks[at] = asyncio.create_task(dies())
        await until(watches._tasks[at].done, "its end")
        status, text = await get("/readyz", None)
        assert (status, "[-]watch-nodes failed" in text) == (500, True)
        with pytest.raises(ExceptionGroup):
            await running.scheduler.catch_up()


DEEP = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
NOT_UTF_8 = (
    b'{"items":[{"metadata":{"uid":"\xff"}}],"resources":[{"name":"\xff","kind":""}],'
    b'"status":{"user":{"username":"\xff"}}}'
)


@pytest.mark.parametrize("body", [DEEP, NOT_UTF_8], ids=["deep", "not UTF-8"])
def test_an_answer_that_cannot_be_decoded_fails_its_request_alone(body):
    async def handler(method, path, query, headers, sent):
        return 200, {}, body

    async def main():
        memory = InMemoryTransport(handler)
        assert await server_uid(memory) == ""
        with pytest.raises(Ambiguous):
            await listable(memory)
        with pytest.raises(LookupFailed):
            await DelegatedAuth(memory, lambda: 0.0).authenticate("token")

    run(main())


async def without_end():
    while True:
        yield b" " * (64 << 10)
        await asyncio.sleep(0)


@pytest.mark.parametrize("what", ["list", "refusal of a list", "refusal of a watch"])
def test_an_answer_without_end_is_given_up_and_named(what, monkeypatch, caplog):
    monkeypatch.setattr(transport, "LONGEST_LIST", 4 << 20)
    monkeypatch.setattr(transport, "LONGEST_ANSWER", 1 << 20)
    longest = "4,194,304" if what == "list" else "1,048,576"
    odd = asyncio.Event()

    async def fault(call, proceed):
        if odd.is_set() and call.path == "/api/v1/nodes" and ("watch" in call.query) is (what == "refusal of a watch"):
            return 200 if what == "list" else 500, {}, without_end()
        return await proceed()

    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="4"))
        async with scheduler_on(embedded, fault=fault) as running:
            await asyncio.sleep(5)
            odd.set()
            embedded.registry.store.begin_anew()
            await asyncio.sleep(60)
            problem = f"the answer is longer than {longest} bytes"
            assert problem in running.scheduler.watches.problems["/api/v1/nodes"]
            assert problem in caplog.text
            odd.clear()
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(60)
            assert embedded.get("Pod", "p")["spec"].get("nodeName") == "alder"
            assert running.scheduler.watches.problems == {}

    run(main())


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_answer_without_end_is_not_kept(method, monkeypatch):
    monkeypatch.setattr(transport, "LONGEST_ANSWER", 1 << 20)
    sent = 0

    async def answer(reader, writer):
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(ConnectionError):
            while sent < 64 << 20:
                writer.write(bytes(64 << 10))
                await writer.drain()
                sent += 64 << 10
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        network = await NetworkTransport.open(SystemClock(), master=address, environ={})
        with pytest.raises(TooLong, match="1,048,576"):
            await network.request(method, "/x", timeout=20)
        await network.close()
    assert sent < 32 << 20
