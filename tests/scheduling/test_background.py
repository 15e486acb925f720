"""Work in the background ends before the scheduler does, and none is begun then."""

import asyncio

from koordsched.scheduling.background import Background
from tests.virtualtime import run


def test_closing_waits_for_what_is_under_way_and_begins_nothing():
    done = []

    async def work(name, seconds):
        await asyncio.sleep(seconds)
        done.append(name)

    async def main():
        background = Background()
        background.start(work("short", 1))
        background.start(work("long", 5))
        await asyncio.sleep(2)
        closing = asyncio.ensure_future(background.close())
        await asyncio.sleep(1)
        background.start(work("late", 0))
        await closing
        assert done == ["short", "long"]
        await background.close()

    run(main())
