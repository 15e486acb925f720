import asyncio
import itertools
import json
import random
from contextlib import AsyncExitStack

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordsched.api.meta import ObjectMeta, Wire
from koordsched.client.errors import Ambiguous, NotSent
from koordsched.client.inmemory import InMemoryTransport
from koordsched.client.reflector import LONGEST_PAGE, Reflector, State
from koordsched.client.sink import ObjectKey
from koordsched.client.turns import Turns
from tests.client.apifake import FakeApi, reply
from tests.virtualtime import VirtualClock, run

WIDGETS = "/apis/example.com/v1/widgets"


class Widget(Wire, frozen=True):
    metadata: ObjectMeta
    size: int = 0


def widget(name, size=1, namespace="ns", **meta):
    return {"metadata": {"namespace": namespace, "name": name, **meta}, "size": size}


class RecordingSink:
    """Keeps the state a sink should have, and the calls it got."""

    def __init__(self):
        self.objects = {}
        self.calls = []
        self.reject = set()

    def upsert(self, obj):
        if obj.metadata.name in self.reject:
            raise RuntimeError(f"cannot take {obj.metadata.name}")
        key = ObjectKey(obj.metadata.namespace, obj.metadata.name, obj.metadata.uid)
        self.calls.append(("upsert", obj.metadata.name, obj.size))
        for other in [k for k in self.objects if k[:2] == key[:2] and k != key]:
            del self.objects[other]
        self.objects[key] = obj

    def delete(self, obj):
        self.calls.append(("delete", obj.metadata.name, obj.size))
        self.objects.pop(ObjectKey(obj.metadata.namespace, obj.metadata.name, obj.metadata.uid), None)

    def delete_key(self, key):
        self.calls.append(("delete_key", key.name))
        self.objects.pop(key, None)

    def known(self):
        self.calls.append(("known", len(self.objects)))
        return iter(list(self.objects))

    def state(self):
        return {(k.namespace, k.name): (k.uid, o.size, o.metadata.resource_version) for k, o in self.objects.items()}


def server_state(api):
    return {
        key: (obj["metadata"]["uid"], obj["size"], obj["metadata"]["resourceVersion"])
        for key, obj in api.objects[WIDGETS].items()
        if isinstance(obj["size"], int)
    }


class Setup:
    """A reflector at work on a fake server."""

    def __init__(self, fault=None, seed=1, sink=None, **options):
        self.api = FakeApi()
        self.sink = sink or RecordingSink()
        self.malformed = []
        self.states = []
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.reflector = Reflector(
            InMemoryTransport(self.api.handler, fault=fault),
            WIDGETS,
            msgspec.json.Decoder(Widget).decode,
            self.sink,
            clock=self.clock,
            rng=random.Random(seed),
            on_malformed=lambda name, error: self.malformed.append((name, type(error).__name__)),
            on_state=lambda state, error: self.states.append(state),
            **options,
        )
        self.task = None

    async def __aenter__(self):
        self.task = asyncio.create_task(self.reflector.run())
        return self

    async def __aexit__(self, *_):
        assert not self.task.done(), self.task
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def lists(self):
        return [query for method, path, query in self.api.requests if path == WIDGETS and "watch" not in query]

    def watches(self):
        return [query for method, path, query in self.api.requests if "watch" in query]


