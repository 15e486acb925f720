"""Waiting for what happens in its own time."""

import asyncio


async def until(condition, what, seconds=10.0):
    """Waits for a condition, with a deadline."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not condition():
        assert loop.time() < end, f"{what}: not within {seconds} s"
        await asyncio.sleep(0.005)
