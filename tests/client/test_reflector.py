"""Lists, watches, and whatever servers do in between: the sink ends up equal to the server."""

import asyncio
import itertools
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordsched.client.errors import Ambiguous, NotSent, TooLong
from koordsched.client.reflector import State
from koordsched.client.sink import ObjectKey
from tests.client.apifake import FakeApi, reply, status_body
from tests.client.widgets import WIDGETS, RecordingSink, Setup, server_state, widget
from tests.virtualtime import run


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


def test_what_the_sink_had_before_and_is_not_listed_goes():
    async def main():
        sink = RecordingSink()
        sink.objects = {ObjectKey("ns", name, name): None for name in ("stays", "goes")}
        async with Setup(sink=sink) as setup:
            setup.api.put(WIDGETS, widget("stays", uid="stays"))
            await setup.reflector.synced.wait()
            assert {name for _, name in sink.state()} == {"stays"}

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


def test_pages_that_are_longer_than_may_be_read_are_asked_for_with_fewer_objects():
    async def main():
        setup = Setup(page_size=7)
        for i in range(5):
            setup.api.put(WIDGETS, widget(f"w{i}"))
        original, limits = setup.api.handler, []

        async def long(method, path, query, headers, body):
            if "watch" not in query:
                limits.append(query["limit"])
            if int(query.get("limit", 0)) > 1:
                raise TooLong(f"{method} {path}", 1)
            return await original(method, path, query, headers, body)

        setup.reflector._transport._handler = long
        async with setup:
            await setup.reflector.synced.wait()
            assert limits == ["7", "3", *5 * ["1"]]
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


def test_an_object_without_readable_metadata_ends_no_watch():
    async def main():
        setup = Setup()
        async with setup:
            await setup.reflector.synced.wait()
            garbled = widget("garbled", 1)
            garbled["metadata"]["annotations"] = 7
            setup.api.put(WIDGETS, garbled)
            setup.api.put(WIDGETS, widget("next", 2))
            await asyncio.sleep(1)
            assert {name for _, name in setup.sink.state()} == {"next"}
            assert len(setup.malformed) == 1
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
    [
        (302, "", State.FAILING),
        (403, "Forbidden", State.FORBIDDEN),
        (404, "NotFound", State.NOT_FOUND),
        (500, "InternalError", State.FAILING),
    ],
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


@pytest.mark.parametrize("at_start", [True, False])
@pytest.mark.parametrize("stand_in", [reply(404, ""), reply(503, ""), NotSent("refused"), (200, {}, b"<html>")])
def test_a_kind_that_another_than_the_server_denies_is_not_gone(stand_in, at_start):
    """A proxy that has lost the server answers 404, too, to whatever it is asked, or to some of it."""

    async def main():
        astray = at_start

        async def fault(call, proceed):
            if not astray:
                return await proceed()
            if call.path == WIDGETS:
                return 404, {}, b"404 page not found\n"
            if isinstance(stand_in, Exception):
                raise stand_in
            return stand_in

        setup = Setup(fault=fault)
        setup.api.put(WIDGETS, widget("w"))
        async with setup:
            await asyncio.sleep(1)
            before = setup.sink.state()
            astray = True
            setup.api.cut()
            await asyncio.sleep(60)
            assert (setup.sink.state(), setup.reflector.state) == (before, State.FAILING)
            astray = False
            await asyncio.sleep(60)
            assert setup.sink.state() == server_state(setup.api)

    run(main())


@pytest.mark.parametrize(
    ("status", "state"),
    [(302, State.FAILING), (400, State.FAILING), (403, State.FORBIDDEN), (500, State.FAILING)],
)
def test_a_watch_that_alone_is_refused_is_named_and_lists_become_rare(status, state):
    async def main():
        refusing = True

        async def fault(call, proceed):
            return reply(status, "", "no") if refusing and "watch" in call.query else await proceed()

        setup = Setup(fault=fault)
        setup.api.put(WIDGETS, widget("w"))
        async with setup:
            await asyncio.sleep(600)
            assert setup.states[0] is State.SYNCED, "what is listed counts"
            assert state in setup.states[-2:]
            assert len(setup.lists()) <= 60
            refusing = False
            setup.api.put(WIDGETS, widget("later"))
            await asyncio.sleep(60)
            assert setup.reflector.state is State.SYNCED
            assert setup.sink.state() == server_state(setup.api)

    run(main())


@pytest.mark.parametrize(
    "body", [b"{}", b'{"status":"maintenance"}', status_body(503, "ServiceUnavailable"), b"<html>"]
)
def test_an_answer_that_is_no_list_takes_nothing_away(body):
    async def main():
        async with Setup() as setup:
            setup.api.put(WIDGETS, widget("w"))
            await asyncio.sleep(1)
            before = setup.sink.state()
            setup.api.refusals[WIDGETS] = (200, {}, body)
            setup.api.compact()
            setup.api.cut()
            await asyncio.sleep(60)
            assert (setup.sink.state(), setup.reflector.state) == (before, State.FAILING)
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


def test_a_list_that_came_ends_the_pauses_of_an_outage():
    outage, watches = True, []

    async def fault(call, proceed):
        if outage:
            raise NotSent("refused")
        if "watch" in call.query:
            watches.append(asyncio.get_running_loop().time())
        return await proceed()

    async def main():
        nonlocal outage
        async with Setup(fault=fault) as setup:
            await asyncio.sleep(300)
            outage = False
            await setup.reflector.synced.wait()
            await asyncio.sleep(1)
            setup.api.cut()
            cut = asyncio.get_running_loop().time()
            await asyncio.sleep(60)
            assert cut < watches[1] < cut + 1

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
    from koordsched.client.jsonformat import decode_page
    from koordsched.client.wireformat import Page

    assert decode_page(b'{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":null}') == Page((), "5", "")
    page = decode_page(json.dumps({"metadata": {"continue": "abc", "remainingItemCount": 4}, "items": [{}]}).encode())
    assert (page.next_token, len(page.items)) == ("abc", 1)
