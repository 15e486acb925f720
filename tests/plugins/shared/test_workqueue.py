"""The queue of the controller: each key once, by one worker at a time; those that failed later and later."""

import asyncio

from koordsched.plugins.shared.workqueue import LONGEST_PAUSE, WorkQueue
from tests.virtualtime import run


def test_keys_come_once_and_in_order():
    async def main():
        queue = WorkQueue()
        for key in "abca":
            queue.add(key)
        assert [await queue.take() for _ in range(3)] == ["a", "b", "c"]
        # While it is looked at it is given to no other worker, and not forgotten.
        queue.add("a")
        queue.add("d")
        assert await queue.take() == "d"
        queue.done("a")
        assert await queue.take() == "a"
        queue.done("a")
        queue.done("b")
        waiting = asyncio.create_task(queue.take())
        await asyncio.sleep(5)
        assert not waiting.done()
        queue.add("b")
        assert await waiting == "b"

    run(main())


def test_what_failed_comes_again_later_and_later():
    async def main():
        queue = WorkQueue()
        loop = asyncio.get_running_loop()
        queue.add("a")
        waited = []
        for _ in range(8):
            started = loop.time()
            assert await queue.take() == "a"
            waited.append(round(loop.time() - started, 3))
            queue.failed("a")
        assert waited == [0, 0.01, 0.05, 0.25, 1.25, 6.25, LONGEST_PAUSE, LONGEST_PAUSE]
        await queue.take()
        queue.done("a")
        queue.add("a")
        await queue.take()
        queue.failed("a")
        started = loop.time()
        await queue.take()
        assert loop.time() - started < 0.02
        # What is named meanwhile does not wait.
        queue.failed("a")
        queue.add("a")
        started = loop.time()
        await queue.take()
        assert loop.time() == started
        queue.close()

    run(main())


def test_a_later_time_replaces_an_earlier_one():
    async def main():
        queue = WorkQueue()
        loop = asyncio.get_running_loop()
        started = loop.time()
        queue.add_later("a", 1)
        queue.add_later("a", 10)
        queue.add_later("b", 5)
        assert (await queue.take(), await queue.take()) == ("b", "a")
        assert loop.time() - started == 10

    run(main())


def test_what_is_said_again_and_again_is_not_put_off():
    async def main():
        queue = WorkQueue()
        loop = asyncio.get_running_loop()
        started = loop.time()
        queue.add_later("a", 30)
        for _ in range(10):
            queue.add_within("a", 1)
            await asyncio.sleep(0.3)
            if loop.time() - started > 1:
                break
        assert await queue.take() == "a"
        assert loop.time() - started < 1.3
        queue.done("a")
        queue.add_within("a", 5)
        assert await queue.take() == "a"
        queue.close()

    run(main())