def test_lists_in_pages_then_follows_the_watch():
    async def main():
        setup = Setup(page_size=2, selectors={"fieldSelector": "spec.x=1"})
        for i in range(5):
            setup.api.put(WIDGETS, widget(f"w{i}", i))
        async with setup:
            await setup.reflector.synced.wait()
            assert setup.sink.calls == [("upsert", f"w{i}", i) for i in range(5)]
            assert setup.lists() == [
                {"fieldSelector": "spec.x=1", "limit": "2"},
                {"fieldSelector": "spec.x=1", "limit": "2", "continue": "2@15"},
                {"fieldSelector": "spec.x=1", "limit": "2", "continue": "4@15"},
            ]
            setup.sink.calls.clear()
            setup.api.put(WIDGETS, widget("w0", 7))
            setup.api.put(WIDGETS, widget("new", 8))
            setup.api.remove(WIDGETS, "ns", "w1")
            await asyncio.sleep(1)
            assert setup.sink.calls == [("upsert", "w0", 7), ("upsert", "new", 8), ("delete", "w1", 1)]
            [watch] = setup.watches()
            assert 300 <= int(watch.pop("timeoutSeconds")) <= 600
            assert watch == {
                "fieldSelector": "spec.x=1",
                "watch": "1",
                "allowWatchBookmarks": "true",
                "resourceVersion": "15",
            }
            assert setup.reflector.resource_version == "18"
            assert setup.states == [State.SYNCED]

    run(main())


def test_resumes_a_cut_watch_where_it_was_without_listing():
    async def main():
        async with Setup() as setup:
            await setup.reflector.synced.wait()
            for i in range(3):
                setup.api.put(WIDGETS, widget("w", i))
                await asyncio.sleep(10)
                setup.api.cut()
                setup.api.put(WIDGETS, widget(f"during-{i}"))
                await asyncio.sleep(10)
            assert len(setup.lists()) == 1
            assert [w["resourceVersion"] for w in setup.watches()] == ["10", "11", "13", "15"]
            assert setup.sink.state() == server_state(setup.api)

    run(main())


def test_relists_after_compaction_and_hears_of_what_vanished():
    async def main():
        async with Setup() as setup:
            setup.api.put(WIDGETS, widget("stays"))
            setup.api.put(WIDGETS, widget("goes"))
            await asyncio.sleep(1)
            setup.api.cut()
            setup.api.remove(WIDGETS, "ns", "goes")
            setup.api.put(WIDGETS, widget("comes"))
            setup.api.compact()
            setup.api.put(WIDGETS, widget("later"))
            await asyncio.sleep(5)
            assert len(setup.lists()) == 2
            assert "resourceVersion" not in setup.lists()[1]
            assert {name for _, name in setup.sink.state()} == {"stays", "comes", "later"}

    run(main())


def test_a_later_list_asks_for_nothing_older_than_what_was_seen():
    async def main():
        async with Setup() as setup:
            await setup.reflector.synced.wait()
            setup.api.put(WIDGETS, widget("a"))
            await asyncio.sleep(1)
            await break_watch_with(setup, b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"x"}}\n')
            assert setup.lists()[1] == {
                "limit": "500",
                "resourceVersion": "11",
                "resourceVersionMatch": "NotOlderThan",
            }

    async def break_watch_with(setup, line):
        async def broken():
            yield line

        setup.api.cut()
        setup.api.refusals[WIDGETS] = (200, {}, broken())
        await asyncio.sleep(0.5)
        setup.api.refusals.clear()
        await asyncio.sleep(5)

    run(main())


def test_a_list_from_the_past_is_not_taken_over():
    """A server that breaks its word and answers with less than what was asked for: nothing goes back in time."""

    async def main():
        stale = json.dumps({"metadata": {"resourceVersion": "5"}, "items": [widget("old", resourceVersion="4")]})
        asked = []

        async def broken():
            yield b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"x"}}\n'

        async def fault(call, proceed):
            if call.method == "GET" and "watch" not in call.query and call.query.get("resourceVersion"):
                asked.append(call.query["resourceVersion"])
                return 200, {}, stale.encode()
            return await proceed()

        async with Setup(fault=fault) as setup:
            await setup.reflector.synced.wait()
            setup.api.put(WIDGETS, widget("a"))
            await asyncio.sleep(1)
            known = setup.sink.state()
            setup.api.cut()
            setup.api.refusals[WIDGETS] = (200, {}, broken())
            await asyncio.sleep(0.5)
            setup.api.refusals.clear()
            assert setup.sink.state() == known
            setup.api.put(WIDGETS, widget("b"))
            await asyncio.sleep(30)
            assert asked == ["11"]
            assert "resourceVersion" not in setup.lists()[-1]
            assert ("upsert", "old", 1) not in setup.sink.calls
            assert setup.sink.state() == server_state(setup.api)

    run(main())


