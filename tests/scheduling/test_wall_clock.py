"""The wall clock may jump: it names moments for people, and nothing is decided or measured by it."""

import asyncio
import re
from functools import cache

import pytest

from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

HOUR, DAY, YEAR = 3600.0, 86400.0, 31536000.0
STEPS = {
    "an hour back": (-HOUR,),
    "an hour ahead": (HOUR,),
    "ten years back": (-10 * YEAR,),
    "ten years ahead": (10 * YEAR,),
    "there and back": (DAY, -DAY, DAY, -DAY),
    "slowly backwards": (-0.5,) * 60,
}
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


async def slow_evictions(call, proceed):
    if call.method == "DELETE":
        await asyncio.sleep(2)
    return await proceed()


def shift(clock, seconds):
    clock.wall_offset += seconds


@cache
def history(steps):
    """What a scheduler does and measures in ten minutes, with all wall clocks moved by these seconds on the way."""

    async def main():
        embedded = Embedded()
        loop = asyncio.get_running_loop()
        for name in ("alder", "birch"):
            embedded.insert(node(name, cpu="4"))
        attempts = []
        async with scheduler_on(embedded, fault=slow_evictions) as running:
            scheduler = running.scheduler
            original = scheduler.cycle.schedule_one

            def noting(queued):
                attempts.append((round(loop.time(), 3), queued.key))
                return original(queued)

            scheduler.cycle.schedule_one = noting
            for number, seconds in enumerate(steps):
                loop.call_later(3.0 + number, shift, embedded.clock, seconds)
            for i in range(8):
                embedded.insert(pod(f"low{i}", container(cpu="1")))
            for i in range(3):
                embedded.insert(pod(f"huge{i}", container(cpu="40")))
            await asyncio.sleep(20)
            embedded.insert(pod("high", container(cpu="2"), priority=10))
            loop.call_later(1.0, shift, embedded.clock, sum(steps))  # while victims are being told to go
            await asyncio.sleep(5)
            pods = embedded.resource("Pod")
            for thing in embedded.registry.list(pods):
                if thing["metadata"].get("deletionTimestamp"):
                    embedded.registry.delete(pods, "default", thing["metadata"]["name"], 0)
            await asyncio.sleep(575)
            measured = {
                (sample.name, *sorted(sample.labels.items())): sample.value
                for metric in scheduler.metrics.collect()
                for sample in metric.samples
            }
            things = embedded.registry.list(pods)
            placed = {thing["metadata"]["name"]: thing["spec"].get("nodeName") for thing in things}
            return attempts, measured, placed, embedded.events()

    return run(main())


@pytest.mark.parametrize("steps", STEPS)
def test_nothing_is_decided_or_measured_by_it(steps):
    attempts, measured, placed, events = history(STEPS[steps])
    expected_attempts, expected, expected_places, expected_events = history(())
    assert attempts == expected_attempts
    assert placed == expected_places
    assert measured == expected
    assert len(events) == len(expected_events)
    assert len({event["metadata"]["name"] for event in events}) == len(events)
    assert all(STAMP.fullmatch(event["eventTime"]) for event in events)
