"""Gangs and devices where gangs are victims: all of a gang's devices come free, those on other nodes as well."""

import asyncio

import pytest

from tests.plugins.deviceshare.machines import g8, pod
from tests.plugins.deviceshare.running import held
from tests.plugins.deviceshare.test_gangs import created, gangs, group, members, placed
from tests.plugins.deviceshare.test_together import names_of
from tests.virtualtime import run

PREEMPTS = {"enablePreemption": True}


@pytest.mark.parametrize(("minimum", "stay"), [(2, []), (1, ["old-1"])])
def test_devices_of_a_gang_that_goes_as_a_whole_come_free(minimum, stay):
    """The new pod needs what one of two members has."""

    async def scenario():
        async with gangs(*g8(), group(minimum, "old"), group(1, "new"), args=PREEMPTS) as (embedded, running):
            old = members(2, "old", gpu=400)
            await created(embedded, *old, seconds=3)
            assert len(placed(embedded, *old)) == 2
            new = members(1, "new", gpu=400, priority=500)
            await created(embedded, *new, seconds=60)
            return names_of(embedded) - {"new-0"}, placed(embedded, *new), set(held(running))

    left, found, books = run(scenario())
    assert len(left) == len(stay)
    assert len(found["new-0"][1]["gpu"]) == 4
    assert len(books) == 4 * (1 + len(stay))


def test_a_pod_by_itself_goes_before_a_gang_that_would_go_as_a_whole():
    async def scenario():
        async with gangs(*g8(), group(3, "old"), group(1, "new"), args=PREEMPTS) as (embedded, running):
            await created(embedded, *members(3, "old", gpu=200), seconds=3)
            await created(embedded, pod("z", gpu=200), seconds=3)
            new = members(1, "new", gpu=200, priority=500)
            await created(embedded, *new, seconds=60)
            await asyncio.sleep(5)
            return names_of(embedded), set(held(running))

    left, books = run(scenario())
    assert left == {"old-0", "old-1", "old-2", "new-0"}
    assert len(books) == 8