def test_paging_that_is_overtaken_by_compaction_starts_over_with_larger_pages():
    async def main():
        setup = Setup(page_size=2)
        for i in range(7):
            setup.api.put(WIDGETS, widget(f"w{i}"))
        original = setup.api.handler
        hits = 0

        async def compacting(method, path, query, headers, body):
            nonlocal hits
            if "continue" in query and hits == 0:
                hits += 1
                setup.api.put(WIDGETS, widget("w0", 9))
                setup.api.compact()
            return await original(method, path, query, headers, body)

        setup.reflector._transport._handler = compacting
        async with setup:
            await setup.reflector.synced.wait()
            assert [q["limit"] for q in setup.lists()] == ["2", "2", "4", "4"]
            assert setup.sink.state() == server_state(setup.api)

    run(main())


def test_malformed_objects_are_reported_and_skipped():
    async def main():
        setup = Setup()
        setup.api.put(WIDGETS, widget("bad", "large"))
        setup.api.put(WIDGETS, widget("good", 1))
        async with setup:
            await setup.reflector.synced.wait()
            assert setup.malformed == [("ns/bad", "ValidationError")]
            setup.api.put(WIDGETS, widget("good", "broken"))
            await asyncio.sleep(1)
            # The last sound state stays: the object exists.
            assert setup.sink.state()[("ns", "good")][1] == 1
            setup.api.put(WIDGETS, widget("next", 2))
            setup.api.remove(WIDGETS, "ns", "good")
            await asyncio.sleep(1)
            assert setup.sink.calls[-1] == ("delete_key", "good")
            assert {name for _, name in setup.sink.state()} == {"next"}
            assert setup.malformed == [("ns/bad", "ValidationError")] + [("ns/good", "ValidationError")] * 2
            assert setup.reflector.resource_version == str(setup.api.version)
            assert len(setup.lists()) == len(setup.watches()) == 1

    run(main())


def test_an_object_that_the_sink_cannot_take_stops_nobody_else():
    async def main():
        setup = Setup()
        setup.sink.reject.add("poison")
        setup.api.put(WIDGETS, widget("poison"))
        setup.api.put(WIDGETS, widget("fine"))
        async with setup:
            await setup.reflector.synced.wait()
            setup.api.put(WIDGETS, widget("poison", 2))
            setup.api.put(WIDGETS, widget("fine", 2))
            await asyncio.sleep(1)
            assert setup.malformed == [("ns/poison", "RuntimeError")] * 2
            assert {name for _, name in setup.sink.state()} == {"fine"}

    run(main())


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


@pytest.mark.parametrize("during", ["a watch", "a list", "a pause"])
def test_listing_once_more_at_once_whatever_is_under_way(during):
    async def main():
        slow = during == "a list"

        async def fault(call, proceed):
            status, headers, body = await proceed()
            if slow and "watch" not in call.query:
                await asyncio.sleep(10)  # what is answered is old by then
            return status, headers, body if isinstance(body, bytes) else hanging(body)

        async def hanging(body):
            async for chunk in body:
                if during == "a pause":
                    raise NotSent("gone")
                yield chunk
                await asyncio.sleep(1000)  # the watch is open, and nothing more comes

        async with Setup(fault) as setup:
            setup.api.put(WIDGETS, widget("a", 1))
            await asyncio.sleep(5 if slow else 100)
            setup.api.put(WIDGETS, widget("b", 2))
            setup.api.remove(WIDGETS, "ns", "a")
            slow = False
            began = asyncio.get_running_loop().time()
            await setup.reflector.relist()
            assert asyncio.get_running_loop().time() - began < 0.01
            assert setup.sink.state() == server_state(setup.api)
            assert list(setup.sink.state()) == [("ns", "b")]
            assert "resourceVersion" not in setup.lists()[-1]

    run(main())


