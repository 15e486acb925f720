"""Listings leave time for others, and what happens beside them is not undone."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from koordsched.client.reflector import LONGEST_PAGE
from koordsched.client.timeslices import TimeSlices
from tests.client.apifake import reply
from tests.client.widgets import WIDGETS, RecordingSink, Setup, server_state, widget
from tests.virtualtime import run


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

    def upsert(self, obj, anew=False):
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
        slices = TimeSlices(labour)
        setups = [Setup(sink=LaboriousSink(), slices=slices, watch_list=watch_list, seed=i) for i in range(kinds)]
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
        slices = TimeSlices(labour)

        class Sink(LaboriousSink):
            def upsert(self, obj, anew=False):
                order.append(self)
                super().upsert(obj)

        setups = [Setup(sink=Sink(), slices=slices, seed=i) for i in range(3)]
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
        setup = Setup(sink=LaboriousSink(), slices=TimeSlices(labour))
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


@pytest.mark.slow
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
