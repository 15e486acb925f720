"""Whose turn it is."""

import asyncio

import pytest

from koordsched.client.timeslices import TimeSlices
from tests.virtualtime import run


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


async def worker(name, slices, clock, items, log):
    for _ in range(items):
        log.append(name)
        clock.now += 0.002
        if slices.over():
            await slices.next()


def test_first_come_first_served_for_a_slice_each():
    async def main():
        clock, log = Clock(), []
        slices = TimeSlices(clock)
        await asyncio.gather(*(worker(name, slices, clock, 7, log) for name in "abc"))
        # One item each until they have to ask, then 5 ms of 2 ms items at a time.
        assert "".join(log) == "abc" + "aaabbbccc" * 2

    run(main())


def test_who_is_cancelled_while_waiting_keeps_nobody_waiting():
    async def main():
        clock, log = Clock(), []
        slices = TimeSlices(clock)
        tasks = [asyncio.create_task(worker(name, slices, clock, 7, log)) for name in "abcd"]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[2].cancel()
        await asyncio.wait(tasks)
        assert [log.count(name) for name in "abcd"] == [1, 7, 1, 7]

    run(main())


@pytest.mark.parametrize(("pause", "over"), [(0.004, False), (0.005, True), (60.0, True)])
def test_a_slice_ends_whether_it_is_used_or_not(pause, over):
    async def main():
        clock = Clock()
        slices = TimeSlices(clock)
        assert slices.over()
        await slices.next()
        assert not slices.over()
        clock.now += pause
        assert slices.over() is over

    run(main())