def test_old_and_repeated_events_do_not_go_back_in_time():
    async def main():
        async with Setup() as setup:
            first = setup.api.put(WIDGETS, widget("w", 1))
            setup.api.put(WIDGETS, widget("w", 2))
            setup.api.put(WIDGETS, widget("gone", 1))
            setup.api.remove(WIDGETS, "ns", "gone")
            await asyncio.sleep(1)

            async def replayed():
                for event in [("ADDED", first), ("MODIFIED", widget("gone", 1, uid="uid-13", resourceVersion="13"))]:
                    yield FakeApi._line(*event)
                await asyncio.sleep(100)

            setup.api.cut()
            setup.api.refusals[WIDGETS] = (200, {}, replayed())
            await asyncio.sleep(10)
            assert setup.sink.state() == {("ns", "w"): (first["metadata"]["uid"], 2, "12")}
            assert setup.reflector.stale_events == 2

    run(main())


@pytest.mark.parametrize(
    ("status", "reason", "state"),
    [(403, "Forbidden", State.FORBIDDEN), (404, "NotFound", State.NOT_FOUND), (500, "InternalError", State.FAILING)],
)
def test_a_refused_resource_is_named_and_tried_again(status, reason, state):
    async def main():
        setup = Setup()
        setup.api.refusals[WIDGETS] = reply(status, reason, "no")
        async with setup:
            await asyncio.sleep(300)
            assert setup.reflector.state is state
            assert setup.reflector.error.status == status
            assert not setup.reflector.synced.is_set()
            assert 8 <= len(setup.lists()) <= 24
            setup.api.refusals.clear()
            setup.api.put(WIDGETS, widget("late"))
            await asyncio.sleep(60)
            assert setup.states == [state, State.SYNCED]
            assert setup.sink.state() == server_state(setup.api)

    run(main())


@pytest.mark.parametrize(("status", "reason", "kept"), [(404, "NotFound", False), (403, "Forbidden", True)])
def test_objects_go_with_their_kind_and_stay_when_they_may_not_be_read(status, reason, kept):
    async def main():
        async with Setup() as setup:
            setup.api.put(WIDGETS, widget("w"))
            await asyncio.sleep(1)
            before = setup.sink.state()
            setup.api.refusals[WIDGETS] = reply(status, reason, "no")
            setup.api.cut()
            await asyncio.sleep(10)
            assert setup.sink.state() == (before if kept else {})
            setup.api.refusals.clear()
            setup.api.put(WIDGETS, widget("later"))
            await asyncio.sleep(60)
            assert setup.sink.state() == server_state(setup.api)

    run(main())


def test_retry_after_is_respected():
    async def main():
        setup = Setup()
        setup.api.refusals[WIDGETS] = reply(429, "TooManyRequests", headers={"retry-after": "7"})
        async with setup:
            await asyncio.sleep(6.9)
            assert len(setup.lists()) == 1
            await asyncio.sleep(0.2)
            assert len(setup.lists()) == 2

    run(main())


def test_a_server_restored_from_an_older_backup_is_followed():
    async def main():
        async with Setup() as setup:
            for i in range(5):
                setup.api.put(WIDGETS, widget(f"w{i}"))
            await asyncio.sleep(1)
            setup.api.objects[WIDGETS].clear()
            setup.api.history.clear()
            setup.api.version = 3
            setup.api.put(WIDGETS, widget("restored"))
            setup.api.cut()
            await asyncio.sleep(60)
            assert setup.sink.state() == server_state(setup.api)
            setup.api.put(WIDGETS, widget("after"))
            await asyncio.sleep(1)
            assert setup.sink.state() == server_state(setup.api)

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


def test_failing_connections_are_retried_ever_more_slowly():
    attempts = []

    async def refused(call, proceed):
        attempts.append(asyncio.get_running_loop().time())
        raise NotSent("refused")

    async def main():
        async with Setup(fault=refused) as setup:
            await asyncio.sleep(600)
            assert setup.states == [State.FAILING]

    run(main())
    gaps = [b - a for a, b in itertools.pairwise(attempts)]
    assert all(0.1 <= gap <= 45 for gap in gaps)
    assert gaps[0] < 0.5 < 10 < min(gaps[9:])
    assert len(gaps) < 40


