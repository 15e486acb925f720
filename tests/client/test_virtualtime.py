import asyncio

import pytest

from tests.virtualtime import WALL_EPOCH, Deadlock, VirtualClock, VirtualTimeLoop, run


def test_sleeping_takes_no_real_time_and_exact_virtual_time():
    async def main():
        loop = asyncio.get_running_loop()
        order = []

        async def sleeper(name, seconds):
            await asyncio.sleep(seconds)
            order.append((name, round(loop.time(), 6)))

        await asyncio.gather(sleeper("c", 3600), sleeper("a", 0.25), sleeper("b", 60))
        return order

    # By the clock of the machine it would be more than an hour.
    assert run(main()) == [("a", 1000.25), ("b", 1060.0), ("c", 4600.0)]


def test_a_task_that_never_wakes_ends_in_an_error():
    async def main():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(TimeoutError):
        run(main(), limit=3.0)

    async def without_limit():
        await asyncio.get_running_loop().create_future()

    loop = VirtualTimeLoop()
    task = loop.create_task(without_limit())
    with pytest.raises(Deadlock):
        loop.run_until_complete(task)
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()


def test_the_three_clocks():
    async def main():
        clock = VirtualClock(asyncio.get_running_loop(), wall_offset=-5.0)
        await asyncio.sleep(10)
        clock.suspended += 100
        return clock.monotonic(), clock.boottime(), clock.wall() - WALL_EPOCH

    assert run(main()) == (1010.0, 1110.0, 105.0)
