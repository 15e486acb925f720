"""What watches deliver: any notation, any chunking, garbage, streamed lists."""

import asyncio

import pytest

from tests.client.apifake import FakeApi
from tests.client.widgets import WIDGETS, Setup, server_state, widget
from tests.virtualtime import run


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"ADDED","object":{"metadata":{"namespace":"ns","name":"x","uid":"u","resourceVersion":"90"},"size":3}}',
        b'{"object":{"metadata":{"namespace":"ns","name":"x","uid":"u","resourceVersion":"90"},"size":3},"type":"ADDED"}',
        b'{"type":"ADDED","object":{"metadata":{"namespace":"ns","name":"x","uid":"u","resourceVersion":"90"},'
        b'"size":3},"extra":1}',
        b'{ "type" : "MODIFIED", "object": {"metadata":{"namespace":"ns","name":"x","uid":"u","resourceVersion":"90"},'
        b'"size":3} }\r',
    ],
)
@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_events_in_any_notation_and_any_chunking(line, piece):
    async def main():
        async with Setup() as setup:
            await setup.reflector.synced.wait()

            async def chunks():
                data = line + b"\n"
                for i in range(0, len(data), piece):
                    yield data[i : i + piece]
                await asyncio.sleep(100)

            setup.api.cut()
            setup.api.refusals[WIDGETS] = (200, {}, chunks())
            await asyncio.sleep(5)
            assert setup.sink.state() == {("ns", "x"): ("u", 3, "90")}
            assert setup.malformed == []

    run(main())


@pytest.mark.parametrize(
    "garbage",
    [
        b"<html>\n",
        b'{"type":"ADDED"}\n',
        b'{"type":"SURPRISE","object":{}}\n',
        b"\xff\xfe\n",
        b'{"type":"ERROR","object":{}}\n',
    ],
)
def test_an_unreadable_watch_leads_to_a_new_list(garbage):
    async def main():
        async with Setup() as setup:
            await setup.reflector.synced.wait()

            async def chunks():
                yield garbage

            setup.api.cut()
            setup.api.put(WIDGETS, widget("missed"))
            setup.api.refusals[WIDGETS] = (200, {}, chunks())
            await asyncio.sleep(0.5)
            setup.api.refusals.clear()
            await asyncio.sleep(60)
            assert len(setup.lists()) >= 2
            assert setup.sink.state() == server_state(setup.api)

    run(main())


@pytest.mark.parametrize("answer", [b"", b"<html>", b'{"type":"ADDED","obj'])
def test_where_no_watch_comes_through_lists_tell_of_changes(answer):
    async def main():
        async def fault(call, proceed):
            return (200, {}, answer) if "watch" in call.query else await proceed()

        async with Setup(fault=fault) as setup:
            for size in range(5):
                setup.api.put(WIDGETS, widget("w", size))
                await asyncio.sleep(120)
                assert setup.sink.state() == server_state(setup.api)
            assert len(setup.lists()) <= 60

    run(main())


def test_an_old_deletion_does_not_take_the_next_object_of_that_name():
    async def main():
        async with Setup() as setup:
            first = setup.api.put(WIDGETS, widget("w", 1))
            setup.api.remove(WIDGETS, "ns", "w")
            second = setup.api.put(WIDGETS, widget("w", 2))
            await asyncio.sleep(1)
            old = {**first, "metadata": {**first["metadata"], "resourceVersion": "12"}}
            undecodable = {**old, "size": "none"}

            async def replayed():
                for event in [("DELETED", old), ("DELETED", undecodable)]:
                    yield FakeApi._line(*event)
                await asyncio.sleep(100)

            setup.api.cut()
            setup.api.refusals[WIDGETS] = (200, {}, replayed())
            await asyncio.sleep(10)
            assert setup.sink.state() == {("ns", "w"): (second["metadata"]["uid"], 2, "13")}

    run(main())


@pytest.mark.parametrize("supported", [True, False])
def test_streamed_lists_where_the_server_can(supported):
    async def main():
        setup = Setup(watch_list=True)
        setup.api.streaming_lists = supported
        for i in range(3):
            setup.api.put(WIDGETS, widget(f"w{i}", i))
        async with setup:
            await setup.reflector.synced.wait()
            assert setup.sink.calls == [("upsert", f"w{i}", i) for i in range(3)]
            assert len(setup.lists()) == (0 if supported else 1)
            first = setup.watches()[0]
            assert (first["sendInitialEvents"], first["resourceVersionMatch"]) == ("true", "NotOlderThan")
            setup.api.put(WIDGETS, widget("w0", 9))
            await asyncio.sleep(1)
            assert setup.sink.state() == server_state(setup.api)
            setup.api.cut()
            setup.api.compact()
            setup.api.remove(WIDGETS, "ns", "w1")
            setup.api.compact()
            await asyncio.sleep(30)
            assert setup.sink.state() == server_state(setup.api)

    run(main())


def test_what_is_deleted_during_a_streamed_list_is_gone():
    async def main():
        setup = Setup(watch_list=True)

        async def stream():
            for name, version in [("stays", "5"), ("goes", "3")]:
                yield FakeApi._line("ADDED", widget(name, uid=name, resourceVersion=version))
            yield FakeApi._line("DELETED", widget("goes", uid="goes", resourceVersion="7"))
            end = {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}
            yield FakeApi._line("BOOKMARK", {"metadata": end})
            await asyncio.sleep(100)

        setup.api.refusals[WIDGETS] = (200, {}, stream())
        async with setup:
            await setup.reflector.synced.wait()
            assert setup.sink.calls[-1] == ("delete", "goes", 1)
            assert [key.name for key in setup.sink.objects] == ["stays"]
            assert setup.reflector.resource_version == "7"

    run(main())


def test_streamed_lists_that_break_off_are_given_up():
    async def main():
        setup = Setup(watch_list=True)
        setup.api.streaming_lists = True
        setup.api.put(WIDGETS, widget("w"))
        original = setup.api.handler

        async def breaking(method, path, query, headers, body):
            if "sendInitialEvents" in query:
                setup.api.requests.append((method, path, dict(query)))

                async def one_event():
                    yield FakeApi._line("ADDED", widget("w", uid="u", resourceVersion="11"))

                return 200, {}, one_event()
            return await original(method, path, query, headers, body)

        setup.reflector._transport._handler = breaking
        async with setup:
            await setup.reflector.synced.wait()
            assert len([w for w in setup.watches() if "sendInitialEvents" in w]) == 2
            assert setup.sink.state() == server_state(setup.api)
            setup.api.put(WIDGETS, widget("w", 2))
            await asyncio.sleep(1)
            assert setup.reflector.resource_version == str(setup.api.version)

    run(main())