def test_after_a_long_outage_a_new_list_is_not_delayed_like_a_failed_connection():
    outage = False
    served = []

    async def fault(call, proceed):
        if outage:
            raise NotSent("refused")
        served.append(("watch" if "watch" in call.query else "list", asyncio.get_running_loop().time()))
        return await proceed()

    async def main():
        nonlocal outage
        async with Setup(fault=fault) as setup:
            await setup.reflector.synced.wait()
            await asyncio.sleep(1)
            outage = True
            setup.api.cut()
            await asyncio.sleep(300)
            setup.api.put(WIDGETS, widget("new"))
            setup.api.compact()
            outage = False
            await asyncio.sleep(60)
            assert setup.sink.state() == server_state(setup.api)
            (first, reconnected), (second, relisted), *_ = served[2:]
            assert (first, second) == ("watch", "list")
            assert relisted - reconnected < 0.5

    run(main())


class Labour:
    """A clock that only work moves, and the most of it that was done within one turn of the loop."""

    def __init__(self):
        self.seconds = self._last = self.longest = 0.0
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._tick)

    def __call__(self):
        return self.seconds

    def _tick(self):
        self.longest, self._last = max(self.longest, self.seconds - self._last), self.seconds
        self._loop.call_soon(self._tick)


class LaboriousSink(RecordingSink):
    """Whatever it is told, and every key it tells, takes 0.1 ms."""

    labour = None

    def __init__(self):
        super().__init__()
        self.deleting = asyncio.Event()

    def upsert(self, obj):
        self.labour.seconds += 1e-4
        super().upsert(obj)

    def delete_key(self, key):
        self.labour.seconds += 1e-4
        self.deleting.set()
        super().delete_key(key)

    def known(self):
        for key in super().known():
            self.labour.seconds += 1e-4
            yield key


@pytest.mark.parametrize("kinds", [1, 5])
@pytest.mark.parametrize("watch_list", [False, True])
def test_listings_leave_time_for_others_however_many_there_are(kinds, watch_list):
    """The first lists, and then one that finds every second object gone."""

    async def main():
        labour = Labour()
        turns = Turns(labour)
        setups = [Setup(sink=LaboriousSink(), turns=turns, watch_list=watch_list, seed=i) for i in range(kinds)]
        async with AsyncExitStack() as stack:
            for setup in setups:
                setup.sink.labour = labour
                setup.api.streaming_lists = watch_list
                for i in range(400):
                    setup.api.put(WIDGETS, widget(f"w{i}"))
                await stack.enter_async_context(setup)
            for setup in setups:
                await setup.reflector.synced.wait()
                assert len(setup.sink.objects) == 400
                assert ("known", 400) not in setup.sink.calls  # there was nothing before
            assert 0 < labour.longest < 0.006
            for setup in setups:
                for i in range(0, 400, 2):
                    del setup.api.objects[WIDGETS]["ns", f"w{i}"]  # and no watch tells
                setup.sink.calls.clear()
            await asyncio.gather(*(setup.reflector.relist() for setup in setups))
            for setup in setups:
                assert setup.sink.state() == server_state(setup.api)
                gone = [call[1] for call in setup.sink.calls if call[0] == "delete_key"]
                assert sorted(gone) == sorted(f"w{i}" for i in range(0, 400, 2))
            assert labour.longest < 0.006

    run(main())


def test_kinds_that_are_listed_at_once_take_turns():
    """None has to wait until another is through."""

    async def main():
        labour, order = Labour(), []
        turns = Turns(labour)

        class Sink(LaboriousSink):
            def upsert(self, obj):
                order.append(self)
                super().upsert(obj)

        setups = [Setup(sink=Sink(), turns=turns, seed=i) for i in range(3)]
        async with AsyncExitStack() as stack:
            for setup in setups:
                setup.sink.labour = labour
                for i in range(400):
                    setup.api.put(WIDGETS, widget(f"w{i}"))
                await stack.enter_async_context(setup)
            for setup in setups:
                await setup.reflector.synced.wait()
        for seen in (order[: len(order) // 2], order):
            shares = [seen.count(setup.sink) for setup in setups]
            assert max(shares) - min(shares) < 110

    run(main())


def test_a_listing_that_is_interrupted_while_it_looks_for_what_is_gone_is_made_up_for():
    async def main():
        labour = Labour()
        setup = Setup(sink=LaboriousSink(), turns=Turns(labour))
        setup.sink.labour = labour
        for i in range(400):
            setup.api.put(WIDGETS, widget(f"w{i}"))
        async with setup:
            await setup.reflector.synced.wait()
            for i in range(300):
                setup.api.remove(WIDGETS, "ns", f"w{i}")
            first = asyncio.create_task(setup.reflector.relist())
            await setup.sink.deleting.wait()
            assert len(setup.sink.objects) > 200
            setup.api.put(WIDGETS, widget("w0"))
            await setup.reflector.relist()
            await first
            assert setup.sink.state() == server_state(setup.api)
            gone = [call[1] for call in setup.sink.calls if call[0] == "delete_key"]
            assert sorted(gone) == sorted(f"w{i}" for i in range(300))

    run(main())


@pytest.mark.parametrize("relists", [False, True])
def test_what_happens_beside_a_listing_is_not_undone_by_it(relists):
    """Its pages show the state of its beginning, and take their time."""

    async def main():
        slow = not relists

        async def fault(call, proceed):
            answer = await proceed()
            if slow and "continue" in call.query:
                await asyncio.sleep(5)
            return answer

        setup = Setup(fault=fault, page_size=2)
        for i in range(6):
            setup.api.put(WIDGETS, widget(f"w{i}", i))
        async with setup:
            if relists:
                await setup.reflector.synced.wait()
                slow = True
                relist = asyncio.create_task(setup.reflector.relist())
            await asyncio.sleep(1)
            setup.sink.calls.clear()
            setup.api.put(WIDGETS, widget("w5", 50))  # on the last page, still as it was
            setup.api.put(WIDGETS, widget("w0", 10))  # on the first
            setup.api.put(WIDGETS, widget("new"))
            setup.api.remove(WIDGETS, "ns", "w4")
            await asyncio.sleep(60)
            assert setup.sink.calls == [
                *(("upsert", f"w{i}", i) for i in range(2, 6)),
                *([("known", 6)] if relists else []),
                ("upsert", "w5", 50),
                ("upsert", "w0", 10),
                ("upsert", "new", 1),
                ("delete", "w4", 4),
            ]
            assert setup.sink.state() == server_state(setup.api)
            if relists:
                await relist

    run(main())


def test_after_a_listing_that_broke_off_the_next_is_of_the_newest_state():
    """Its first page is newer than the version of the last complete one; another cache may be older than that page."""

    async def main():
        failing = False

        async def fault(call, proceed):
            if failing and "continue" in call.query:
                return reply(500, "InternalError")
            return await proceed()

        async with Setup(fault=fault, page_size=2) as setup:
            for i in range(3):
                setup.api.put(WIDGETS, widget(f"w{i}"))
            await asyncio.sleep(1)
            failing = True

            async def broken():
                yield b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"x"}}\n'

            setup.api.cut()
            setup.api.put(WIDGETS, widget("w0", 9))
            setup.api.refusals[WIDGETS] = (200, {}, broken())
            await asyncio.sleep(0.5)
            setup.api.refusals.clear()
            refused = len(setup.lists())
            await asyncio.sleep(1)
            failing = False
            await asyncio.sleep(10)
            relists = [query for query in setup.lists()[refused:] if "continue" not in query]
            assert [query.get("resourceVersion") for query in relists] == ["13", *[None] * (len(relists) - 1)]
            assert len(relists) > 1
            assert setup.sink.state() == server_state(setup.api)

    run(main())


def test_pages_grow_no_longer_than_one_can_be_taken_apart_at_once():
    async def main():
        async def fault(call, proceed):
            if "continue" in call.query:
                return reply(410, "Expired")
            return await proceed()

        setup = Setup(fault=fault)
        for i in range(LONGEST_PAGE + 1):
            setup.api.objects[WIDGETS]["ns", f"w{i}"] = widget(f"w{i}", uid=f"{i}", resourceVersion="10")
        async with setup:
            await asyncio.sleep(120)
            limits = [query["limit"] for query in setup.lists() if "continue" not in query]
            assert limits[:6] == ["500", "1000", "2000", "2000", "2000", "2000"]

    run(main())


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_happens_the_sink_ends_up_equal_to_the_server(data):
    """Any interleaving of changes, cut watches, compactions, failures, late and repeated chunks."""
    seed = data.draw(st.integers(0, 2**32 - 1))
    steps = data.draw(
        st.lists(
            st.sampled_from(
                ["put", "put", "put", "bad", "remove", "recreate", "cut", "compact", "fail", "calm", "wait"]
            ),
            max_size=60,
        )
    )
    watch_list = data.draw(st.booleans())

    async def main():
        rng = random.Random(seed)
        failing = False

        async def fault(call, proceed):
            await asyncio.sleep(rng.uniform(0, 0.3))
            if failing and rng.random() < 0.7:
                if rng.random() < 0.3:
                    raise NotSent("refused")
                if rng.random() < 0.5:
                    return reply(rng.choice([429, 500, 503, 504]), "Trouble")
                await proceed()
                raise Ambiguous("lost")
            status, headers, body = await proceed()
            return status, headers, body if isinstance(body, bytes) else disturbed(body)

        async def disturbed(chunks):
            """Splits, delays, repeats and drops what a watch delivers, never reordering within a connection."""
            async for chunk in chunks:
                if failing and rng.random() < 0.2:
                    raise Ambiguous("reset")
                await asyncio.sleep(rng.uniform(0, 0.2))
                cut = rng.randrange(len(chunk))
                yield chunk[:cut]
                yield chunk[cut:]
                if rng.random() < 0.2:
                    yield chunk

        async with Setup(fault=fault, seed=seed, page_size=3, watch_list=watch_list) as setup:
            api = setup.api
            api.streaming_lists = True
            for step in steps:
                name = f"w{rng.randrange(8)}"
                known = ("ns", name) in api.objects[WIDGETS]
                if step == "put":
                    api.put(WIDGETS, widget(name, rng.randrange(100)))
                elif step == "bad":
                    api.put(WIDGETS, widget(name, "not a number"))
                elif step == "remove" and known:
                    api.remove(WIDGETS, "ns", name)
                elif step == "recreate" and known:
                    api.remove(WIDGETS, "ns", name)
                    api.put(WIDGETS, widget(name, rng.randrange(100)))
                elif step == "cut":
                    api.cut()
                elif step == "compact":
                    api.compact()
                elif step == "fail":
                    failing = True
                elif step == "calm":
                    failing = False
                elif step == "wait":
                    await asyncio.sleep(rng.uniform(0, 3))
            failing = False
            await asyncio.sleep(120)
            expected = server_state(api)
            seen = setup.sink.state()
            bad = {key for key, obj in api.objects[WIDGETS].items() if not isinstance(obj["size"], int)}
            assert {key: value for key, value in seen.items() if key not in bad} == expected
            for key in bad & set(seen):
                assert seen[key][0] == api.objects[WIDGETS][key]["metadata"]["uid"]

    run(main())


def test_the_wire_structs_accept_what_servers_send():
    from koordsched.client.watchstream import decode_page

    assert decode_page(b'{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":null}').items is None
    page = decode_page(json.dumps({"metadata": {"continue": "abc", "remainingItemCount": 4}, "items": [{}]}).encode())
    assert (page.metadata.continue_, len(page.items)) == ("abc", 1)
